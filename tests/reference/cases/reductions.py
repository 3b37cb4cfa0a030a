"""Reductions, whole and along each axis, and what goes along an axis: sums so far and softmax."""

import numpy as np

from .values import SOME, TYPES, Operand, anything, is_float, long, moderate, narrow, place, shape, wide

# How far a sum of floats may be off, as a part of the sum of what is summed without signs.
ACCURACY = {"f32": 1e-6, "f64": 1e-15, "f16": 1e-3, "bf16": 8e-3}
LARGEST = {"f32": 3.4e38, "f64": 1.7e308, "f16": 6.5e4, "bf16": 3.3e38}


def write(book):
    for name in SOME:
        for x in operands(book, name):
            for axis in [None] + list(range(-x.value.ndim, x.value.ndim, 2 if x.value.ndim > 2 else 1)):
                reduce(book, name, x, axis)
            for axis in range(-1, x.value.ndim):
                if x.value.ndim:
                    cumulate(book, name, x, axis)


def operands(book, name):
    """Views of any strides with and without special values, and a long one."""
    for least in (0, 1, 1, 2, 3):
        yield place(book.rng, lambda count: moderate(book.rng, name, count), shape(book.rng, least))
    for _ in range(2):
        yield place(book.rng, lambda count: anything(book.rng, name, count), shape(book.rng, 1, 3))
    empty = np.zeros([3, 0, 2], TYPES[name])
    yield Operand(empty)
    yield long(book.rng, name)
    base = moderate(book.rng, name, 33)
    yield Operand(base.reshape(33, 1), [["broadcast", [33, 35]], ["permute", [1, 0]]])


def totals(name):
    """The type of a sum: 64-bit for integers and `bool`, and floats in their own."""
    if is_float(TYPES[name]):
        return TYPES[name]
    return np.dtype(np.uint64 if name[0] == "u" else np.int64)


def means(name):
    return TYPES[name] if is_float(TYPES[name]) else np.dtype(np.float64)


def operation(name, axis):
    return name if axis is None else f"{name}_axis"


def bound(name, magnitude):
    """How far a float of this type may be off where terms of this magnitude were added."""
    finite = magnitude[np.isfinite(magnitude.astype(np.float64))]
    return ACCURACY[name] * float(finite.max()) if finite.size else 0.0


@np.errstate(all="ignore")
def reduce(book, name, x, axis):
    value, args = x.value, [] if axis is None else [axis]
    length = value.size if axis is None else value.shape[axis]

    def case(op, result, **bounds):
        book.case(operation(op, axis), [x], result, args, **bounds)

    if length:
        # Of equal zeros either may be the largest.
        case("max", value.max(axis), zeros=False)
        case("min", value.min(axis), zeros=False)
        for op, first in (("argmax", np.argmax), ("argmin", np.argmin)):
            # What is compared are values; that of bf16 knows no NaN.
            case(op, np.asarray(first(wide(value) if name == "bf16" else value, axis), np.int64))
    # Whatever is not zero counts as true, NaN too.
    case("all", (value != 0).all(axis))
    case("any", (value != 0).any(axis))
    if is_float(TYPES[name]):
        of_floats(book, name, x, axis, case)
    else:
        of_integers(name, value, axis, case)


def of_integers(name, value, axis, case):
    # They wrap.
    case("sum", np.sum(value, axis, dtype=totals(name)))
    case("prod", np.prod(value, axis, dtype=totals(name)))
    real = value.astype(np.longdouble)
    case("mean", mean(real, axis).astype(np.float64), ulps=4, slack=bound("f64", np.abs(real)))
    case("norm", np.sqrt(np.sum(real * real, axis)).astype(np.float64), ulps=4)
    spread = variance(real, axis)
    largest = np.max(real * real, initial=0)
    case("var", spread.astype(np.float64), ulps=4, slack=4e-15 * float(largest))
    case("std", np.sqrt(spread).astype(np.float64), ulps=4, slack=4e-8 * float(np.sqrt(largest)))


