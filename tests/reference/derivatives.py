"""Makes the exact derivatives of the functions: `derivatives.csv`, beside itself.

    python3 -m venv venv && venv/bin/pip install mpmath
    venv/bin/python tests/reference/derivatives.py

A line is `function;arguments;weights;gradients`. Numbers of a list are apart by spaces. The gradients are of the sum of
the weights times the results, for the arguments as they are written: computed in 600 digits and rounded once, to `f64`.
Arguments have 8 bits, so that they are the same number in each type whose range has them, except for the neighbours
of the ends of domains. Where a function has no derivative at infinity, the line gives the limit.
"""

import math
import pathlib

from mpmath import (
    cos, cosh, erf, erfc, exp, expm1, inf, isinf, log, mp, mpf, pi, sin, sinh, sqrt,
)

mp.dps = 600
NEAR_ONE = [1 - 2.0**-k for k in (8, 11, 24, 53)] + [1 + 2.0**-k for k in (7, 10, 23, 52)]


def eight_bits(x):
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256), exponent - 8)


SIZES = [eight_bits(m * 10.0**e) for e in range(-30, 31, 2) for m in (1, 3)]
SIZES += [0.25, 0.5, 0.65, 0.75, 1, 1.25, 1.5, 2, 3, 3.5, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 18, 20, 25, 30, 37, 40]
SIZES += [50, 60, 75, 80, 86, 88, 90, 120, 300, 500, 700, 1000, 65280]
SIZES = sorted({eight_bits(x) for x in SIZES} | set(NEAR_ONE))
REAL = sorted({s * x for s in (1, -1) for x in SIZES} | {0.0})
ABOVE_0 = SIZES
WITHIN_1 = [x for x in REAL if abs(x) < 1]


def sigmoid(x):
    return 1 / (1 + exp(-x))


def density(x):
    return exp(-x * x / 2) / sqrt(2 * pi)


def power(x, n):
    return exp(n * log(x))


