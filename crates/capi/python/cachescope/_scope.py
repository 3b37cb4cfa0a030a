"""Scopes: a cache under the NumPy arrays that a context makes."""

from __future__ import annotations

import functools
import inspect
import operator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Callable, List, Optional, Type, TypeVar

from . import _library
from ._library import check, lib

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Entry:
    """An entered scope of one context."""

    __slots__ = ("scope", "cache", "done", "token")

    def __init__(self, entered: "scope", cache: int) -> None:
        self.scope = entered
        self.cache = cache
        #: What was done: the result of ``cs_enter``, and then NumPy's handler before.
        self.done: List[Any] = []
        self.token: Optional[Token[Optional[_Entry]]] = None

    def end(self) -> None:
        """Undoes what was done."""
        done = self.done
        try:
            if len(done) > 1:
                _set_handler(done[1])  # type: ignore[misc]
        finally:
            if done and done[0] == 0:
                code = lib.cs_exit(self.cache)
                if code:
                    check(code)


#: The names of ``cs_options``.
_POLICIES = ("recycle", "release", "bump", "plan")

_current: ContextVar[Optional[_Entry]] = ContextVar("cachescope.scope", default=None)

#: The caches that were opened, by name.
caches: "dict[str, int]" = {}


#: The setter of NumPy's handler, and the handlers by cache, once NumPy is known to be installed.
_set_handler: Optional[Callable[[Any], Any]] = None
_handlers: "dict[int, Any]" = {}


def _handler(cache: int) -> Any:
    """Returns the handler of a cache, if NumPy is installed."""
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
    return handler


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
    holds. Each stays with the name until the entry of another scope sets it. A change takes effect
    when the cache is entered while no other entry lasts.

    "bump" and "plan" are for entries that do not overlap: under "bump", entries that always overlap
    use more and more memory.

    Raises ``ValueError`` for an unknown policy, a ``max_bytes`` below 1, or a name with a null
    character.
    """

    def __init__(
        self, name: str, *, policy: Optional[str] = None, max_bytes: Optional[int] = None
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"scope: the name is of type {type(name).__name__}, expected str")
        if "\0" in name:
            raise ValueError(f"scope: the name {name!r} has a null character")
        if not isinstance(policy, (str, type(None))):
            raise TypeError(f"scope: the policy is of type {type(policy).__name__}, expected str")
        if policy is not None and policy not in _POLICIES:
            raise ValueError(f'scope: the policy is {policy!r}, expected one of {", ".join(_POLICIES)}')
        if max_bytes is not None:
            max_bytes = operator.index(max_bytes)
            if not 1 <= max_bytes < 1 << 64:
                raise ValueError(f"scope: max_bytes is {max_bytes}, expected at least 1")
        self.name = name
        self.policy = policy
        self.max_bytes = max_bytes
        if name not in caches:
            caches.setdefault(name, _library.open_cache(name))

    def __enter__(self) -> "scope":
        cache = caches[self.name]
        if self.policy is not None or self.max_bytes is not None:
            _library.open_cache(self.name, self.policy, self.max_bytes)
        handler = _handler(cache)
        entry, outer = _Entry(self, cache), _current.get()
        done = entry.done
        try:
            # `+=` calls and keeps the result in one step: a KeyboardInterrupt comes before both or
            # after both.
            done += map(lib.cs_enter, (cache,))
            if done[0]:
                check(done[0])
            if handler is not None:
                done += map(_set_handler, (handler,))  # type: ignore[arg-type]
            entry.token = _current.set(entry)
        except BaseException:
            _current.set(outer)
            entry.end()
            raise
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
        is_own = True
        try:
            _current.reset(entry.token)
        except ValueError:  # The entry was inherited from the context that this one is a copy of.
            is_own = False
            raise self._misplaced() from None
        finally:
            if is_own:
                entry.end()

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
