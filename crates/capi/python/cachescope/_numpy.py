"""The handlers of NumPy's data memory (NEP 49), by ctypes and NumPy's table of C functions.

NumPy stores the current handler in a context variable, and with each array the handler that made
its memory. So a handler, and the functions and the cache that it names, live as long as the process.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, Callable, Optional

from ._library import address_of

_FEATURE_VERSION = 211
_SET_HANDLER = 304
#: The feature version of NumPy 1.22, the first with handlers.
_LEAST_FEATURES = 0xF

_python = ctypes.pythonapi
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
_python.PyMem_RawMalloc.restype = ctypes.c_void_p
_python.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler``, version 1."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


def _forever(content: bytes) -> int:
    """Returns the address of a copy that is never freed: arrays may be freed after Python's end."""
    copy: Optional[int] = _python.PyMem_RawMalloc(len(content))
    if not copy:
        raise MemoryError
    ctypes.memmove(copy, content, len(content))
    return copy


@functools.lru_cache(maxsize=None)
def _capsule_name() -> int:
    return _forever(b"mem_handler\0")


@functools.lru_cache(maxsize=None)
def _table() -> Any:
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:
        module = importlib.import_module("numpy.core._multiarray_umath")  # NumPy 1
    address = _python.PyCapsule_GetPointer(module._ARRAY_API, None)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def _features() -> int:
    version: int = ctypes.CFUNCTYPE(ctypes.c_uint)(_table()[_FEATURE_VERSION])()
    return version


def check_features(features: int) -> None:
    """Raises ``ImportError`` for a NumPy without handlers."""
    if features < _LEAST_FEATURES:
        import numpy

        raise ImportError(
            f"cachescope: NumPy {numpy.__version__} cannot replace the memory of its arrays, "
            "which needs NumPy 1.22 or later"
        )


def setter() -> Callable[[Any], Any]:
    """Returns the function that makes a handler current in this context, and returns the previous
    one.

    Raises ``ImportError`` for a NumPy without handlers.
    """
    check_features(_features())
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table()[_SET_HANDLER])


def new_handler(cache: int) -> Any:
    """Returns a handler whose memory is of ``cache``."""
    content = _Handler(
        name=b"cachescope",
        version=1,
        context=cache,
        malloc=address_of("cs_malloc"),
        calloc=address_of("cs_calloc"),
        realloc=address_of("cs_realloc"),
        free=address_of("cs_free"),
    )
    return _python.PyCapsule_New(_forever(bytes(content)), _capsule_name(), None)
