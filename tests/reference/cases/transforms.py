"""Fourier transforms, of real numbers and of complex ones, whose parts are two arrays."""

import numpy as np

from .values import TYPES, Operand, place

EPSILON = {name: float(np.finfo(TYPES[name]).eps) for name in ("f32", "f64")}
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 30, 59, 64, 121, 128, 509)
SHAPES = ([1, 1], [2, 3], [5, 4], [17, 8], [3, 4, 5], [2, 1, 6], [2, 3, 2, 5], [0, 3], [19, 12], [9, 2, 11])


def write(book):
    for name in ("f32", "f64"):
        for length in LENGTHS:
            along(book, name, [length], 0)
            halves(book, name, [length], 0)
        for shape in SHAPES:
            for axis in range(len(shape)):
                if shape[axis]:
                    # Counted from the end too.
                    axis -= len(shape) * (axis % 2)
                    along(book, name, shape, axis)
                    halves(book, name, shape, axis)
            matrices(book, name, shape)
            shifted(book, name, shape)
        sizes(book, name)
        for n in (1, 2, 5, 8, 9):
            for spacing in (1.0, 0.125, 3.0):
                frequencies(book, name, n, spacing)


def random(book, name, shape):
    dtype = TYPES[name]
    # Of few digits, so that the file is small.
    return place(book.rng, lambda count: (book.rng.integers(-64, 65, count) / 64).astype(dtype), shape)


def complex_of(parts):
    re, im = (np.asarray(part.value, np.float64) for part in parts)
    return re + 1j * im


def case(book, op, name, inputs, output, terms, args):
    """Results may be off by the rounding of so many terms of the largest result's size."""
    largest = float(np.abs(output).max(initial=1e-300))
    slack = 4 * EPSILON[name] * np.log2(terms + 1) * largest
    parts = [output.real, output.imag] if np.iscomplexobj(output) else [output]
    outputs = [np.asarray(part, TYPES[name]) for part in parts]
    book.case(op, inputs, outputs, args, slack=slack, zeros=False)


def along(book, name, shape, axis):
    parts = [random(book, name, shape) for _ in range(2)]
    z = complex_of(parts)
    case(book, "fft", name, parts, np.fft.fft(z, axis=axis), shape[axis], [axis])
    case(book, "ifft", name, parts, np.fft.ifft(z, axis=axis), shape[axis], [axis])


def halves(book, name, shape, axis):
    x = random(book, name, shape)
    wide = np.asarray(x.value, np.float64)
    case(book, "rfft", name, [x], np.fft.rfft(wide, axis=axis), shape[axis], [axis])
    parts = [random(book, name, shape) for _ in range(2)]
    z, width = complex_of(parts), shape[axis]
    # Spectra that are whole, cut, and filled up.
    for length in sorted({max(2 * width - 2, 1), 2 * width + 3} if width > 12 else {1, width, 2 * width, 2 * width + 3}):
        case(book, "irfft", name, parts, np.fft.irfft(z, length, axis=axis), length, [length, axis])


def matrices(book, name, shape):
    if 0 in shape[-2:]:
        return
    parts = [random(book, name, shape) for _ in range(2)]
    z, terms = complex_of(parts), shape[-1] * shape[-2]
    case(book, "fft2", name, parts, np.fft.fft2(z), terms, [])
    case(book, "ifft2", name, parts, np.fft.ifft2(z), terms, [])


def shifted(book, name, shape):
    x = random(book, name, shape)
    for axis in range(-len(shape), len(shape), 2):
        book.case("fftshift", [x], [np.fft.fftshift(x.value, axis)], [axis])
        book.case("ifftshift", [x], [np.fft.ifftshift(x.value, axis)], [axis])


def sizes(book, name):
    """Numbers of any size, and infinities."""
    dtype = TYPES[name]
    big = 2.0 ** (100 if name == "f32" else 1000)
    for scale in (big, 1 / big):
        values = (book.rng.uniform(-1, 1, [2, 12]) * scale).astype(dtype)
        parts = [Operand(part) for part in values]
        z = complex_of(parts)
        case(book, "fft", name, parts, np.fft.fft(z), 12, [0])
        case(book, "ifft", name, parts, np.fft.ifft(z), 12, [0])
    one = [Operand(np.array([np.inf], dtype)), Operand(np.array([2], dtype))]
    book.case("ifft", one, [part.value for part in one], [0])


def frequencies(book, name, n, spacing):
    dtype = TYPES[name]
    like = Operand(np.zeros(1, dtype))
    book.case("fftfreq", [like], [np.fft.fftfreq(n, spacing).astype(dtype)], [n, spacing])
    book.case("rfftfreq", [like], [np.fft.rfftfreq(n, spacing).astype(dtype)], [n, spacing])
