"""Products of vectors and matrices."""

import numpy as np

from .values import SOME_NUMBERS, TYPES, is_float, moderate, narrow, partial, place, wide

EPSILON = {"f32": 1.2e-7, "f64": 2.3e-16, "f16": 1e-3, "bf16": 8e-3}


def write(book):
    for name in SOME_NUMBERS:
        for left, right in shapes(book):
            products(book, "matmul", name, left, right, np.matmul)
        for length in (0, 1, 5, 40):
            products(book, "dot", name, [length], [length], np.dot)
        for rows, columns in ((0, 3), (1, 1), (4, 7)):
            products(book, "outer", name, [rows], [columns], np.outer)


def shapes(book):
    """Shapes that multiply: vectors, matrices, and batches that broadcast."""
    yield from (([3], [3]), ([4], [4, 2]), ([2, 5], [5]), ([0], [0]), ([2, 0], [0, 3]), ([0, 4], [4, 2]))
    yield from (([1, 1], [1, 1]), ([17, 9], [9, 20]), ([3, 33], [33, 5]))
    yield from (([2, 3, 4], [4, 5]), ([3, 4], [2, 4, 2]), ([2, 1, 3, 4], [3, 4, 2]), ([4], [2, 4, 3]), ([2, 3, 4], [4]))
    for _ in range(4):
        rows, inner, columns = (int(x) for x in book.rng.integers(1, 7, 3))
        batch = [int(x) for x in book.rng.integers(1, 4, int(book.rng.integers(0, 3)))]
        yield partial(book.rng, batch) + [rows, inner], partial(book.rng, batch) + [inner, columns]


@np.errstate(all="ignore")
def products(book, op, name, left, right, multiply):
    make = lambda count: moderate(book.rng, name, count)
    a, b = (place(book.rng, make, dims) for dims in (left, right))
    if not is_float(TYPES[name]):
        # They wrap.
        book.case(op, [a, b], multiply(a.value, b.value))
        return
    value = multiply(wide(a.value), wide(b.value))
    magnitude = multiply(np.abs(wide(a.value)), np.abs(wide(b.value)))
    # Each of the additions may round; f16 and bf16 do so in f32, and once at the end.
    steps = a.value.shape[-1] if op != "outer" and name in ("f32", "f64") else 1
    slack = EPSILON[name] * steps * float(magnitude.max(initial=0))
    book.case(op, [a, b], narrow(value, TYPES[name]), ulps=1, slack=slack)
