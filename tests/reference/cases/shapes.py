"""Views, and copies by position: everything here is exact, and the same for every type."""

import numpy as np

from .values import SOME, TYPES, Operand, anything, moderate, partial, place, shape

# More than any element but infinity.
LARGEST = np.finfo(np.longdouble).max


def write(book):
    for name in SOME:
        for _ in range(5):
            views(book, name)
            selections(book, name)
            gathers(book, name)
            joins(book, name)
            frames(book, name)
            orders(book, name)


def array(book, name, dims, make=anything):
    return place(book.rng, lambda count: make(book.rng, name, count), dims)


def filled(book, most=5):
    """A shape of one axis at least, and an axis of it, counted from either end."""
    dims = shape(book.rng, 1, most)
    return dims, int(book.rng.integers(-len(dims), len(dims)))


def views(book, name):
    rng = book.rng
    dims = shape(rng)
    x = array(book, name, dims)
    value = x.value
    book.case("reshape", [x], value.reshape(-1), [value.size])
    split = [d for length in dims for d in ([1, length] if rng.random() < 0.3 and len(dims) < 4 else [length])]
    split = split[::-1] if rng.random() < 0.5 else split
    book.case("reshape", [x], value.reshape(split), split)
    book.case("flatten", [x], value.reshape(-1))
    book.case("transpose", [x], value.T)
    order = rng.permutation(len(dims)).tolist()
    book.case("permute", [x], value.transpose(order), order)
    at = int(rng.integers(-len(dims) - 1, len(dims) + 1))
    book.case("unsqueeze", [x], np.expand_dims(value, at), [at])
    target = [2] + [3 if length == 1 else length for length in dims] if len(dims) < 5 else dims
    book.case("broadcast_to", [x], np.broadcast_to(value, target), target)
    if dims:
        first, second = (int(i) for i in rng.integers(-len(dims), len(dims), 2))
        book.case("swap_axes", [x], np.swapaxes(value, first, second), [first, second])
        axis = int(rng.integers(-len(dims), len(dims)))
        book.case("flip", [x], np.flip(value, axis), [axis])
        single = dims.copy()
        single[axis] = 1
        y = array(book, name, single)
        book.case("squeeze", [y], np.squeeze(y.value, axis), [axis])
    slices(book, x)


def slices(book, x):
    """`start, stop, step` for each axis. Contract: a negative step goes through the range from its end."""
    args, value = [], x.value
    for axis, length in enumerate(value.shape):
        start, stop = sorted(int(i) for i in book.rng.integers(0, length + 1, 2))
        step = int(book.rng.choice([1, 1, 2, -1, -2]))
        args += [start, stop, step]
        place = (slice(None),) * axis
        value = value[place + (slice(start, stop),)][place + (slice(None, None, step),)]
    book.case("slice", [x], value, args)


def selections(book, name):
    rng = book.rng
    dims, axis = filled(book, 4)
    x = array(book, name, dims)
    length = dims[axis]
    wanted = shape(rng, 0, 2) if length else [0]
    indices = Operand(rng.integers(-length, max(length, 1), wanted))
    book.case("take", [x, indices], np.take(x.value, indices.value, axis), [axis])
    count = int(rng.integers(0, 4))
    book.case("repeat", [x], np.repeat(x.value, count, axis), [count, axis])
    parts = int(rng.choice([n for n in range(1, 8) if length % n == 0]))
    book.case("split", [x], np.split(x.value, parts, axis), [parts, axis])


def gathers(book, name):
    rng = book.rng
    dims, axis = filled(book, 3)
    if not dims[axis]:
        return
    x = array(book, name, dims)
    other = dims.copy()
    other[axis] = int(rng.integers(0, 5))
    indices = place(rng, lambda count: rng.integers(-dims[axis], dims[axis], count), other)
    book.case("gather", [x, indices], np.take_along_axis(x.value, indices.value, axis), [axis])
    if name == "bool":
        return
    # Few terms for one place, so that the order of the additions does not matter.
    source = array(book, name, other, moderate)
    source.base = np.asarray(np.floor(source.base.astype(np.float64)), TYPES[name])
    target = array(book, name, dims, moderate)
    target.base = np.asarray(np.floor(target.base.astype(np.float64)), TYPES[name])
    total = target.value.copy()
    for at in np.ndindex(*other):
        place_at = list(at)
        place_at[axis] = int(indices.value[at])
        total[tuple(place_at)] += source.value[at]
    book.case("scatter_add", [target, indices, source], total, [axis])


def joins(book, name):
    rng = book.rng
    dims, axis = filled(book, 4)
    parts = []
    for _ in range(int(rng.integers(1, 4))):
        part = dims.copy()
        part[axis] = int(rng.integers(0, 4))
        parts.append(array(book, name, part))
    book.case("concat", parts, np.concatenate([part.value for part in parts], axis), [axis])
    same = [array(book, name, dims) for _ in range(int(rng.integers(1, 4)))]
    at = int(rng.integers(-len(dims) - 1, len(dims) + 1))
    book.case("stack", same, np.stack([part.value for part in same], at), [at])


def frames(book, name):
    rng = book.rng
    dims = shape(rng, 0, 4)
    x = array(book, name, dims)
    widths = rng.integers(0, 3, (len(dims), 2)).tolist()
    value = moderate(rng, name, 1)
    padded = np.pad(x.value, widths, constant_values=value[0]) if dims else x.value
    book.case("pad", [x, Operand(value.reshape(()))], padded, [n for pair in widths for n in pair])
    matrix = array(book, name, shape(rng, 2, 4))
    k = int(rng.integers(-3, 4))
    book.case("tril", [matrix], np.tril(matrix.value, k), [k])
    book.case("triu", [matrix], np.triu(matrix.value, k), [k])
    vector, square = array(book, name, shape(rng, 1, 1)), array(book, name, shape(rng, 2, 2))
    book.case("diag", [vector], np.diag(vector.value, k), [k])
    book.case("diag", [square], np.diag(square.value, k), [k])
    classes = int(rng.integers(1, 6))
    labels = place(rng, lambda count: rng.integers(0, classes, count), shape(rng, 0, 3))
    book.case("one_hot", [labels], np.eye(classes, dtype=TYPES[name])[labels.value], [classes])


def orders(book, name):
    rng = book.rng
    dims, axis = filled(book, 4)
    x = array(book, name, dims)
    # NaN goes to the end; that of bf16 NumPy does not know.
    key = x.value.astype(np.float32) if name == "bf16" else x.value
    places = np.argsort(key, axis, kind="stable")
    # Equal zeros stay in their order.
    book.case("sort", [x], np.take_along_axis(x.value, places, axis), [axis], zeros=False)
    book.case("argsort", [x], places.astype(np.int64), [axis])
    k = int(rng.integers(0, dims[axis] + 1))
    y = array(book, name, dims)
    # Of equal ones the first come first, and NaN before all numbers.
    key = -y.value.astype(np.longdouble)
    key = np.where(np.isnan(key), -np.inf, np.where(np.isneginf(key), -LARGEST, key))
    places = np.take(np.argsort(key, axis, kind="stable"), np.arange(k), axis)
    values = np.take_along_axis(y.value, places, axis)
    book.case("topk", [y], [values, places.astype(np.int64)], [k, axis], zeros=False)
