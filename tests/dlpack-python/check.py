"""Exchanges arrays between cachescope and NumPy, PyTorch and JAX, without a copy.

    python3 check.py libdlpack_python.so

A library that is not installed is skipped, and the output says so.
"""

import ctypes
import gc
import sys
import threading

import numpy as np

LIBRARY = ctypes.CDLL(sys.argv[1])
POINTER = ctypes.c_void_p


def declare(name, result, *arguments):
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = result, arguments
    return function


message = declare("message", ctypes.c_char_p)
create = declare("create", POINTER, ctypes.c_char_p, ctypes.c_char_p)
take = declare("take", POINTER, POINTER, ctypes.c_bool, ctypes.c_char_p)
give = declare("give", POINTER, POINTER, ctypes.c_bool)
hand_over = declare("hand_over", POINTER, POINTER)
fill = declare("fill", ctypes.c_bool, POINTER, ctypes.c_double)
address = declare("address", ctypes.c_uint64, POINTER)
release = declare("release", None, POINTER)
settle = declare("settle", ctypes.c_uint64)

capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
capsule_rename = ctypes.pythonapi.PyCapsule_SetName
capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]

# A capsule does not copy its name.
VERSIONED, LEGACY = b"dltensor_versioned", b"dltensor"
USED = {VERSIONED: b"used_dltensor_versioned", LEGACY: b"used_dltensor"}

VIEWS = ["whole", "transposed", "flipped", "sliced", "broadcast", "scalar", "empty"]
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
          "complex64", "complex128"]


class Failure(Exception):
    """An error of cachescope."""


def checked(result):
    if not result:
        raise Failure(message().decode())
    return result


