"""Complex numbers: arithmetic, parts, sums and products of matrices.

What rounds is computed in a wider type and rounded once; a result may be off by a few units in the last place of the
largest number that it was made of, because parts cancel.
"""

import numpy as np

from .values import NAMES, TYPES, Operand, partial, place, shape

EPSILON = {"c32": 1.2e-7, "c64": 2.3e-16}


def wide(x):
    return x.astype(np.clongdouble)


def moderate(rng, name, count):
    """Random elements that few operations overflow on."""
    parts = rng.uniform(-4.0, 4.0, (2, count))
    return (parts[0] + 1j * parts[1]).astype(TYPES[name])


def specials(name):
    """Pairs of parts at which something may go wrong, of which arithmetic says the same everywhere."""
    largest = float(np.finfo(TYPES[name]).max)
    parts = [0.0, -0.0, 1.0, -1.0, 1e-3, largest / 8, -largest / 16]
    return np.array([complex(re, im) for re in parts for im in parts]).astype(TYPES[name])


def write(book):
    for name in EPSILON:
        for _ in range(6):
            elementwise(book, name, shape(book.rng))
        elementwise(book, name, [9, 31])
        special(book, name)
        conversions(book, name)
        for dims in ([], [0], [1], [7], [3, 5], [4, 1, 6], [2, 0, 3], [30, 11]):
            reductions(book, name, dims)
        for left, right in products(book):
            product(book, name, left, right)


@np.errstate(all="ignore")
def elementwise(book, name, dims):
    def make(count):
        return moderate(book.rng, name, count)

    x = place(book.rng, make, dims)
    y = place(book.rng, make, partial(book.rng, dims))
    z = place(book.rng, make, dims)
    a, b, c = wide(x.value), wide(y.value), wide(z.value)
    slack = 40 * EPSILON[name]
    for op, value, more in (
        ("add", a + b, 1), ("sub", a - b, 1), ("mul", a * b, 1), ("square", a * a, 1), ("mul_add", a * b + c, 2),
        ("abs", np.abs(a), 1), ("re", a.real, 0), ("im", a.imag, 0), ("conj", np.conj(a), 0), ("neg", -a, 0),
    ):
        inputs = {"add": [x, y], "sub": [x, y], "mul": [x, y], "mul_add": [x, y, z]}.get(op, [x])
        book.case(op, inputs, narrow(value, name), slack=slack * more, zeros=False)
    # By what is not near 0.
    divisor = Operand(moderate(book.rng, name, 1) / 8 + TYPES[name].type(2))
    book.case("div", [x, divisor], narrow(a / wide(divisor.value), name), slack=slack, zeros=False)
    book.case("eq", [x, y], x.value == y.value)
    book.case("ne", [x, x], x.value != x.value)
    re, im = (Operand(part.copy()) for part in (x.value.real, x.value.imag))
    book.case("complex", [re, im], x.value)


def narrow(x, name):
    """Rounded to a complex type, or to its parts where it is real."""
    real = np.float32 if name == "c32" else np.float64
    return np.asarray(x).astype(TYPES[name] if np.iscomplexobj(x) else real)


@np.errstate(all="ignore")
def special(book, name):
    x = Operand(specials(name))
    book.case("abs", [x], narrow(np.abs(wide(x.value)), name), ulps=2)
    for op, value in (("re", x.value.real), ("im", x.value.imag), ("conj", np.conj(x.value)), ("neg", -x.value)):
        book.case(op, [x], value)
    unlike = Operand(np.roll(x.value, 1))
    book.case("eq", [x, unlike], x.value == unlike.value)
    infinite = np.array([complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 1)]).astype(TYPES[name])
    book.case("abs", [Operand(infinite)], np.abs(infinite))


def conversions(book, name):
    x = Operand(moderate(book.rng, name, 12).reshape(3, 4))
    for other in ("c32", "c64", "bool"):
        book.case("cast", [x], x.value.astype(TYPES[other]), [list(TYPES).index(other)])
    for other in ("f32", "f64", "i32"):
        # NumPy warns here.
        book.case("cast", [x], x.value.real.astype(TYPES[other]), [list(TYPES).index(other)])


def reductions(book, name, dims):
    def make(count):
        return moderate(book.rng, name, count)

    x = place(book.rng, make, dims)
    a, slack = wide(x.value), 8 * EPSILON[name] * max(1.0, float(np.abs(x.value).sum()))
    book.case("sum", [x], narrow(a.sum(), name), slack=slack, zeros=False)
    if a.size:
        book.case("mean", [x], narrow(a.mean(), name), slack=slack / a.size, zeros=False)
    if 0 < a.size < 20:
        size = float(np.prod(np.abs(x.value)))
        book.case("prod", [x], narrow(a.prod(), name), slack=20 * EPSILON[name] * size, zeros=False)
    for axis in range(len(dims)):
        book.case("sum_axis", [x], narrow(a.sum(axis), name), [axis], slack=slack, zeros=False)
        book.case("cumsum", [x], narrow(a.cumsum(axis), name), [axis], slack=slack, zeros=False)
        if dims[axis] < 8:
            value = a.cumprod(axis)
            bound = 20 * EPSILON[name] * max(1.0, float(np.abs(value).max(initial=0)))
            book.case("cumprod", [x], narrow(value, name), [axis], slack=bound, zeros=False)


def products(book):
    """Shapes that multiply: vectors, matrices small and large, and batches that broadcast."""
    yield from (([3], [3]), ([4], [4, 2]), ([2, 5], [5]), ([0], [0]), ([2, 0], [0, 3]), ([1, 1], [1, 1]))
    yield from (([17, 9], [9, 20]), ([2, 3, 4], [4, 5]), ([2, 1, 3, 4], [3, 4, 2]), ([3, 11, 12], [3, 12, 13]))


def product(book, name, left, right):
    def make(count):
        return moderate(book.rng, name, count)

    a, b = (place(book.rng, make, dims) for dims in (left, right))
    value = np.matmul(wide(a.value), wide(b.value))
    size = np.matmul(np.abs(wide(a.value)), np.abs(wide(b.value)))
    slack = 4 * EPSILON[name] * a.value.shape[-1] * float(np.max(size, initial=0))
    book.case("matmul", [a, b], narrow(value, name), slack=slack, zeros=False)


assert all(TYPES[name].kind == "c" and NAMES[TYPES[name]] == name for name in EPSILON)
