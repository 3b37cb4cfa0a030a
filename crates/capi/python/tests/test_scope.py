"""Scopes: which arrays they serve, in tasks, threads and functions, and how they are misused."""

import asyncio
import contextvars
import threading

import cachescope
import numpy as np
import pytest
from cachescope import _scope

MIB = 1 << 20


def array():
    return np.empty(MIB, np.uint8)


def served(name):
    """Returns the requests that the cache has had."""
    now = cachescope.stats(name)
    return now.hits + now.misses


def test_arrays_inside_are_of_the_cache_and_arrays_outside_are_not(name):
    before = array()
    for _ in range(10):
        with cachescope.scope(name):
            array()
    after = array()
    now = cachescope.stats(name)
    assert (now.entries, now.hits, now.misses, now.live_blocks) == (10, 9, 1, 0)
    assert cachescope.invalidate(name) >= MIB
    assert cachescope.invalidate(name) == 0
    assert cachescope.stats(name).cached_bytes == 0
    del before, after
    assert cachescope.stats(name) == cachescope.stats(name)


@pytest.mark.parametrize("policy", ["recycle", "release", "bump", "plan"])
def test_a_program_computes_the_same_under_every_policy(name, policy):
    a = np.arange(50_000, dtype=np.float32)
    expected = np.sin(a * 2 + 1).sum()
    kept = []
    for step in range(6):
        with cachescope.scope(name, policy=policy):
            b = a * 2
            c = b + 1
            kept.append(np.sin(c) if step % 2 else c.copy())
            assert np.sin(c).sum() == expected
    for step, own in enumerate(kept):
        assert (own == (np.sin(a * 2 + 1) if step % 2 else a * 2 + 1)).all()
    assert cachescope.stats(name).escaped_blocks > 0
    del kept, own, b, c
    assert cachescope.stats(name).live_blocks == 0


@pytest.mark.parametrize("policy", ["recycle", "release", "bump", "plan"])
def test_arrays_that_are_made_between_two_entries_share_no_memory(name, policy):
    def step():
        with cachescope.scope(name, policy=policy):
            for number in range(3):
                own = np.full(50_000, number)
                if kept:
                    assert not np.shares_memory(kept[0], own)
                assert (own == number).all()
            kept.append(np.full(1000, 7))

    kept = []
    for _ in range(5):
        step()
        del kept[:-1]
    for length in (50_000, 20_000, 70_000, 50_000):
        kept[0].resize(length, refcheck=False)  # By the cache, which is not entered.
        kept[0][:] = 7
        for _ in range(3):
            step()
            assert (kept[0] == 7).all()
        del kept[1:]


@pytest.mark.parametrize("policy", ["recycle", "release", "bump", "plan"])
def test_a_task_may_outlive_the_scope_that_it_inherited(name, policy):
    async def child(left):
        await left.wait()
        return [np.full(50_000, number) for number in range(3)]

    async def main():
        left = asyncio.Event()
        with cachescope.scope(name, policy=policy):
            task = asyncio.create_task(child(left))
            await asyncio.sleep(0)
            np.full(50_000, 5)
        left.set()
        return await task

    for _ in range(6):
        made = asyncio.run(main())
        with cachescope.scope(name):
            [np.full(50_000, 9) for _ in range(3)]
        assert [own[-1] for own in made] == [0, 1, 2]
        assert all((own == own[0]).all() for own in made)


def test_each_option_stays_until_an_entry_sets_it(name):
    with cachescope.scope(name, policy="release", max_bytes=4 * MIB):
        array()
    assert cachescope.stats(name).cached_blocks == 0
    cachescope.scope(name, policy="recycle")  # Not entered.
    with cachescope.scope(name, max_bytes=3 * MIB):
        array()
    assert cachescope.stats(name).cached_blocks == 0, "the policy stays"
    with cachescope.scope(name, policy="recycle"):
        kept = [array() for _ in range(6)]
        assert 1 <= cachescope.stats(name).live_blocks <= 2, "the bound stays"
        del kept
    assert cachescope.stats(name).cached_blocks > 0


def test_an_interrupt_of_the_entry_leaves_nothing_entered(name, monkeypatch):
    class Interrupted:
        """The context variable, with an interrupt after the next change."""

        def __init__(self, variable):
            self.get, self.reset = variable.get, variable.reset
            self.variable, self.interrupts = variable, 1

        def set(self, value):
            token = self.variable.set(value)
            self.interrupts -= 1
            if self.interrupts == 0:
                raise KeyboardInterrupt
            return token

    with cachescope.scope(name + "outer"):
        with monkeypatch.context() as patch:
            patch.setattr(_scope, "_current", Interrupted(_scope._current))
            with pytest.raises(KeyboardInterrupt):
                cachescope.scope(name).__enter__()
        array()
        assert (served(name), served(name + "outer")) == (0, 1)
    for _ in range(3):
        with cachescope.scope(name):
            array()
    assert (cachescope.stats(name).entries, served(name)) == (4, 3)


def test_scopes_nest_and_an_outer_one_continues(name):
    inner = name + "inner"
    with cachescope.scope(name):
        one = array()
        with cachescope.scope(inner):
            two = array()
        three = array()
        with cachescope.scope(name):
            four = array()
        assert cachescope.stats(name).live_blocks == 3
        assert cachescope.stats(inner).live_blocks == 1
    assert cachescope.stats(name).entries == 1
    five = array()
    assert cachescope.stats(name).live_blocks == 3
    del one, two, three, four, five


