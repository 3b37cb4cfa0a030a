"""Masks, places, counts, order statistics, running products and the operations on bits."""

import numpy as np

from .values import (FLOATS, SOME, TYPES, Operand, anything, is_float, long, moderate, narrow, partial, place, shape,
                     specials)

# Types for which integers are tried, as the table has them.
INTEGERS = ["i8", "i64", "u16", "u32"]


def write(book):
    for name in SOME:
        for _ in range(6):
            masks(book, name)
            scatters(book, name)
            searches(book, name)
        running(book, name)
        uniques(book, name)
    long_flags(book)
    for name in ("i8", "i64", "u16", "bool"):
        for a, b in pairs(book, name):
            book.case("xor", [a, b], a.value ^ b.value)
    for name in INTEGERS:
        shifts(book, name)
        for _ in range(4):
            counts(book, name)
    for name in ("i8", "i32", "u8", "u64"):
        powers(book, name)
    for name in FLOATS:
        for _ in range(12):
            quantiles(book, name)
            histograms(book, name)


def array(book, name, dims, make=anything):
    return place(book.rng, lambda count: make(book.rng, name, count), dims)


def pairs(book, name, make=anything):
    """Every special value with every other, two views that broadcast, and long ones."""
    values = specials(name)
    yield Operand(values.reshape(-1, 1)), Operand(values)
    dims = shape(book.rng)
    yield tuple(array(book, name, partial(book.rng, dims), make) for _ in range(2))
    yield long(book.rng, name), long(book.rng, name)


def flags(book, dims, part=0.5):
    return place(book.rng, lambda count: book.rng.random(count) < part, dims)


def masks(book, name):
    rng = book.rng
    dims = shape(rng, 0, 4)
    part = float(rng.choice([0.1, 0.5, 0.9, 1.0]))
    x = array(book, name, dims)
    # Zeros are rare among random elements.
    zeroed = place(rng, lambda count: np.where(rng.random(count) < part, anything(rng, name, count), TYPES[name].type(0)),
                   dims)
    book.case("nonzero", [zeroed], np.argwhere(zeroed.value).astype(np.int64))
    mask = flags(book, dims[: int(rng.integers(0, len(dims), endpoint=True))], part)
    book.case("select_by", [x, mask], x.value[mask.value])
    whole = flags(book, dims, part)
    book.case("select_by", [x, whole], x.value[whole.value])
    mask, values = flags(book, partial(rng, dims), part), array(book, name, partial(rng, dims))
    result = np.where(mask.value, values.value, x.value)
    book.case("masked_assign", [x, mask, values], result)


def long_flags(book):
    """More than are counted together, in runs of all lengths."""
    rng = book.rng
    runs = rng.integers(1, 700, 300)
    value = np.repeat(np.arange(300) % 6 == 1, runs)
    value[rng.integers(0, len(value), 50)] ^= True
    mask = Operand(value)
    x = Operand((np.arange(251) % 251).astype(np.uint16).reshape(1, -1), [["broadcast", [300, 251]]])
    mask.base = np.resize(mask.base, (300, 251))
    book.case("nonzero", [mask], np.argwhere(mask.value).astype(np.int64))
    book.case("select_by", [x, mask], x.value[mask.value])


def scatters(book, name):
    rng = book.rng
    dims = shape(rng, 1, 3)
    axis = int(rng.integers(-len(dims), len(dims)))
    if not dims[axis]:
        return
    target = array(book, name, dims)
    other = dims.copy()
    other[axis] = int(rng.integers(0, 7))
    # Some broadcast.
    few = [1 if at != axis % len(dims) and rng.random() < 0.2 else length for at, length in enumerate(other)]
    indices = place(rng, lambda count: rng.integers(-dims[axis], dims[axis], count), few)
    source = array(book, name, partial(rng, other))
    result = target.value.copy()
    every = np.broadcast_to(indices.value, other)
    values = np.broadcast_to(source.value, other)
    # In row-major order, so the last of those for one place stays.
    for at in np.ndindex(*other):
        place_at = list(at)
        place_at[axis] = int(every[at])
        result[tuple(place_at)] = values[at]
    book.case("scatter", [target, indices, source], result, [axis])


