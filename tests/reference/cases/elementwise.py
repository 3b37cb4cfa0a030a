"""Arithmetic, functions, comparisons, choice and conversion, element by element."""

import math

import numpy as np

from .values import (ALL, BF16, FLOATS, SOME, SOME_NUMBERS, TYPES, Operand, anything, from_integer, is_float, long,
                     moderate, narrow, partial, place, shape, specials, wide)

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def gelu(x):
    # Where 1 + erf would cancel, erfc does not; what its argument lost to rounding counts there.
    wanted = x.astype(np.longdouble) / np.sqrt(np.longdouble(2))
    near = wanted.astype(np.float64)
    lost = np.where(np.isfinite(wanted), wanted - near, 0)
    tail = erfc(-near) + 2 / np.sqrt(np.longdouble(np.pi)) * np.exp(-wanted * wanted) * lost
    return at_lowest(x, 0.5 * x * tail)


def silu(x):
    return at_lowest(x, x * sigmoid(x))


def at_lowest(x, value):
    # Contract: at minus infinity the limit, where the formula has 0 × ∞.
    return np.where(np.isneginf(x), -0.0, value)


# Functions of floats: what they are in a wide type, and by how many units in the last place a
# result may be off. (Halves are computed in f32, so theirs are right but for the last rounding.)
FUNCTIONS = {
    "recip": (lambda x: 1 / x, 0), "sqrt": (np.sqrt, 0), "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "cbrt": (np.cbrt, 2), "exp": (np.exp, 2), "exp2": (np.exp2, 2), "exp_m1": (np.expm1, 4), "ln": (np.log, 2),
    "log1p": (np.log1p, 4), "log2": (np.log2, 4),
    "log10": (np.log10, 4), "sin": (np.sin, 2), "cos": (np.cos, 2), "tan": (np.tan, 4), "asin": (np.arcsin, 4),
    "acos": (np.arccos, 4), "atan": (np.arctan, 4), "sinh": (np.sinh, 4), "cosh": (np.cosh, 4), "tanh": (np.tanh, 2),
    "asinh": (np.arcsinh, 4), "acosh": (np.arccosh, 4), "atanh": (np.arctanh, 4), "floor": (np.floor, 0),
    "ceil": (np.ceil, 0), "round": (np.rint, 0), "trunc": (np.trunc, 0), "erf": (erf, 4), "sigmoid": (sigmoid, 4),
    "gelu": (gelu, 4), "silu": (silu, 4),
}

FOR_HALVES = ["recip", "sqrt", "exp", "ln", "sin", "tanh", "round", "erf", "gelu"]


def write(book):
    for name in FLOATS:
        functions(book, name)
    for name in SOME_NUMBERS:
        arithmetic(book, name)
        ternary(book, name)
    for name in SOME:
        comparisons(book, name)
    for name in ALL:
        # The other conversions are held to Rust's own elsewhere; each is a kernel to compile.
        for target in ("bf16", "u8"):
            casts(book, name, target)
    for name in ("i8", "i64", "u16", "bool"):
        logic(book, name)


def operands(book, name, make=anything):
    """Special values in a row, a view of any strides, and a long one."""
    yield Operand(specials(name))
    yield place(book.rng, lambda count: make(book.rng, name, count), shape(book.rng))
    yield long(book.rng, name)


def pairs(book, name, make=anything):
    """Every special value with every other, two views that broadcast, and long ones."""
    values = specials(name)
    # Not all of them: the table grows with the square.
    some = values[:: 1 if len(values) < 20 else 2]
    yield Operand(some.reshape(-1, 1)), Operand(values if len(values) < 20 else values[::2])
    for _ in range(2):
        dims = shape(book.rng)
        yield tuple(
            place(book.rng, lambda count: make(book.rng, name, count), partial(book.rng, dims)) for _ in range(2)
        )
    yield long(book.rng, name), long(book.rng, name)


def halves(name, ulps):
    """The bound for a type: what is right in f32 is off by one rounding in a half."""
    return min(ulps, 1) if name in ("f16", "bf16") else ulps


@np.errstate(all="ignore")
def functions(book, name):
    for op, (function, ulps) in FUNCTIONS.items():
        # Halves go through f32 and back, in one place for all functions.
        if name in ("f16", "bf16") and op not in FOR_HALVES:
            continue
        for x in operands(book, name):
            # What every type rounds right itself must not be rounded twice.
            value = rounded(function, x.value) if ulps == 0 else narrow(function(wide(x.value)), TYPES[name])
            book.case(op, [x], value, ulps=halves(name, ulps))
    for x in operands(book, name):
        book.case("is_nan", [x], np.isnan(x.value))
    if name in ("f16", "bf16"):
        return
    for y, x in pairs(book, name):
        value = np.arctan2(wide(y.value), wide(x.value))
        book.case("atan2", [y, x], narrow(value, TYPES[name]), ulps=halves(name, 4))
        value = np.power(wide(y.value), wide(x.value))
        book.case("powf", [y, x], narrow(value, TYPES[name]), ulps=halves(name, 4))
    for exponent in (-3, -1, 0, 1, 2, 3, 7):
        for x in operands(book, name):
            value = narrow(np.power(wide(x.value), exponent), TYPES[name])
            book.case("powi", [x], value, [exponent], ulps=halves(name, 4))


