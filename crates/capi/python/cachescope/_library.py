"""The C library, by ctypes: its functions, their errors, and the check of its version."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Optional

from ._version import __version__

_OK, _ARGUMENT, _MEMORY, _STATE, _IO = 0, -1, -2, -3, -4


class Options(ctypes.Structure):
    """``cs_options``."""

    _fields_ = [("policy", ctypes.c_char_p), ("max_bytes", ctypes.c_uint64)]


class Statistics(ctypes.Structure):
    """``cs_statistics``."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "entries",
            "hits",
            "misses",
            "live_blocks",
            "live_bytes",
            "cached_blocks",
            "cached_bytes",
            "escaped_blocks",
            "peak_live_bytes",
        )
    ]


_SIGNATURES = {
    "cs_cache_open": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.POINTER(Options)]),
    "cs_enter": (ctypes.c_int, [ctypes.c_void_p]),
    "cs_exit": (ctypes.c_int, [ctypes.c_void_p]),
    "cs_memory_limit": (ctypes.c_int, [ctypes.c_uint64]),
    "cs_stats": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(Statistics)]),
    "cs_invalidate": (ctypes.c_int, [ctypes.c_char_p]),
    "cs_record": (ctypes.c_int, [ctypes.c_char_p]),
    "cs_record_end": (ctypes.c_int, []),
    "cs_last_error": (ctypes.c_char_p, []),
    "cs_version": (ctypes.c_char_p, []),
}


#: The functions that may wait or write a file: they release the interpreter's lock.
_WAITING = ("cs_record_end", "cs_invalidate", "cs_memory_limit", "cs_stats")


def library_path() -> Path:
    """Returns the file of the library: that of the wheel, or that of ``CACHESCOPE_LIBRARY``."""
    chosen = os.environ.get("CACHESCOPE_LIBRARY")
    if chosen:
        return Path(chosen)
    ending = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    return Path(__file__).with_name(f"libcachescope_capi.{ending}")


def load(path: Path, expected_version: str = __version__) -> ctypes.PyDLL:
    """Loads the library at ``path``.

    Raises ``ImportError`` if there is none, or if it is of another version than this package.
    """
    try:
        # Other calls keep the interpreter's lock: each takes less time than to release it.
        loaded, waiting = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
        version = loaded.cs_version
    except (OSError, AttributeError) as error:
        raise ImportError(f"cachescope: {path} is not the library of this package: {error}") from error
    version.restype = ctypes.c_char_p
    found = version().decode()
    if found != expected_version:
        raise ImportError(
            f"cachescope: {path} has version {found}, the Python package has {expected_version}: "
            "install both from one wheel"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(waiting if name in _WAITING else loaded, name)
        function.restype, function.argtypes = result, arguments
        setattr(loaded, name, function)
    return loaded


lib = load(library_path())


def _text() -> str:
    text: bytes = lib.cs_last_error()
    return text.decode(errors="replace")


def check(code: int) -> None:
    """Raises the exception of an error code."""
    if code != _OK:
        kinds = {_ARGUMENT: ValueError, _MEMORY: MemoryError, _STATE: RuntimeError, _IO: OSError}
        raise kinds.get(code, RuntimeError)(_text())


def open_cache(name: str, policy: Optional[str] = None, max_bytes: Optional[int] = None) -> int:
    """Returns the address of the cache ``name``, and sets its options as far as given. Raises
    ``ValueError`` for an unknown policy."""
    options = None
    if policy is not None or max_bytes is not None:
        options = ctypes.byref(Options(None if policy is None else policy.encode(), max_bytes or 0))
    cache: Optional[int] = lib.cs_cache_open(name.encode(), options)
    if not cache:
        raise ValueError(_text())
    return cache


def statistics(cache: int) -> Statistics:
    """Returns the counters of a cache."""
    counters = Statistics()
    check(lib.cs_stats(cache, ctypes.byref(counters)))
    return counters


def address_of(name: str) -> int:
    """Returns the address of a function of the library."""
    return ctypes.cast(getattr(lib, name), ctypes.c_void_p).value or 0