class Array:
    """An array of cachescope."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        if self.handle:
            release(self.handle)

    @property
    def address(self):
        return address(self.handle)

    def fill(self, value):
        checked(fill(self.handle, value))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        name = VERSIONED if max_version and max_version[0] >= 1 else LEGACY
        return capsule_new(checked(give(self.handle, name == VERSIONED)), name, None)


class Writable(Array):
    """An array that its first consumer takes."""

    def __dlpack__(self, *, max_version, **_):
        handle, self.handle = self.handle, None
        return capsule_new(checked(hand_over(handle)), VERSIONED, None)


class OldArray(Array):
    """An array of a library before DLPack 1.0."""

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__()


def made(dtype, view, kind=Array):
    return kind(checked(create(dtype.encode(), view.encode())))


def taken(source, dtype, versions={"max_version": (1, 1)}):
    capsule = source.__dlpack__(**versions)
    name = capsule_name(capsule)
    tensor = capsule_pointer(capsule, name)
    capsule_rename(capsule, USED[bytes(name)])
    return Array(checked(take(tensor, bytes(name) == VERSIONED, dtype.encode())))


def expected(dtype, view):
    whole = np.arange(24).reshape(2, 3, 4).astype(dtype)
    return {
        "whole": whole,
        "transposed": whole.T,
        "flipped": whole[:, ::-1],
        "sliced": whole[1, :, 1::2],
        "broadcast": np.broadcast_to(whole, (2, 2, 3, 4)),
        "scalar": whole[1, 2, 3, ...],
        "empty": whole[:, 3:],
    }[view]


def pointer(array):
    return array.__array_interface__["data"][0]


def same(left, right):
    assert left.dtype == right.dtype and left.shape == right.shape, (left, right)
    np.testing.assert_array_equal(left, right)


def refused(part, source, dtype):
    count = sys.getrefcount(source)
    try:
        taken(source, dtype)
    except Failure as failure:
        assert part in str(failure), failure
    else:
        raise AssertionError(f"not refused: {part}")
    assert sys.getrefcount(source) == count


def numpy_reads_every_view():
    for dtype in DTYPES:
        for view in VIEWS:
            for kind in (Array, OldArray):
                array = made(dtype, view, kind)
                here = np.from_dlpack(array)
                same(here, expected(dtype, view))
                assert not here.size or not here.flags.writeable
                if here.size:
                    assert pointer(here) == array.address
                    used = [step for length, step in zip(here.shape, here.strides) if length > 1]
                    there = expected(dtype, view)
                    assert used == [step for length, step in zip(there.shape, there.strides) if length > 1]
                del array
                settle()
                same(here, expected(dtype, view))
    del here
    assert settle() == 0


def numpy_writes_what_it_alone_has():
    whole = np.from_dlpack(made("float32", "whole", Writable))
    whole[...] = 7
    again = taken(whole, "float32")
    same(np.from_dlpack(again), np.full((2, 3, 4), 7, np.float32))
    del again, whole
    assert settle() == 0


def views_of_numpy(dtype):
    whole = np.arange(24).reshape(2, 3, 4).astype(dtype)
    return [whole, whole.T, whole[::-1, ::2, ::-3], whole[1, 1:2], whole[..., 0], whole[:, 3:], whole[1, 2, 3, ...],
            np.asfortranarray(whole), whole[0, 0, :0], np.broadcast_to(whole[0], (5, 3, 4))]


def cachescope_reads_every_view():
    for dtype in DTYPES:
        for view in views_of_numpy(dtype):
            before = view.copy()
            count = sys.getrefcount(view)
            array = taken(view, dtype)
            assert not view.size or array.address == pointer(view)
            again = np.from_dlpack(array)
            same(again, view)
            assert not view.size or pointer(again) == pointer(view)
            assert sys.getrefcount(view) == count + 1
            del array, again
            settle()
            assert sys.getrefcount(view) == count
            same(view, before)


def a_write_reaches_writable_memory_alone():
    source = np.arange(6.0)
    array = taken(source[::2], "float64", {})
    array.fill(7)
    same(source, np.arange(6.0))
    array = taken(source[::2], "float64")
    array.fill(7)
    same(source, np.array([7.0, 1, 7, 3, 7, 5]))
    source = np.arange(6.0)
    source.flags.writeable = False
    array = taken(source, "float64")
    array.fill(7)
    same(source, np.arange(6.0))
    same(np.from_dlpack(array), np.full(6, 7.0))
    assert settle() > 0
    del array
    settle()
    assert sys.getrefcount(source) == 2


def mistakes_release_the_tensor():
    refused("int64", np.arange(3), "float32")
    odd = np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64)
    refused("not aligned to 8 bytes", odd, "float64")
    refused("complex64", np.zeros(3, np.complex64), "complex128")
    refused("rank 9", np.zeros([1] * 9), "float64")
    assert settle() == 0


def threads_share_arrays():
    source = np.arange(1000.0)
    count = sys.getrefcount(source)
    failures = []

    def work():
        try:
            for _ in range(200):
                array = taken(source, "float64")
                same(np.from_dlpack(array), source)
                kept.append(array)
                if len(kept) > 8:
                    kept.pop(0)
                settle()
        except BaseException as failure:
            failures.append(failure)

    kept = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    kept.clear()
    settle()
    assert sys.getrefcount(source) == count


def torch_exchanges():
    import torch

    for dtype in ["bfloat16", "float32", "float64", "int64", "uint8", "bool", "complex64"]:
        for view in VIEWS:
            if view == "flipped":
                continue  # PyTorch has no negative strides.
            array = made(dtype, view)
            here = torch.from_dlpack(array)
            assert here.dtype == getattr(torch, dtype) and (not here.numel() or here.data_ptr() == array.address)
            if dtype != "bfloat16":
                same(here.numpy(), expected(dtype, view))
    tensor = torch.arange(12.0).reshape(3, 4)
    part = tensor.t()[1:]
    array = taken(part, "float32", {})
    assert array.address == part.data_ptr()
    same(np.from_dlpack(array), part.numpy())
    array.fill(5)
    assert tensor.flatten().tolist() == list(range(12))
    del array, here
    gc.collect()
    assert settle() == 0


def jax_exchanges():
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    for dtype in ["bfloat16", "float16", "float32", "float64", "int8", "int64", "uint32", "bool", "complex64"]:
        array = made(dtype, "whole")
        here = jax.numpy.from_dlpack(array)
        assert here.dtype == dtype and here.unsafe_buffer_pointer() == array.address
        same(np.asarray(here), expected(here.dtype, "whole"))
    source = jax.numpy.arange(6.0)
    array = taken(source, "float64")
    assert array.address == source.unsafe_buffer_pointer()
    same(np.from_dlpack(array), np.arange(6.0))
    array.fill(7)
    same(np.asarray(source), np.arange(6.0))
    del array, here, source
    gc.collect()
    assert settle() == 0


def main():
    tests = [numpy_reads_every_view, numpy_writes_what_it_alone_has, cachescope_reads_every_view,
             a_write_reaches_writable_memory_alone, mistakes_release_the_tensor, threads_share_arrays]
    for test in tests:
        test()
        print(f"NumPy {np.__version__}: {test.__name__} ok")
    for name, test in [("torch", torch_exchanges), ("jax", jax_exchanges)]:
        try:
            __import__(name)
        except ImportError:
            print(f"skipped: {name} is not installed")
            continue
        test()
        print(f"{test.__name__} ok")


main()
