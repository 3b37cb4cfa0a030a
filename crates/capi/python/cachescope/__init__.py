"""Named caches under the memory of NumPy arrays.

A loop over arrays of megabytes spends much of its time on page faults, because the memory of every
temporary is mapped, zeroed and unmapped. Inside a scope that memory is recycled::

    import cachescope

    for step in range(100):
        with cachescope.scope("step"):
            y = np.sin(a * b + c)
    print(cachescope.stats("step").hits)
"""

from __future__ import annotations

import dataclasses
import operator
import os
import threading
from types import TracebackType
from typing import List, Optional, Type, Union

from . import _library, _scope
from ._library import check, lib
from ._scope import scope
from ._version import __version__

__all__ = [
    "Stats",
    "__version__",
    "invalidate",
    "library",
    "memory_limit",
    "record",
    "report",
    "scope",
    "stats",
]


@dataclasses.dataclass(frozen=True)
class Stats:
    """The counters of a cache, over all its threads. Bytes of live blocks include 64 a block.
    Requests below 1 KiB are not counted."""

    #: Outermost entries.
    entries: int
    #: Requests that the cache served.
    hits: int
    #: Other requests.
    misses: int
    #: Blocks that are not freed.
    live_blocks: int
    #: Bytes that the live blocks had when they were allocated.
    live_bytes: int
    #: Idle blocks.
    cached_blocks: int
    #: Bytes of the idle blocks.
    cached_bytes: int
    #: Live blocks of entries that have ended.
    escaped_blocks: int
    #: The highest ``live_bytes`` of each device, added.
    peak_live_bytes: int


def stats(name: str) -> Stats:
    """Returns the counters of the cache ``name``.

    Raises ``KeyError`` if no scope had this name.
    """
    counters = _library.statistics(_scope.caches[name])
    return Stats(**{field.name: getattr(counters, field.name) for field in dataclasses.fields(Stats)})


def invalidate(name: str) -> int:
    """Releases the idle memory of the cache ``name`` to the system, and what other caches released to
    the pool. Returns the bytes that were idle in the cache; 0 for an unknown name.

    Live arrays stay valid. Their memory returns to the pool when they are freed, and to the system
    at the next call of this function.
    """
    cache = _scope.caches.get(name)
    if cache is None:
        return 0
    before: int = _library.statistics(cache).cached_bytes
    check(lib.cs_invalidate(name.encode()))
    after: int = _library.statistics(cache).cached_bytes
    return max(0, before - after)


def report() -> str:
    """Returns a table of the counters of every cache, in the order of their names."""
    rows = [["scope", "entries", "hits", "misses", "live MiB", "idle MiB", "escaped", "peak MiB"]]
    for name in sorted(_scope.caches):
        now = stats(name)
        mib = [f"{value / 2**20:.1f}" for value in (now.live_bytes, now.cached_bytes, now.peak_live_bytes)]
        counts = [str(now.entries), str(now.hits), str(now.misses)]
        rows.append([name, *counts, mib[0], mib[1], str(now.escaped_blocks), mib[2]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    )
    return "\n".join(lines)


class record:
    """Records every cached block of the process, and writes a report at the end.

    The ending of ``path`` selects the report: ``.html``, a page that any browser opens; ``.json``
    for Perfetto; ``.pickle`` for PyTorch's memory viewer; ``.dhat``, ``.folded``, ``.svg`` or
    ``.txt``. The report is also written if an exception ends the block.

    Raises ``ValueError`` for another ending, ``RuntimeError`` inside another recording, ``OSError``
    if the report cannot be written.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        name = os.fsdecode(path)
        if "\0" in name:
            raise ValueError(f"record: the path {name!r} has a null character")
        self.path = os.path.abspath(name)

    def __enter__(self) -> "record":
        check(lib.cs_record(os.fsencode(self.path)))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        check(lib.cs_record_end())


class memory_limit:
    """Limits the memory that all caches of the process reserve together, inside the block.

    A request beyond the limit first releases all idle memory, and then raises ``MemoryError``.
    Limits nest: the one that was entered last holds.

    Raises ``ValueError`` for a limit below 1.
    """

    _lock = threading.Lock()
    _entered: List["memory_limit"] = []

    def __init__(self, bytes: int) -> None:
        self.bytes = operator.index(bytes)
        if not 1 <= self.bytes < 1 << 64:
            raise ValueError(f"memory_limit: the limit is {self.bytes}, expected at least 1")

    def __enter__(self) -> "memory_limit":
        with self._lock:
            check(lib.cs_memory_limit(self.bytes))
            self._entered.append(self)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        with self._lock:
            last = max((at for at, own in enumerate(self._entered) if own is self), default=None)
            if last is None:
                raise RuntimeError("memory_limit: the limit is left, but was not entered")
            del self._entered[last]
            check(lib.cs_memory_limit(self._entered[-1].bytes if self._entered else 0))


def library() -> str:
    """Returns the path of the C library, for ``torch.cuda.memory.CUDAPluggableAllocator``."""
    return str(_library.library_path())