OF_ONE = {
    "recip": ([x for x in REAL if x], lambda x: -1 / x**2),
    "square": (REAL, lambda x: 2 * x),
    "sqrt": (ABOVE_0, lambda x: 1 / (2 * sqrt(x))),
    "rsqrt": (ABOVE_0, lambda x: -1 / (2 * x * sqrt(x))),
    "cbrt": (ABOVE_0, lambda x: power(x, -mpf(2) / 3) / 3),
    "exp": (REAL + [-inf], exp),
    "exp2": (REAL + [-inf], lambda x: power(mpf(2), x) * log(2)),
    "exp_m1": (REAL + [-inf], exp),
    "ln": (ABOVE_0, lambda x: 1 / x),
    "log1p": ([x for x in REAL if x > -1], lambda x: 1 / (1 + x)),
    "log2": (ABOVE_0 + [eight_bits(3e38)], lambda x: 1 / (x * log(2))),
    "log10": (ABOVE_0 + [eight_bits(3e38)], lambda x: 1 / (x * log(10))),
    "sin": ([x for x in REAL if abs(x) < 1e5], cos),
    "cos": ([x for x in REAL if abs(x) < 1e5], lambda x: -sin(x)),
    "tan": ([x for x in REAL if abs(x) < 1e5], lambda x: 1 / cos(x) ** 2),
    "asin": (WITHIN_1, lambda x: 1 / sqrt((1 - x) * (1 + x))),
    "acos": (WITHIN_1, lambda x: -1 / sqrt((1 - x) * (1 + x))),
    "atan": (REAL + [inf, -inf], lambda x: 1 / (1 + x * x)),
    "sinh": (REAL, cosh),
    "cosh": (REAL, sinh),
    "tanh": (REAL + [inf, -inf], lambda x: 1 / cosh(x) ** 2),
    "asinh": (REAL + [inf, -inf], lambda x: 1 / sqrt(x * x + 1)),
    "acosh": ([x for x in ABOVE_0 if x > 1] + [inf], lambda x: 1 / sqrt((x - 1) * (x + 1))),
    "atanh": (WITHIN_1, lambda x: 1 / ((1 - x) * (1 + x))),
    "erf": (REAL + [inf, -inf], lambda x: 2 * exp(-x * x) / sqrt(pi)),
    "sigmoid": (REAL + [inf, -inf], lambda x: sigmoid(x) * sigmoid(-x)),
    "gelu": (REAL + [inf, -inf], lambda x: erfc(-x / sqrt(mpf(2))) / 2 + x * density(x)),
    "silu": (REAL + [inf, -inf], lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
}
LIMITS = {"gelu": (1.0, 0.0), "silu": (1.0, 0.0)}
PAIRS = [
    (a, b)
    for a in (0.0, 1e-25, 1e-10, 0.0078125, 1.0, 3.0, 1e5, 1e10, 1e20)
    for b in (1e-25, 1e-10, 0.0078125, 1.0, 3.0, 1e5, 1e10, 1e20)
]
PAIRS = [(eight_bits(a), eight_bits(b)) for a, b in PAIRS]
BASES = [eight_bits(x) for x in (1e-30, 1e-10, 0.0078125, 0.5, 2, 10, 1e5, 1e10, 1e30)]


def of_two():
    for y, x in PAIRS + [(b, a) for a, b in PAIRS] + [(-a, b) for a, b in PAIRS] + [(a, -b) for a, b in PAIRS]:
        if x or y:
            y, x = mpf(y), mpf(x)
            yield "atan2", [y, x], [1], [x / (x * x + y * y), -y / (x * x + y * y)]
    yield "atan2", [mpf(0), mpf(0)], [1], [mpf(0), mpf(0)]
    for x in BASES:
        for n in (-2.5, -1.0, -0.3125, 0.1015625, 0.5, 1.5, 2.0, 3.0):
            x, n = mpf(x), mpf(n)
            if -300 < n * log(x) < 300 and -300 < (n - 1) * log(x) < 300:
                yield "powf", [x, n], [1], [n * power(x, n - 1), power(x, n) * log(x)]
    for x, y in PAIRS:
        x, y = mpf(x), mpf(y)
        yield "over", [x, y], [1], [1 / y, -x / y**2]


ROWS = [
    [37.5, 0], [0, 37.5], [18, 0], [80, 0], [0, 0], [1, 2, 3], [37.5, 0, 1], [37.5, 37.5, 0], [-37.5, 0, 0, 5],
    [500, 0, 1], [600, 600], [1e5, 1e5, -1e5], [-1e5, -1e5], [0.0078125, 0, 1], [20, 12, 3, 0],
]
ROWS = [[mpf(eight_bits(x)) for x in row] for row in ROWS]


def shares(row):
    most = max(row)
    parts = [exp(x - most) for x in row]
    return [part / sum(parts) for part in parts]


def of_rows():
    for row in ROWS:
        p = shares(row)
        for g in ([1] + [0] * (len(row) - 1), [0] * (len(row) - 1) + [1], [2.5, -1, 3, 0.5][: len(row)]):
            g = [mpf(x) for x in g]
            mean = sum(a * b for a, b in zip(p, g))
            yield "softmax", row, g, [a * (b - mean) for a, b in zip(p, g)]
            yield "log_softmax", row, g, [b - a * sum(g) for a, b in zip(p, g)]
            if sum(g) == 1:
                yield "cross_entropy", row, g, [a - b for a, b in zip(p, g)]
        yield "logsumexp", row, [1], p


SPREAD = [
    [3, 4], [1e20, 1e20], [1e-20, 1e-20], [1e20, -3e20, 2e20], [1e-20, 3e-20, 0], [6e4, 6e4, 5e4], [1, 2, 3, 6],
    [128, 129], [1, 1, 1, 1.0078125], [1e10, 2e10, 4e10], [1e-30, 3e-30],
]
SPREAD = [[mpf(eight_bits(x)) for x in row] for row in SPREAD]


def of_spread():
    for row in SPREAD:
        norm = sqrt(sum(x * x for x in row))
        yield "norm", row, [1], [x / norm for x in row]
        mean = sum(row) / len(row)
        variance = sum((x - mean) ** 2 for x in row) / len(row)
        if max(row) < 1e15:
            yield "var", row, [1], [2 * (x - mean) / len(row) for x in row]
        if variance:
            yield "std", row, [1], [(x - mean) / len(row) / sqrt(variance) for x in row]
    for row in ([1, 2, 3], [0, 2, 3], [0, 0, 3], [1e10, 1e-10, 2], [1e-10, 3, 1e-10]):
        row = [mpf(eight_bits(x)) for x in row]
        others = lambda at: math.prod(row[:at] + row[at + 1 :])
        yield "prod", row, [1], [mpf(others(at)) for at in range(len(row))]


def of_one():
    for name, (arguments, slope) in OF_ONE.items():
        for x in arguments:
            if isinf(mpf(x)):
                above, below = LIMITS.get(name, (0.0, 0.0))
                value = above if x > 0 else below
            else:
                value = slope(mpf(x))
            yield name, [mpf(x)], [1], [value]


def text(numbers):
    return " ".join(repr(float(x)) for x in numbers)


with open(pathlib.Path(__file__).parent / "derivatives.csv", "w") as file:
    for source in (of_one, of_two, of_rows, of_spread):
        for name, arguments, weights, gradients in source():
            print(name, text(arguments), text(weights), text(gradients), sep=";", file=file)
