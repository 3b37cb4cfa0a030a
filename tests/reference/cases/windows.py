"""What moves, frames and covers: rolls, differences, margins, windows, pools and convolutions.

Pools and convolutions are PyTorch's, by their formulas.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .values import FLOATS, SOME, SOME_NUMBERS, TYPES, Operand, anything, is_float, moderate, narrow, place, shape, wide

MODES = ["reflect", "edge", "wrap"]
# What a mean of sums in another order may be off by, of elements up to 4.
SLACK = {"f32": 1e-5, "f64": 1e-14, "f16": 1e-5, "bf16": 1e-5}


def write(book):
    for name in SOME:
        for _ in range(5):
            moves(book, name)
            margins(book, name)
            windows(book, name)
            grids(book, name)
    for name in SOME_NUMBERS:
        for _ in range(5):
            differences(book, name)
            pools(book, name)
            convolutions(book, name)
    for name in ("f32", "i32"):
        long_convolutions(book, name)


def array(book, name, dims, make=anything):
    return place(book.rng, lambda count: make(book.rng, name, count), dims)


def filled(book, most=5):
    """A shape of one axis at least, and an axis of it, counted from either end."""
    dims = shape(book.rng, 1, most)
    return dims, int(book.rng.integers(-len(dims), len(dims)))


def moves(book, name):
    rng = book.rng
    dims, axis = filled(book)
    x = array(book, name, dims)
    shift = int(rng.integers(-9, 10))
    book.case("roll", [x], np.roll(x.value, shift, axis), [shift, axis])
    # The length that is left open is written as −1.
    at = int(rng.integers(len(dims)))
    if x.value.size:
        open_shape = dims[:at] + [-1] + dims[at + 1 :] if rng.random() < 0.5 else [-1, dims[at]]
        book.case("infer", [x], x.value.reshape(open_shape), open_shape)


def differences(book, name):
    dims, axis = filled(book)
    x = array(book, name, dims)
    with np.errstate(all="ignore"):
        book.case("diff", [x], np.diff(x.value, axis=axis).astype(TYPES[name]), [axis])


def margins(book, name):
    rng = book.rng
    dims = shape(rng, 0, 4)
    x = array(book, name, dims)
    most = int(rng.choice([3, 3, 12])) if len(dims) < 3 else 3
    for mode, mode_name in enumerate(MODES):
        widths = [[0, 0] if length == 0 else rng.integers(0, most, 2).tolist() for length in dims]
        value = np.pad(x.value, widths, mode=mode_name) if dims else x.value
        book.case("pad_with", [x], value, [mode] + [n for pair in widths for n in pair])


def windows(book, name):
    rng = book.rng
    dims = shape(rng, 0, 4)
    x = array(book, name, dims)
    sizes = [int(rng.integers(0 if rng.random() < 0.1 else min(length, 1), length + 1)) for length in dims]
    sizes = sizes[int(rng.integers(len(sizes) + 1)) :]
    axes = tuple(range(len(dims) - len(sizes), len(dims)))
    value = sliding_window_view(x.value, sizes, axes) if sizes else x.value
    book.case("windows", [x], value, sizes)


def grids(book, name):
    vectors = [array(book, name, shape(book.rng, 1, 1)) for _ in range(int(book.rng.integers(1, 4)))]
    book.case("meshgrid", vectors, np.meshgrid(*(vector.value for vector in vectors), indexing="ij"))
    dims = shape(book.rng)
    x = Operand(anything(book.rng, name, int(np.prod(dims, dtype=np.int64))))
    book.case("from_fn", [x], x.value.reshape(dims), dims)


def pools(book, name):
    rng = book.rng
    # Some windows of more than 16 elements, some along one axis of more than 64.
    spatial, most = ([int(n) for n in rng.integers(1, 9, 2)], 4) if rng.random() < 0.7 else ([9, 70], 70)
    dims = [int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 4, int(rng.integers(1, 3)))] + spatial
    size = [int(rng.integers(1, min(length, most) + 1)) for length in spatial]
    stride = [int(n) for n in rng.integers(1, 4, 2)]
    args = size + stride
    x = array(book, name, dims)
    chosen = over_windows(x.value if name != "bf16" else x.value.astype(np.float32), size, stride)
    book.case("max_pool2d", [x], chosen.max((-2, -1)).astype(TYPES[name]), args, zeros=False)
    if name in FLOATS:
        x = array(book, name, dims, moderate)
        value = over_windows(wide(x.value), size, stride).mean((-2, -1))
        book.case("avg_pool2d", [x], narrow(value, TYPES[name]), args, ulps=1, slack=SLACK[name], zeros=False)


def over_windows(x, size, stride, dilation=(1, 1)):
    """The windows of the last two axes, which come last."""
    extents = [(n - 1) * step + 1 for n, step in zip(size, dilation)]
    view = sliding_window_view(x, extents, (-2, -1))
    return view[..., :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def convolutions(book, name):
    rng = book.rng
    groups = int(rng.choice([1, 1, 2, 3]))
    each, outputs = int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    images = int(rng.choice([0, 1, 1, 2, 3]))
    if rng.random() < 0.1:
        each = 0
    size, stride, dilation = ([int(n) for n in rng.integers(1, high, 2)] for high in (4, 4, 3))
    padding = [int(n) for n in rng.integers(0, 3, 2)]
    if rng.random() < 0.3:
        size, stride, padding = [1, 1], [1, 1], [0, 0]
    least = [max((n - 1) * step + 1 - 2 * pad, 1) for n, step, pad in zip(size, dilation, padding)]
    spatial = [low + int(rng.integers(0, 5)) for low in least]
    make = exact if rng.random() < 0.8 or not is_float(TYPES[name]) else undefined
    x = array(book, name, [images, groups * each] + spatial, make)
    kernel = array(book, name, [outputs, each] + size, exact)
    convolution(book, x, kernel, stride, padding, dilation, groups)
    # Along one axis, of which the second entries are.
    x = array(book, name, [images, groups * each, spatial[1]], make)
    kernel = array(book, name, [outputs, each, size[1]], exact)
    convolution(book, x, kernel, stride, padding, dilation, groups)


def long_convolutions(book, name):
    """More than is copied at once: rows of an image, and images; of few different elements."""
    for dims, padding in (([2, 16, 48, 48], [1, 1]), ([11, 8, 22, 22], [0, 0])):
        x = Operand(exact(book.rng, name, dims[1] * dims[3]).reshape(1, dims[1], 1, dims[3]), [["broadcast", dims]])
        kernel = array(book, name, [2, dims[1], 3, 3], exact)
        convolution(book, x, kernel, [1, 1], padding, [1, 1], 1)


def convolution(book, x, kernel, stride, padding, dilation, groups):
    dtype, one_axis = x.value.dtype, x.value.ndim == 3
    a, b = (wide(x.value), wide(kernel.value)) if is_float(dtype) else (x.value, kernel.value)
    steps = stride, padding, dilation
    if one_axis:
        a, b = a[:, :, None], b[:, :, None]
        steps = [1, stride[1]], [0, padding[1]], [1, dilation[1]]
    value = convolved(a, b, *steps, groups)
    if one_axis:
        value = value[:, :, 0]
    op = "conv1d" if one_axis else "conv2d"
    value = narrow(value, dtype) if is_float(dtype) else value.astype(dtype)
    book.case(op, [x, kernel], value, stride + padding + dilation + [groups], zeros=False)


@np.errstate(all="ignore")
def convolved(x, kernel, stride, padding, dilation, groups):
    padded = np.pad(x, [(0, 0), (0, 0)] + [(pad, pad) for pad in padding])
    covered = over_windows(padded, kernel.shape[2:], stride, dilation)
    parts = zip(np.split(covered, groups, 1), np.split(kernel, groups, 0))
    return np.concatenate([np.einsum("nchwij,ocij->nohw", part, own) for part, own in parts], 1)


def exact(rng, name, count):
    """Small whole numbers, whose sums of products every order of addition gives."""
    return np.asarray(np.floor(moderate(rng, name, count).astype(np.float64)), TYPES[name])


def undefined(rng, name, count):
    """The same, some of them infinite or NaN."""
    values = exact(rng, name, count)
    odd = np.array([np.inf, -np.inf, np.nan], TYPES[name])
    chosen = rng.random(count) < 0.125
    values[chosen] = odd[rng.integers(0, 3, count)][chosen]
    return values
