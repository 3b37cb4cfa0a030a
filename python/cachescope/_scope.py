"""Scopes: a cache under the NumPy arrays that a context makes."""

from __future__ import annotations

import functools
import inspect
import operator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from . import _library
from ._library import check, lib

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Entry:
    """An entered scope of one context."""

    __slots__ = ("scope", "cache", "handler", "token")

    def __init__(self, entered: "scope", cache: int, handler: Any) -> None:
        self.scope = entered
        self.cache = cache
        self.handler = handler
        self.token: Optional[Token[Optional[_Entry]]] = None


_current: ContextVar[Optional[_Entry]] = ContextVar("cachescope.scope", default=None)

#: The caches that were opened, by name.
caches: "dict[str, int]" = {}


#: The setter of NumPy's handler, and the handlers by cache, once NumPy is known to be installed.
_set_handler: Optional[Callable[[Any], Any]] = None
_handlers: "dict[int, Any]" = {}


def _bind(cache: int) -> Any:
    """Puts a cache under the arrays of this context. Returns the previous handler, if NumPy is
    installed."""
    global _set_handler
    handler = _handlers.get(cache)
    if _set_handler is None or handler is None:
        try:
            import numpy  # noqa: F401
        except ModuleNotFoundError:
            return None
        from . import _numpy

        _set_handler = _numpy.setter()
        handler = _handlers[cache] = _numpy.new_handler(cache)
    return _set_handler(handler)


class scope:
    """A named cache under the NumPy arrays that are made inside.

    Use it in a ``with`` statement, or as a decorator of a function or a coroutine function::

        with cachescope.scope("step"):
            y = np.sin(a * b + c)

    The memory of an array that dies inside, or later, returns to the cache, which serves the next
    request of its size without a page fault. Arrays may outlive the scope. Requests below 1 KiB are
    not cached.

    A scope belongs to its context (:mod:`contextvars`): to its task under :mod:`asyncio`, and to
    its thread. A new thread begins without one, unless Python gives it its parent's context. Scopes
    of one name share one cache, also on several threads.

    ``policy`` is "recycle", "release", "bump" or "plan", and ``max_bytes`` bounds what the cache
    holds. Both stay with the name until another scope sets them, and take effect when the cache is
    entered while no other entry lasts.

    Raises ``ValueError`` for an unknown policy or a ``max_bytes`` below 1.
    """

    def __init__(
        self, name: str, *, policy: Optional[str] = None, max_bytes: Optional[int] = None
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"scope: the name is of type {type(name).__name__}, expected str")
        if max_bytes is not None:
            max_bytes = operator.index(max_bytes)
            if not 1 <= max_bytes < 1 << 64:
                raise ValueError(f"scope: max_bytes is {max_bytes}, expected at least 1")
        self.name = name
        self.policy = policy
        self.max_bytes = max_bytes
        self._open()

    def _open(self) -> int:
        if self.policy is None and self.max_bytes is None and self.name in caches:
            return caches[self.name]
        cache = _library.open_cache(self.name, self.policy, self.max_bytes)
        return caches.setdefault(self.name, cache)

    def __enter__(self) -> "scope":
        cache = self._open()
        code = lib.cs_enter(cache)
        if code:
            check(code)
        try:
            entry = _Entry(self, cache, _bind(cache))
        except BaseException:
            lib.cs_exit(cache)
            raise
        entry.token = _current.set(entry)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        entry = _current.get()
        if entry is None or entry.scope is not self or entry.token is None:
            raise self._misplaced()
        try:
            _current.reset(entry.token)
        except ValueError:  # The entry was inherited from the context that this one is a copy of.
            raise self._misplaced() from None
        if entry.handler is not None and _set_handler is not None:
            _set_handler(entry.handler)
        code = lib.cs_exit(entry.cache)
        if code:
            check(code)

    def _misplaced(self) -> RuntimeError:
        return RuntimeError(
            f'scope "{self.name}" is not the innermost scope that was entered in this context: leave '
            "it in the thread and the task that entered it, in the reverse order"
        )

    def __call__(self, function: _Function) -> _Function:
        """Returns ``function`` with its body inside the scope."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"scope: {function.__name__} is a generator, whose body runs in the contexts of its "
                "callers: use `with` between two yields"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def entered_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)

            return entered_coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def entered(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return entered  # type: ignore[return-value]

    def _again(self) -> "scope":
        return scope(self.name, policy=self.policy, max_bytes=self.max_bytes)

    def __repr__(self) -> str:
        options = "".join(
            f", {name}={value!r}"
            for name, value in (("policy", self.policy), ("max_bytes", self.max_bytes))
            if value is not None
        )
        return f"scope({self.name!r}{options})"