def sortable(x):
    """What NumPy orders as we do; it does not know the NaN of bf16."""
    return x.astype(np.float32) if x.dtype == TYPES["bf16"] else x


def in_order(x):
    return x[np.argsort(sortable(x), kind="stable")]


def searches(book, name):
    rng = book.rng
    length = int(rng.integers(0, 40))
    values = in_order(anything(rng, name, length))
    if rng.random() < 0.5:
        kept = Operand(np.repeat(values, 2)[::-1].copy(), [["slice", [[0, None, 2]]], ["flip", 0]])
    else:
        kept = Operand(values)
    wanted = array(book, name, shape(rng, 0, 3))
    places = np.searchsorted(sortable(kept.value), sortable(wanted.value)).astype(np.int64)
    book.case("searchsorted", [kept, wanted], places)


def uniques(book, name):
    for x in (array(book, name, shape(book.rng)), Operand(specials(name)), long(book.rng, name)):
        flat = in_order(x.value.reshape(-1))
        key = sortable(flat)
        same = (key[1:] == key[:-1]) | (np.isnan(key[1:]) & np.isnan(key[:-1])) if is_float(flat.dtype) else (
            key[1:] == key[:-1])
        value = flat[np.concatenate([[True], ~same])[: len(flat)]]
        if name != "bf16":
            assert np.array_equal(value, np.unique(x.value), equal_nan=is_float(flat.dtype))
        book.case("unique", [x], value, zeros=False)


@np.errstate(all="ignore")
def running(book, name):
    dtype = TYPES[name]
    wide = np.float64 if is_float(dtype) else np.uint64 if name[0] == "u" else np.int64
    result = dtype if is_float(dtype) else wide
    for _ in range(4):
        dims = shape(book.rng, 1, 4)
        axis = int(book.rng.integers(-len(dims), len(dims)))
        x = array(book, name, dims)
        # Contract: of floats it is computed in f64.
        value = np.cumprod(x.value.astype(wide), axis, dtype=wide)
        value = narrow(value, result) if is_float(dtype) else value
        book.case("cumprod", [x], value, [axis], ulps=1 if is_float(dtype) else 0)
    x = long(book.rng, name, lambda rng, name, count: moderate(rng, name, count, 0.9, 1.1))
    value = np.cumprod(x.value.astype(wide), 0, dtype=wide)
    value = narrow(value, result) if is_float(dtype) else value
    book.case("cumprod", [x], value, [0], ulps=1 if is_float(dtype) else 0)


@np.errstate(all="ignore")
def shifts(book, name):
    info = np.iinfo(TYPES[name])

    def places(rng, name, count):
        values = rng.integers(0, info.bits + 3, count)
        odd = rng.random(count) < 0.1
        return np.where(odd, info.min if info.min else info.max, values).astype(TYPES[name])

    dims = shape(book.rng)
    cases = [(Operand(specials(name).reshape(-1, 1)), Operand(places(book.rng, name, 40))),
             (array(book, name, partial(book.rng, dims)), array(book, name, partial(book.rng, dims), places)),
             (long(book.rng, name), long(book.rng, name, places))]
    for x, by in cases:
        book.case("shl", [x, by], np.left_shift(x.value, by.value))
        book.case("shr", [x, by], np.right_shift(x.value, by.value))
    small = lambda rng, name, count: rng.integers(0, 9, count).astype(TYPES[name])
    for x, _ in cases:
        exponent = array(book, name, x.value.shape, small)
        book.case("pow", [x, exponent], np.power(x.value, exponent.value))
    if info.min:
        x, exponent = Operand(specials(name).reshape(-1, 1)), Operand(np.array([-1, -2, -3, info.min], TYPES[name]))
        book.case("pow", [x, exponent], inverse(x.value, exponent.value))


