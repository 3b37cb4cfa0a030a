"""Elements, rounding, and arrays that stand in memory in every way that views can bring about."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
# Names as Rust spells them; `Complex<f32>` and `Complex<f64>` as kernels do.
TYPES = {
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16), "bf16": BF16,
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_), "c32": np.dtype(np.complex64), "c64": np.dtype(np.complex128),
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
FLOATS = ["f32", "f64", "f16", "bf16"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
NUMBERS = FLOATS + INTEGERS
ALL = NUMBERS + ["bool"]
# The tests compile a kernel for each operation and type, so a table takes the types that stand for
# the others: every float, the widths and signs of integers in turn, and `bool` where it counts.
# (Operations are declared once for all types.)
SOME_NUMBERS = FLOATS + ["i8", "i32", "u8", "u64"]
SOME = FLOATS + ["i16", "i64", "u16", "u32", "bool"]
# Stored as their bits, which is what the reader knows.
BITS = ["f16", "bf16"]


def is_float(dtype):
    return NAMES[np.dtype(dtype)] in FLOATS


def wide(x):
    """The elements in a type with at least 11 more binary digits."""
    return x.astype(np.longdouble if x.dtype == np.float64 else np.float64)


def narrow(x, dtype):
    """`x`, of a wide type, rounded once to the nearest of `dtype`."""
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        if dtype != BF16:
            return np.asarray(x).astype(dtype)
        # By way of f32 it would be rounded twice, unless the first rounding is to an odd number.
        x = np.asarray(x, np.float64)
        single = x.astype(np.float32)
        back = single.astype(np.float64)
        bits = single.view(np.uint32).copy()
        inexact = np.isfinite(back) & (back != x)
        bits -= (inexact & (np.abs(back) > np.abs(x))).astype(np.uint32)
        bits |= inexact.astype(np.uint32)
        overflow = np.isinf(back) & np.isfinite(x)
        odd = np.where(overflow, single.view(np.uint32), bits).astype(np.uint32).view(np.float32)
        return odd.astype(BF16)


def from_integer(value, dtype):
    """A Python integer rounded once to a float type."""
    sign, value = (-1, -value) if value < 0 else (1, value)
    excess = max(value.bit_length() - 53, 0)
    if excess and NAMES[np.dtype(dtype)] != "f64":
        odd = int(value & ((1 << excess) - 1) != 0)
        value = ((value >> excess) | odd) << excess
    return narrow(np.float64(sign * value), dtype)


def specials(name):
    """Values of a type at which something may go wrong."""
    dtype = TYPES[name]
    if name == "bool":
        return np.array([False, True])
    if name in INTEGERS:
        info = np.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 10, 100, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
        if info.min < 0:
            values += [-1, -2, -3, -7, -10, -100]
        return np.array(values, dtype)
    info = ml_dtypes.finfo(dtype)
    largest, tiny, least = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    values = [
        0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 2.0, 3.0, 0.1, 0.75, 10.0, 100.0, largest, tiny, least, tiny / 2, np.inf, np.pi,
        np.pi / 2, 1 + float(info.eps), 1 - float(info.eps) / 2, 1 / float(info.eps),
    ]
    return narrow(np.array(values + [-x for x in values] + [np.nan]), dtype)


def moderate(rng, name, count, low=-4.0, high=4.0):
    """Random elements that few operations overflow on."""
    dtype = TYPES[name]
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if name in INTEGERS:
        return rng.integers(max(low, -9 if name[0] == "i" else 0), max(high, 9), count, endpoint=True).astype(dtype)
    return narrow(rng.uniform(low, high, count), dtype)


def anything(rng, name, count):
    """Random elements, every eighth of them special."""
    values = moderate(rng, name, count)
    if count:
        odd = specials(name)
        chosen = rng.random(count) < 0.125
        values[chosen] = odd[rng.integers(0, len(odd), count)][chosen]
    return values


class Operand:
    """A base array and the steps that make a view of it."""

    def __init__(self, base, steps=()):
        self.base, self.steps = np.asarray(base), list(steps)

    @property
    def value(self):
        view = self.base
        for step, given in self.steps:
            if step == "permute":
                view = view.transpose(given)
            elif step == "slice":
                view = view[tuple(slice(start, stop, pace) for start, stop, pace in given)]
            elif step == "flip":
                view = np.flip(view, given)
            elif step == "broadcast":
                view = np.broadcast_to(view, given)
        return view


def place(rng, make, shape):
    """A view of `shape` that stands in memory in a random way; `make(count)` makes its elements."""
    rank = len(shape)
    order = rng.permutation(rank).tolist()
    # Elements from one to the next along each axis; 0 for one that is broadcast.
    paces = [int(rng.choice([1, 1, 1, 2, 0] if length else [1, 2])) for length in shape]
    pads = [int(rng.integers(0, 2)) for _ in shape]
    backward = [bool(rng.random() < 0.3) for _ in shape]
    extents = [1 if pace == 0 else length * pace + pad for length, pace, pad in zip(shape, paces, pads)]
    memory = [extents[axis] for axis in order]
    base = make(int(np.prod(memory, dtype=np.int64))).reshape(memory)
    steps = []
    if rank:
        steps.append(["permute", [order.index(axis) for axis in range(rank)]])
        cuts = [[0 if pace == 0 else pad, None, pace or 1] for pace, pad in zip(paces, pads)]
        steps.append(["slice", cuts])
        steps += [["flip", axis] for axis in range(rank) if backward[axis]]
        steps.append(["broadcast", list(shape)])
    operand = Operand(base, steps)
    # What stands plainly in memory is worth a case too.
    return Operand(operand.value.copy()) if rng.random() < 0.25 else operand


def shape(rng, least=0, most=5):
    """A random shape with short axes, now and then one of length 0 or 1."""
    rank = int(rng.integers(least, most, endpoint=True))
    lengths = [1, 2, 2, 3, 3, 4, 5, 6, 7] if rank < 4 else [1, 2, 2, 3]
    dims = [int(rng.choice(lengths)) for _ in range(rank)]
    if rank and rng.random() < 0.12:
        dims[int(rng.integers(rank))] = 0
    return dims


def partial(rng, dims):
    """A shape that broadcasts to `dims`: some axes 1, some leading ones missing."""
    some = [1 if rng.random() < 0.3 else length for length in dims]
    return some[int(rng.integers(0, len(dims) + 1)) :] if rng.random() < 0.5 else some


def long(rng, name, make=moderate):
    """More elements than are worked on at once, of few different ones."""
    base = make(rng, name, 37)
    return Operand(base.reshape(1, 37), [["broadcast", [41, 37]]])
