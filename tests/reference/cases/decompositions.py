"""Factorizations of matrices, and what follows from them.

Where the signs of factors are free, the case holds what the factors are multiplied to: the matrix again, and the
products of their columns, which are an identity.
"""

import numpy as np

from .values import TYPES, Operand

EPSILON = {name: float(np.finfo(TYPES[name]).eps) for name in ("f32", "f64")}
BATCHES = ([2], [2, 3], [0], [3, 1])
TALL = ((1, 1), (2, 1), (1, 4), (3, 3), (5, 2), (2, 5), (33, 7), (7, 33), (20, 20), (40, 12), (0, 3), (3, 0))
NORMS = ("fro", "nuc", 2, 1, np.inf)


def write(book):
    for name in ("f32", "f64"):
        for shape in squares():
            equations(book, name, shape)
            symmetric(book, name, shape)
        for rows, columns in TALL:
            for batch in ([], [2]):
                rectangular(book, name, batch + [rows, columns])
        least_squares(book, name)
        hard(book, name)


def squares():
    for n in (0, 1, 2, 3, 5, 17, 40):
        yield [n, n]
    for batch in BATCHES:
        yield batch + [3, 3]
    yield [2, 0, 0]


def standing(rng, value):
    """`value` as a view that stands in memory in a random way, but is no broadcast, which would be singular."""
    rank = value.ndim
    order = rng.permutation(rank).tolist()
    paces = [int(rng.choice([1, 1, 2])) for _ in range(rank)]
    extents = [length * pace for length, pace in zip(value.shape, paces)]
    base = np.zeros([extents[axis] for axis in order], value.dtype)
    steps = [["permute", [order.index(axis) for axis in range(rank)]]]
    steps.append(["slice", [[0, extent, pace] for extent, pace in zip(extents, paces)]])
    steps += [["flip", axis] for axis in range(rank) if rng.random() < 0.3]
    operand = Operand(base, steps)
    operand.value[...] = value
    return operand if rng.random() < 0.75 else Operand(value.copy())


def random(rng, name, shape):
    return rng.uniform(-1, 1, shape).astype(TYPES[name])


def regular(rng, name, shape):
    """Square matrices that are far from singular."""
    return (rng.uniform(-1, 1, shape) + 2 * np.eye(shape[-1])).astype(TYPES[name])


def doubles(x):
    return x.astype(np.float64)


def condition(a):
    return float(np.linalg.cond(a).max(initial=1)) if a.size else 1.0


def case(book, op, name, inputs, outputs, factor, args=()):
    """Results may be off by so many times the epsilon and the largest result."""
    dtype = TYPES[name]
    largest = max([float(np.abs(x).max(initial=0)) for x in outputs] + [1e-300])
    slack = 8 * EPSILON[name] * factor * largest
    book.case(op, inputs, [np.asarray(x).astype(dtype) for x in outputs], args, slack=slack, zeros=False)


def equations(book, name, shape):
    rng, n = book.rng, shape[-1]
    value = regular(rng, name, shape)
    a, wide = standing(rng, value), doubles(value)
    factor = (n + 1) * condition(wide)
    case(book, "inv", name, [a], [np.linalg.inv(wide)], factor)
    case(book, "det", name, [a], [np.linalg.det(wide)], factor)
    for right in ([n], [n, 1], [n, 3], [2, 1, n, 2]):
        if len(right) == 4 and len(shape) > 3:
            continue
        b = random(rng, name, right)
        x = np.linalg.solve(wide, doubles(b))
        case(book, "solve", name, [a, standing(rng, b)], [x], factor)


def symmetric(book, name, shape):
    rng, n = book.rng, shape[-1]
    value = regular(rng, name, shape)
    definite = (doubles(value) @ doubles(value).swapaxes(-2, -1)).astype(TYPES[name])
    # Only the lower triangle is read.
    odd = definite + np.triu(np.full(shape, 7, TYPES[name]), 1)
    lower = np.tril(doubles(definite))
    wide = lower + np.tril(lower, -1).swapaxes(-2, -1)
    case(book, "cholesky", name, [standing(rng, odd)], [np.linalg.cholesky(wide)], (n + 1) * condition(wide))
    value = random(rng, name, shape)
    lower = np.tril(doubles(value))
    wide = lower + np.tril(lower, -1).swapaxes(-2, -1)
    eye = np.broadcast_to(np.eye(n), shape)
    case(book, "eigvalsh", name, [standing(rng, value)], [np.linalg.eigvalsh(wide)], n + 1)
    case(book, "eigh", name, [standing(rng, value)], [np.linalg.eigvalsh(wide), wide, eye], n + 1)