def inverse(x, exponent):
    """Contract: the whole part of a power with a negative exponent, which NumPy refuses."""
    odd = exponent.astype(np.int64) % 2 != 0
    unit = np.where(odd, x, 1).astype(x.dtype)
    signed = np.iinfo(x.dtype).min < 0
    is_unit = (x == 1) | (x == -1) if signed else x == 1
    return np.where(is_unit, unit, 0).astype(x.dtype)


@np.errstate(all="ignore")
def powers(book, name):
    dtype = TYPES[name]
    for x in (Operand(specials(name)), array(book, name, shape(book.rng)), long(book.rng, name)):
        for exponent in (0, 1, 2, 3, 7, 31):
            value = np.ones_like(x.value)
            for _ in range(exponent):
                value = value * x.value
            book.case("powi", [x], value, [exponent])
        for exponent in (-1, -2):
            book.case("powi", [x], inverse(x.value, np.array(exponent)), [exponent])


def counts(book, name):
    length = int(book.rng.integers(1, 9))
    x = place(book.rng, lambda count: book.rng.integers(0, length, count).astype(TYPES[name]), shape(book.rng))
    value = np.bincount(x.value.reshape(-1).astype(np.int64), minlength=length).astype(np.int64)
    book.case("bincount", [x], value, [length])


@np.errstate(all="ignore")
def quantiles(book, name):
    rng = book.rng
    dims = shape(rng, 1, 3)
    axis = int(rng.integers(-len(dims), len(dims)))
    if not dims[axis]:
        return
    x = array(book, name, dims, anything if rng.random() < 0.3 else moderate)
    wide = x.value.astype(np.float64)
    book.case("median", [x], narrow(np.median(wide, axis), TYPES[name]), [axis], zeros=False)
    q = float(rng.choice([0.0, 1.0, 0.5, 0.25, int(rng.integers(1, 1024)) / 1024]))
    # What JSON says in few digits. Contract: interpolated in f64, and between two equal infinities there is one.
    book.case("quantile", [x], narrow(quantile(wide, q, axis), TYPES[name]), [q, axis], zeros=False)


def quantile(x, q, axis):
    value = np.quantile(x, q, axis)
    order = np.sort(x, axis)
    at = q * (x.shape[axis] - 1)
    low, high = (np.take(order, int(f(at)), axis) for f in (np.floor, np.ceil))
    has_nan = np.isnan(x).any(axis)
    return np.where(~has_nan & (low == high), low, value)


@np.errstate(all="ignore")
def histograms(book, name):
    rng = book.rng
    dims = shape(rng)
    x = array(book, name, dims, moderate)
    if rng.random() < 0.2:
        x = Operand(np.full(dims, moderate(rng, name, 1)[0]))
    bins = int(rng.integers(1, 12))
    dtype = TYPES[name]
    # Contract: the edges of a narrow type are computed in `f32`, and rounded once.
    wide = np.dtype(np.float64 if name == "f64" else np.float32)
    flat = x.value.reshape(-1)
    low, high = (flat.min(), flat.max()) if flat.size else (0, 1)
    low, high = wide.type(low), wide.type(high)
    if low == high:
        low, high = low - wide.type(0.5), high + wide.type(0.5)
    step = (high - low) / wide.type(bins)
    edges = np.append(np.arange(bins).astype(wide) * step + low, high).astype(dtype)
    if not flat.size:
        edges = narrow(np.linspace(0, 1, bins + 1), dtype)
    if not (edges[:-1] < edges[1:]).all():
        return
    places = np.searchsorted(edges[1:-1].astype(np.float64), flat.astype(np.float64), side="right")
    value = np.bincount(places, minlength=bins).astype(np.int64)
    if name in ("f32", "f64"):
        counts, other = np.histogram(flat, bins)
        assert np.array_equal(counts, value) and np.array_equal(edges, other), (name, bins)
    book.case("histogram", [x], [value, edges], [bins])
