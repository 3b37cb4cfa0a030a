"""The memory of arrays: sizes that lie, resizing, zeros, small arrays, ends of life, limits."""

import gc
import os
import resource
import subprocess
import sys
import textwrap
import threading

import cachescope
import numpy as np
import pytest

MIB = 1 << 20


def run(program, *arguments):
    """Runs a program in a Python of its own. Returns its output."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_shape_of_no_elements_frees_another_size_than_it_requested(name):
    with cachescope.scope(name):
        for shape in [(2, 0, 2), (0,), (1 << 20, 0), (0, 1 << 20), ()]:
            for _ in range(100):
                np.empty(shape)
                np.zeros(shape)
    assert cachescope.stats(name).live_blocks == 0


def test_a_resize_keeps_the_elements(name):
    with cachescope.scope(name):
        a = np.arange(100)
        for length in [10, 1000, 100_000, 50_000, 300_000, 120, 1, 1 << 20]:
            before = a.copy()
            a.resize(length, refcheck=False)
            common = min(length, before.size)
            assert (a[:common] == before[:common]).all() and not a[common:].any()
    a.resize(2 << 20, refcheck=False)  # After the scope, by its handler.
    assert a[:1].tolist() == [0]
    del a, before
    assert cachescope.stats(name).live_blocks == 0


def test_fromiter_grows(name):
    with cachescope.scope(name):
        a = np.fromiter((n * n for n in range(200_000)), np.int64)
    assert (a == np.arange(200_000) ** 2).all()


@pytest.mark.parametrize("bytes", [100, 1024, 5000, 70_000, MIB + 3, 40 * MIB])
def test_zeros_are_zeros(name, bytes):
    for _ in range(3):
        with cachescope.scope(name):
            a = np.zeros(bytes, np.uint8)
            assert not a.any()
            a.fill(255)
            del a
            b = np.empty(bytes, np.uint8)
            b.fill(255)


def test_new_zeros_touch_no_page(name):
    with cachescope.scope(name):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        a = np.zeros(256 * MIB, np.uint8)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 100
        assert not a[:: 8 * MIB].any()


def test_small_arrays_bypass_the_cache(name):
    with cachescope.scope(name):
        kept = [np.full(bytes, 7, np.uint8) for bytes in range(1024)]
        assert all((own == 7).all() for own in kept)
        assert cachescope.stats(name).hits + cachescope.stats(name).misses == 0
        array = np.empty(1024, np.uint8)
        assert cachescope.stats(name).misses == 1
    del kept, array


@pytest.mark.parametrize("length", [1, 3, 100, 1023, 1024, 10_000, MIB + 1])
def test_every_array_is_aligned_to_64_bytes(name, length):
    with cachescope.scope(name):
        kept = [np.empty(length, np.uint8) for _ in range(20)] + [np.zeros(length, np.uint8)]
    assert all(own.ctypes.data % 64 == 0 for own in kept)


def test_an_array_outlives_its_scope_and_dies_on_another_thread(name):
    with cachescope.scope(name):
        kept = [np.full(MIB, number, np.uint8) for number in range(8)]
    assert cachescope.stats(name).escaped_blocks == 8
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    now = cachescope.stats(name)
    assert (now.live_blocks, now.escaped_blocks, now.cached_blocks) == (0, 0, 8)
    with cachescope.scope(name):
        again = np.empty(MIB, np.uint8)
    assert cachescope.stats(name).hits == 1
    del again


def test_arrays_outlive_the_thread_that_made_them(name):
    kept = []

    def work():
        with cachescope.scope(name):
            kept.append(np.ones(MIB))

    for _ in range(4):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert all((own == 1).all() for own in kept)
    kept.clear()
    assert cachescope.stats(name).live_blocks == 0


def test_cycles_and_views_free_their_memory(name):
    with cachescope.scope(name):
        a = np.ones(MIB)
        view = a[10:20]
        cycle = [a]
        cycle.append(cycle)
        del a, cycle
        gc.collect()
        assert cachescope.stats(name).live_blocks == 1
        del view
        assert cachescope.stats(name).live_blocks == 0


def test_arrays_die_at_the_end_of_the_interpreter():
    program = """
        import atexit, sys, threading
        import cachescope, numpy as np

        class Late:
            def __init__(self):
                self.array = np.ones(1 << 20)
            def __del__(self):
                assert self.array[5] == 1
                self.array.resize(1 << 21, refcheck=False)

        entered = cachescope.scope("forgotten")
        entered.__enter__()
        np.kept = np.ones(1 << 20)
        sys.modules["late"] = Late()
        late = Late()
        atexit.register(lambda: np.ones(1 << 20))
        local = threading.local()
        local.array = np.ones(1 << 20)
        print("end")
    """
    assert run(program) == "end\n"


def test_a_child_uses_the_arrays_and_the_caches_of_its_parent():
    program = """
        import os, sys, threading, warnings
        import cachescope, numpy as np

        warnings.simplefilter("ignore", DeprecationWarning)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                with cachescope.scope("step"):
                    np.ones(200_000) + 1

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        with cachescope.scope("step"):
            kept = np.arange(1 << 20)
            for _ in range(40):
                child = os.fork()
                if child == 0:
                    assert kept[-1] == (1 << 20) - 1
                    kept = kept + 1
                    with cachescope.scope("child"):
                        np.ones(1 << 20) + np.ones(1 << 20)
                    os._exit(0 if cachescope.stats("child").entries == 1 else 1)
                assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        print("end")
    """
    assert run(program) == "end\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_has_no_entries_of_threads_that_it_does_not_have():
    program = """
        import os, threading, warnings
        import cachescope, numpy as np

        warnings.simplefilter("ignore", DeprecationWarning)
        inside, leave = threading.Event(), threading.Event()

        def work():
            with cachescope.scope("step"):
                inside.set()
                leave.wait()

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            for _ in range(5):
                with cachescope.scope("step"):
                    np.ones(1 << 16)
            os._exit(cachescope.stats("step").entries)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
        print(os.WEXITSTATUS(status))
    """
    assert run(program) == "6\n", "the parent's entry, and 5 of the child"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_leaves_its_parents_report_alone(tmp_path, monkeypatch):
    report = tmp_path / "run.txt"
    monkeypatch.setenv("CACHESCOPE_PROFILE", str(report))
    program = """
        import os, sys, warnings
        import cachescope, numpy as np

        warnings.simplefilter("ignore", DeprecationWarning)
        with cachescope.scope("of the parent"):
            np.ones(1 << 16)
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            with cachescope.scope("of the child"):
                np.ones(1 << 16)
            os.read(read, 1)  # Until the parent has ended.
    """
    run(program)
    text = report.read_text()
    assert "of the parent" in text and "of the child" not in text


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc")
@pytest.mark.parametrize("policy", ["recycle", "release", "bump", "plan"])
def test_an_invalidation_returns_memory_to_the_system(name, policy):
    for _ in range(3):
        with cachescope.scope(name, policy=policy, max_bytes=256 * MIB):
            kept = np.ones(128 * MIB, np.uint8), np.ones(64 * MIB, np.uint8)
            beyond = np.ones(128 * MIB, np.uint8)
    before = resident_bytes()
    cachescope.invalidate(name)
    del kept, beyond
    cachescope.invalidate(name)
    assert before - resident_bytes() > 300 * MIB


def test_a_limit_that_is_met_is_a_memory_error_and_the_program_continues(name):
    with cachescope.scope(name):
        with cachescope.memory_limit(512 * MIB):
            with cachescope.memory_limit(64 * MIB):
                with pytest.raises(MemoryError):
                    np.empty(256 * MIB, np.uint8)
                with pytest.raises(MemoryError):
                    np.zeros(256 * MIB, np.uint8)
                small = np.ones(MIB)
                with pytest.raises(MemoryError):
                    small.resize(256 * MIB, refcheck=False)
                assert (small == 1).all() and small.size == MIB
            large = np.empty(256 * MIB, np.uint8)
            del large
        larger = np.empty(1024 * MIB, np.uint8)
        del larger
    with pytest.raises(ValueError):
        cachescope.memory_limit(0)
    with pytest.raises(RuntimeError, match="not entered"):
        cachescope.memory_limit(MIB).__exit__(None, None, None)
    cachescope.invalidate(name)


def test_a_cache_holds_at_most_its_bytes(name):
    with cachescope.scope(name, max_bytes=4 * MIB):
        kept = [np.empty(MIB, np.uint8) for _ in range(10)]
        now = cachescope.stats(name)
        assert now.live_blocks <= 4 and now.misses == 10
        del kept
    assert cachescope.stats(name).cached_bytes <= 4 * MIB


def test_a_recording_is_written(name, tmp_path):
    with cachescope.record(tmp_path / "run.html"):
        with pytest.raises(RuntimeError):
            cachescope.record(tmp_path / "other.html").__enter__()
        for _ in range(3):
            with cachescope.scope(name):
                np.ones(MIB)
    page = (tmp_path / "run.html").read_text()
    assert page.startswith("<!") and "test_a_recording_is_written" in page
    with pytest.raises(ValueError, match="ending"):
        cachescope.record("run.unknown").__enter__()
    with pytest.raises(ValueError, match="null"):
        cachescope.record(f"{tmp_path}/run\0.txt")
    with pytest.raises(ZeroDivisionError):
        with cachescope.record(os.fspath(tmp_path / "run.txt")):
            1 / 0
    assert (tmp_path / "run.txt").exists()
    with pytest.raises(OSError):
        with cachescope.record(tmp_path / "no" / "run.txt"):
            pass
    assert cachescope.stats(name).hits == 2


def test_a_warm_loop_has_no_page_faults(name):
    a = np.ones(1 << 22, np.float32)
    for step in range(30):
        if step == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with cachescope.scope(name):
            np.sin(a * a + a) * a - a
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 100, "20 steps on 2^22 elements"