def rectangular(book, name, shape):
    rng = book.rng
    value = random(rng, name, shape)
    a, wide = standing(rng, value), doubles(value)
    factor, k = max(shape[-2:]) + 1, min(shape[-2:])
    eye = np.broadcast_to(np.eye(k), shape[:-2] + [k, k])
    s = np.linalg.svd(wide, compute_uv=False)
    case(book, "qr", name, [a], [wide, eye], factor)
    case(book, "svd", name, [a], [s, wide, eye, eye], factor)
    case(book, "svdvals", name, [a], [s], factor)
    for number, order in enumerate(NORMS):
        norm = np.linalg.norm(wide, order, (-2, -1)) if k else np.zeros(shape[:-2])
        case(book, "norm", name, [a], [norm], factor, [number])


def least_squares(book, name):
    rng = book.rng
    for rows, columns in TALL:
        for batch, right in (([], [rows]), ([], [rows, 2]), ([2], [rows, 3]), ([2, 1], [3, rows, 1])):
            squares_case(book, name, random(rng, name, batch + [rows, columns]), random(rng, name, right))
    # Of rank 2.
    for rows, columns in ((6, 4), (4, 6), (5, 5)):
        low = random(rng, name, [rows, 2]) @ random(rng, name, [2, columns])
        squares_case(book, name, np.round(low * 16) / 16 if name == "f32" else low, random(rng, name, [rows]), 2)


def squares_case(book, name, a, b, rank=None):
    rng, wide, right = book.rng, doubles(a), doubles(b)
    if rank:
        u, s, vt = np.linalg.svd(wide, full_matrices=False)
        s[rank:] = 0
        a = ((u * s) @ vt).astype(TYPES[name])
        wide = doubles(a)
    cut = EPSILON[name] * max(a.shape[-2:])
    is_vector = right.ndim == 1
    right = right[:, None] if is_vector else right
    inverse = np.linalg.pinv(wide, rcond=cut) if wide.size else wide.swapaxes(-2, -1)
    x = inverse @ right
    values = np.linalg.svd(wide, compute_uv=False)
    kept = values[..., :rank]
    factor = float((kept[..., :1] / kept[..., -1:]).max(initial=1)) if kept.size else 1.0
    factor *= factor * (max(a.shape[-2:]) + 1)
    x = x[..., 0] if is_vector else x
    case(book, "lstsq", name, [standing(rng, a), standing(rng, b)], [x], factor)


def hard(book, name):
    """Matrices that are nearly or exactly singular, and numbers of any size."""
    rng, dtype = book.rng, TYPES[name]
    n = 4 if name == "f32" else 8
    hilbert = (1 / (np.arange(n)[:, None] + np.arange(n) + 1)).astype(dtype)
    wide = doubles(hilbert)
    factor = n * condition(wide)
    b = random(rng, name, [n])
    case(book, "solve", name, [Operand(hilbert), Operand(b)], [np.linalg.solve(wide, doubles(b))], factor)
    case(book, "svdvals", name, [Operand(hilbert)], [np.linalg.svd(wide, compute_uv=False)], n)
    case(book, "eigvalsh", name, [Operand(hilbert)], [np.linalg.eigvalsh(wide)], n)
    for matrix, value in (
        ([[1, 2], [2, 4]], 0),
        ([[0, 0], [0, 0]], 0),
        ([[0, 1], [1, 0]], -1),
        ([[0, 2, 0], [0, 0, 3], [4, 0, 0]], 24),
        ([[np.nan, 1], [1, 2]], np.nan),
    ):
        book.case("det", [Operand(np.array(matrix, dtype))], [np.array(value, dtype)], zeros=False)
    big = 2.0 ** (100 if name == "f32" else 1000)
    scaled = np.diag([big, big, 1 / big, 2 / big]).astype(dtype)
    case(book, "det", name, [Operand(scaled)], [np.array(2.0)], 1000)
    book.case("det", [Operand(scaled[:2, :2])], [np.array(np.inf, dtype)])
    for scale in (big**0.25, 1 / big**0.25):
        value = (random(rng, name, [6, 6]) * scale).astype(dtype)
        case(book, "svdvals", name, [Operand(value)], [np.linalg.svd(doubles(value), compute_uv=False)], 6)
        lower = np.tril(doubles(value))
        wide = lower + np.tril(lower, -1).T
        case(book, "eigvalsh", name, [Operand(value)], [np.linalg.eigvalsh(wide)], 6)
    same = np.eye(6, dtype=dtype) * 3
    case(book, "svd", name, [Operand(same)], [np.full(6, 3.0), same, np.eye(6), np.eye(6)], 6)
    case(book, "eigh", name, [Operand(same)], [np.full(6, 3.0), same, np.eye(6)], 6)
    none = np.zeros([4, 3], dtype)
    case(book, "svd", name, [Operand(none)], [np.zeros(3), none, np.eye(3), np.eye(3)], 4)
    case(book, "qr", name, [Operand(none)], [none, np.eye(3)], 4)