@np.errstate(all="ignore")
def arithmetic(book, name):
    dtype = TYPES[name]
    for x in operands(book, name):
        v = x.value
        book.case("neg", [x], -v)
        book.case("abs", [x], np.abs(v))
        book.case("square", [x], rounded(lambda v: v * v, v))
        # The sign of a zero is open in what chooses one of two.
        book.case("relu", [x], np.where(v < 0, dtype.type(0), v), zeros=False)
        book.case("sign", [x], np.sign(v).astype(dtype), zeros=False)
    for a, b in pairs(book, name):
        x, y = a.value, b.value
        book.case("add", [a, b], rounded(lambda x, y: x + y, x, y))
        book.case("sub", [a, b], rounded(lambda x, y: x - y, x, y))
        book.case("mul", [a, b], rounded(lambda x, y: x * y, x, y))
        book.case("div", [a, b], divided(x, y))
        book.case("rem", [a, b], remainder(x, y))


def rounded(function, *values):
    """Halves in f32 with one rounding; the others in their own type, in which integers wrap."""
    dtype = values[0].dtype
    if dtype in (np.float16, BF16):
        return narrow(function(*(value.astype(np.float32) for value in values)), dtype)
    return function(*values)


def divided(x, y):
    if is_float(x.dtype):
        return rounded(lambda x, y: x / y, x, y)
    return quotients(x, y)[0]


def remainder(x, y):
    # Contract: as Rust's, with the sign of the dividend; NumPy's `%` has that of the divisor.
    if is_float(x.dtype):
        return rounded(np.fmod, x, y)
    return quotients(x, y)[1]


def quotients(x, y):
    # Contract: integers are cut towards zero, by zero they give 0, and MIN / -1 wraps.
    x, y = np.broadcast_arrays(x, y)
    info = np.iinfo(x.dtype)
    span = 1 << info.bits
    quotient, rest = np.zeros(x.shape, x.dtype), np.zeros(x.shape, x.dtype)
    for index in np.ndindex(x.shape):
        a, b = int(x[index]), int(y[index])
        if b:
            q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            rest[index] = a - q * b
            quotient[index] = (q - info.min) % span + info.min
    return quotient, rest


@np.errstate(all="ignore")
def ternary(book, name):
    dtype = TYPES[name]
    for x in operands(book, name):
        low, high = narrow_number(-1.5, dtype), narrow_number(2.5, dtype)
        value = np.clip(x.value, low, high).astype(dtype)
        book.case("clamp", [x], value, [low, high], zeros=False)
    for _ in range(2):
        dims = shape(book.rng)
        # Of one sign, so that it makes no difference whether the product is rounded.
        make = lambda count: moderate(book.rng, name, count, 0.25, 4.0)
        x, a, b = (place(book.rng, make, partial(book.rng, dims)) for _ in range(3))
        if is_float(dtype):
            value = narrow(wide(x.value) * wide(a.value) + wide(b.value), dtype)
        else:
            value = x.value * a.value + b.value
        book.case("mul_add", [x, a, b], value, ulps=2 if name in ("f32", "f64") else int(is_float(dtype)))


def narrow_number(value, dtype):
    """A bound that the type can hold, as a plain number."""
    if is_float(dtype):
        return value
    return max(int(value), np.iinfo(dtype).min)


@np.errstate(all="ignore")
def comparisons(book, name):
    tests = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
             "ge": np.greater_equal}
    for a, b in pairs(book, name):
        for op, test in tests.items():
            book.case(op, [a, b], test(a.value, b.value))
        # Of two zeros either may be the larger.
        book.case("maximum", [a, b], np.maximum(a.value, b.value), zeros=False)
        book.case("minimum", [a, b], np.minimum(a.value, b.value), zeros=False)
    for _ in range(3):
        dims = shape(book.rng)
        mask = place(book.rng, lambda count: moderate(book.rng, "bool", count), partial(book.rng, dims))
        make = lambda count: anything(book.rng, name, count)
        a, b = (place(book.rng, make, partial(book.rng, dims)) for _ in range(2))
        book.case("select", [mask, a, b], np.where(mask.value, a.value, b.value))


def logic(book, name):
    # Of integers it is that of their bits, as NumPy's `bitwise_and` has it.
    for a, b in pairs(book, name):
        book.case("and", [a, b], a.value & b.value)
        book.case("or", [a, b], a.value | b.value)
    for x in operands(book, name):
        book.case("not", [x], ~x.value)


@np.errstate(all="ignore")
def casts(book, name, target):
    for x in operands(book, name):
        book.case("cast", [x], converted(x.value, TYPES[target]))


def converted(x, target):
    # Contract: Rust's `as`; integers wrap, floats are cut and saturate, NaN is 0. `bool` asks for
    # what is not zero, which NumPy's does too.
    if target == np.bool_:
        return x.astype(np.float64) != 0 if is_float(x.dtype) else x != 0
    if x.dtype == np.bool_ or (not is_float(x.dtype) and not is_float(target)):
        return x.astype(target)
    if not is_float(x.dtype):
        flat = [from_integer(int(value), target) for value in x.reshape(-1)]
        return np.array(flat, target).reshape(x.shape)
    if is_float(target):
        return narrow(x.astype(np.float64), target)
    info = np.iinfo(target)
    flat = [saturated(float(value), info) for value in x.reshape(-1)]
    return np.array(flat, target).reshape(x.shape)


def saturated(value, info):
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return info.max if value > 0 else info.min
    return min(max(int(value), info.min), info.max)