def of_floats(book, name, x, axis, case):
    dtype, real = TYPES[name], wide(x.value)
    magnitude = np.sum(np.abs(real), axis)
    # A sum whose parts overflow depends on the order in which they are added.
    finite = real[np.isfinite(real)]
    if np.sum(np.abs(finite)) >= LARGEST[name]:
        return
    ulps = 2 if name in ("f32", "f64") else 1
    case("sum", narrow(np.sum(real, axis), dtype), ulps=ulps, slack=bound(name, magnitude))
    length = max(real.size if axis is None else real.shape[axis], 1)
    case("mean", narrow(mean(real, axis), dtype), ulps=ulps, slack=bound(name, magnitude / length))
    case("norm", narrow(np.sqrt(np.sum(real * real, axis)), dtype), ulps=4)
    if np.all(np.abs(finite) < 100):
        # Where a part of the product may overflow, it depends on the order of the factors.
        if np.sum(np.abs(np.log2(np.abs(finite[finite != 0])))) < (1000 if name == "f64" else 120):
            product = narrow(np.prod(real, axis), dtype)
            # Each factor may round the product so far.
            case("prod", product, ulps=length if name in ("f32", "f64") else 1)
        spread = variance(real, axis)
        largest = float(np.max(finite * finite, initial=0))
        case("var", narrow(spread, dtype), ulps=4, slack=4 * ACCURACY[name] * largest)
        case("std", narrow(np.sqrt(spread), dtype), ulps=4, slack=4 * np.sqrt(ACCURACY[name] * 1e-3 * largest))
        case("logsumexp", narrow(logsumexp(real, axis), dtype), ulps=4, slack=4 * ACCURACY[name])


def mean(real, axis):
    length = real.size if axis is None else real.shape[axis]
    return np.sum(real, axis) / real.dtype.type(length)


def variance(real, axis):
    # Contract: divided by n.
    length = real.size if axis is None else real.shape[axis]
    keep = np.sum(real, axis, keepdims=True) / real.dtype.type(length)
    return np.sum((real - keep) ** 2, axis) / real.dtype.type(length)


def logsumexp(real, axis, keepdims=False):
    """Shifted by the largest, so that nothing overflows; of nothing, ln 0."""
    highest = np.max(real, axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(highest), highest, 0)
    total = np.log(np.sum(np.exp(real - shift), axis, keepdims=True)) + shift
    return total if keepdims else np.squeeze(total, axis if axis is not None else tuple(range(real.ndim)))


@np.errstate(all="ignore")
def cumulate(book, name, x, axis):
    value = x.value
    if not is_float(TYPES[name]):
        book.case("cumsum", [x], np.cumsum(value, axis, dtype=totals(name)), [axis])
        return
    real = wide(value)
    finite = real[np.isfinite(real)]
    if np.sum(np.abs(finite)) >= LARGEST[name]:
        return
    slack = bound(name, np.cumsum(np.abs(real), axis))
    book.case("cumsum", [x], narrow(np.cumsum(real, axis), TYPES[name]), [axis], ulps=2, slack=slack)
    shifted = real - logsumexp(real, axis, keepdims=True)
    infinite = np.isposinf(np.max(real, axis, keepdims=True, initial=-np.inf))
    if not infinite.any():
        # The distance from the largest element is rounded, and the exponential makes that relative.
        far = np.abs(shifted[np.isfinite(shifted)]).max(initial=0)
        ulps = 8 + int(far) if name in ("f32", "f64") else 1
        tiny = float(np.finfo(np.float32).tiny) if name != "f64" else 0.0
        book.case("softmax", [x], narrow(np.exp(shifted), TYPES[name]), [axis], ulps=ulps, slack=tiny)
        magnitude = np.abs(real[np.isfinite(real)]).max(initial=1.0)
        book.case("log_softmax", [x], narrow(shifted, TYPES[name]), [axis], ulps=4,
                  slack=2 * ACCURACY[name] * float(magnitude))