def test_an_exception_leaves_the_scope(name):
    with pytest.raises(ZeroDivisionError):
        with cachescope.scope(name):
            array()
            1 / 0
    count = served(name)
    array()
    assert served(name) == count == 1
    with cachescope.scope(name):
        pass
    assert cachescope.stats(name).entries == 2


def test_a_function_is_a_scope(name):
    @cachescope.scope(name)
    def twice(depth):
        """Its documentation."""
        made = array()
        return twice(depth - 1) if depth else made.nbytes

    assert (twice.__name__, twice.__doc__) == ("twice", "Its documentation.")
    assert twice(3) == MIB
    assert (cachescope.stats(name).entries, served(name)) == (1, 4)


def test_a_coroutine_function_is_a_scope(name):
    @cachescope.scope(name)
    async def body():
        await asyncio.sleep(0)
        array()

    asyncio.run(body())
    array()
    assert (cachescope.stats(name).entries, served(name)) == (1, 1)
    with pytest.raises(TypeError, match="generator"):

        @cachescope.scope(name)
        def numbers():
            yield 1


def test_tasks_that_interleave_have_their_own_scopes(name):
    names = [f"{name}{number}" for number in range(3)]

    async def work(own, steps):
        for _ in range(steps):
            with cachescope.scope(own):
                made = [array()]
                await asyncio.sleep(0)
                made.append(array())
                await asyncio.sleep(0)
            array()  # Of no cache.
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(work(own, 5 + number) for number, own in enumerate(names)))

    asyncio.run(main())
    for number, own in enumerate(names):
        now = cachescope.stats(own)
        assert (now.entries, now.hits + now.misses) == (5 + number, 2 * (5 + number))
        assert now.live_blocks == 0


def test_tasks_inside_one_scope_inherit_it(name):
    async def child():
        await asyncio.sleep(0)
        array()

    async def main():
        with cachescope.scope(name):
            await asyncio.gather(child(), asyncio.to_thread(array))
            await asyncio.gather(child(), child())

    asyncio.run(main())
    assert (cachescope.stats(name).entries, served(name)) == (1, 4)


def test_a_thread_has_scopes_of_its_own(name):
    errors = []

    def work(number):
        try:
            for step in range(50):
                with cachescope.scope(name):
                    a = np.full(10_000 + 1000 * number, number, np.int64)
                    b = a + step
                    assert (b == number + step).all()
        except BaseException as error:  # noqa: B902
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    now = cachescope.stats(name)
    assert now.live_blocks == 0 and now.hits > now.misses


def test_two_contexts_interleave_on_one_thread(name):
    first, second = contextvars.copy_context(), contextvars.copy_context()
    scopes = [cachescope.scope(name), cachescope.scope(name + "second")]
    first.run(scopes[0].__enter__)
    second.run(scopes[1].__enter__)
    kept = [first.run(array), second.run(array), array()]
    first.run(scopes[0].__exit__, None, None, None)
    kept += [first.run(array), second.run(array)]
    second.run(scopes[1].__exit__, None, None, None)
    assert (served(name), served(name + "second")) == (1, 2)
    del kept
    assert cachescope.stats(name).live_blocks == 0


def test_a_scope_that_another_thread_leaves_is_an_error(name):
    entered = cachescope.scope(name)
    entered.__enter__()
    errors = []

    def leave():
        try:
            entered.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "thread" in errors[0]
    with pytest.raises(RuntimeError):  # A copy of the context that entered it.
        contextvars.copy_context().run(entered.__exit__, None, None, None)
    array()
    entered.__exit__(None, None, None)
    array()
    assert (cachescope.stats(name).entries, served(name)) == (1, 1)
    with pytest.raises(RuntimeError):
        entered.__exit__(None, None, None)


def test_scopes_that_are_left_out_of_order_are_an_error(name):
    outer, inner = cachescope.scope(name), cachescope.scope(name + "inner")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="innermost"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("bad",), {"policy": "fastest"}, ValueError),
        (("bad",), {"policy": ""}, ValueError),
        (("bad",), {"policy": "plan\0"}, ValueError),
        (("bad",), {"policy": 5}, TypeError),
        (("bad\0name",), {}, ValueError),
        (("bad",), {"max_bytes": 0}, ValueError),
        (("bad",), {"max_bytes": -5}, ValueError),
        (("bad",), {"max_bytes": 1 << 64}, ValueError),
        (("bad",), {"max_bytes": 1.5}, TypeError),
        ((5,), {}, TypeError),
    ],
)
def test_bad_arguments_are_errors(arguments, options, error):
    with pytest.raises(error):
        cachescope.scope(*arguments, **options)


def test_an_unknown_name_has_no_statistics():
    with pytest.raises(KeyError):
        cachescope.stats("nobody entered this")
    assert cachescope.invalidate("nobody entered this") == 0


def test_the_report_lists_every_cache(name):
    with cachescope.scope(name):
        array()
    header, *rows = cachescope.report().splitlines()
    assert header.split()[:4] == ["scope", "entries", "hits", "misses"]
    assert any(row.startswith(name) for row in rows)
    assert repr(cachescope.scope(name, policy="plan")) == f"scope({name!r}, policy='plan')"
