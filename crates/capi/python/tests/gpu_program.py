"""Calls the entry points of PyTorch and CuPy as these libraries do. Run by ``test_gpu.py``."""

import ctypes
import os
import threading

import cachescope

lib = ctypes.CDLL(cachescope.library())
cuda = ctypes.CDLL("libcuda.so")
POINTER = ctypes.c_void_p
torch_malloc = lib.cs_torch_malloc
torch_malloc.restype, torch_malloc.argtypes = POINTER, [ctypes.c_ssize_t, ctypes.c_int, POINTER]
torch_free = lib.cs_torch_free
torch_free.restype, torch_free.argtypes = None, [POINTER, ctypes.c_ssize_t, ctypes.c_int, POINTER]
record_stream = lib.cs_torch_record_stream
record_stream.restype, record_stream.argtypes = None, [POINTER, POINTER]
cupy_malloc = lib.cs_cupy_malloc
cupy_malloc.restype, cupy_malloc.argtypes = POINTER, [POINTER, ctypes.c_size_t, ctypes.c_int]
cupy_free = lib.cs_cupy_free
cupy_free.restype, cupy_free.argtypes = None, [POINTER, POINTER, ctypes.c_int]
lib.cs_last_error.restype = ctypes.c_char_p
MIB = 1 << 20


def driver(function, *arguments):
    code = getattr(cuda, function)(*arguments)
    assert code == 0, (function, code)


def new_stream():
    stream = POINTER()
    driver("cuStreamCreate", ctypes.byref(stream), 1)
    return stream


def set_bytes(block, value, bytes, stream):
    driver("cuMemsetD8Async", ctypes.c_uint64(block), ctypes.c_uint8(value), ctypes.c_size_t(bytes), stream)


def bytes_of(block, count):
    found = ctypes.create_string_buffer(count)
    driver("cuMemcpyDtoH_v2", found, ctypes.c_uint64(block), ctypes.c_size_t(count))
    return set(found.raw)


def counters(name):
    now = cachescope.stats(name)
    return now.hits, now.misses, now.live_blocks


def test_outside_of_scopes_memory_is_of_no_cache():
    block = torch_malloc(MIB, 0, None)
    assert block, lib.cs_last_error()
    set_bytes(block, 7, MIB, None)
    driver("cuStreamSynchronize", None)
    assert bytes_of(block, 1000) == {7}
    torch_free(block, MIB, 0, None)
    assert torch_malloc(0, 0, None) is None
    assert torch_malloc(MIB, 77, None) is None and lib.cs_last_error()
    torch_free(None, 0, 0, None)
    before = lib.cs_last_error()
    torch_free(12345, 5, 0, None)
    assert lib.cs_last_error() != before and b"not a live block" in lib.cs_last_error()


def test_a_block_is_reused_at_once_on_its_stream():
    stream = new_stream()
    for _ in range(4):
        with cachescope.scope("own stream"):
            block = torch_malloc(MIB, 0, stream)
            set_bytes(block, 1, MIB, stream)
            torch_free(block, MIB, 0, stream)
    assert counters("own stream") == (3, 1, 0)


def test_the_backward_pass_runs_on_a_thread_of_its_own():
    blocks = []
    with cachescope.scope("backward"):
        thread = threading.Thread(target=lambda: blocks.append(torch_malloc(MIB, 0, None)))
        thread.start()
        thread.join()
        assert counters("backward") == (0, 1, 1)
    torch_free(blocks[0], MIB, 0, None)
    assert counters("backward") == (0, 1, 0)
    assert cachescope.invalidate("backward") >= MIB


def test_a_recorded_stream_delays_the_reuse():
    own, other = new_stream(), new_stream()
    with cachescope.scope("recorded"):
        block = torch_malloc(MIB, 0, own)
        set_bytes(block, 1, MIB, own)
        record_stream(block, other)
        set_bytes(block, 2, MIB, other)
        torch_free(block, MIB, 0, own)
        again = torch_malloc(MIB, 0, own)
        set_bytes(again, 3, MIB, own)
        driver("cuStreamSynchronize", own)
        assert bytes_of(again, 1000) == {3}
        driver("cuStreamSynchronize", other)
        assert bytes_of(again, 1000) == {3}, "the other stream wrote to a block that was reused"
        torch_free(again, MIB, 0, own)
    driver("cuCtxSynchronize")


def test_memory_that_crosses_streams_waits():
    first, second = new_stream(), new_stream()
    block = torch_malloc(2 * MIB, 0, first)
    set_bytes(block, 1, 2 * MIB, first)
    torch_free(block, 2 * MIB, 0, first)
    again = torch_malloc(2 * MIB, 0, second)
    set_bytes(again, 2, 2 * MIB, second)
    driver("cuStreamSynchronize", second)
    driver("cuStreamSynchronize", first)
    assert bytes_of(again, 1000) == {2}
    torch_free(again, 2 * MIB, 0, second)


def test_cupy_allocates_from_a_named_or_the_entered_cache():
    lib.cs_cache_open.restype = POINTER
    cache = lib.cs_cache_open(b"named", None)
    with cachescope.scope("entered"):
        block = cupy_malloc(None, MIB, 0)
        named = cupy_malloc(cache, MIB, 0)
        assert block and named and block != named
        assert counters("entered") == (0, 1, 1)
    cupy_free(None, block, 0)
    cupy_free(cache, named, 0)
    again = cupy_malloc(cache, MIB, 0)
    assert again == named
    cupy_free(None, again, 0)
    assert counters("entered") == (0, 1, 0)


def current_context():
    context = POINTER()
    driver("cuCtxGetCurrent", ctypes.byref(context))
    return context.value


def test_the_context_of_the_thread_stays():
    found = []

    def work():
        with cachescope.scope("context"):
            found.append(current_context())
            block = torch_malloc(3 * MIB, 0, None)
            found.append(current_context())
            torch_free(block, 3 * MIB, 0, None)
            found.append(current_context())
        found.append(current_context())
        cachescope.invalidate("context")
        found.append(current_context())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None] * 5, found
    here = current_context()
    assert here is not None
    torch_free(torch_malloc(MIB, 0, None), MIB, 0, None)
    assert current_context() == here


def test_names_of_default_streams():
    legacy, per_thread = 1, 2
    with cachescope.scope("default streams"):
        block = torch_malloc(MIB, 0, legacy)
        torch_free(block, MIB, 0, None)
        torch_free(torch_malloc(MIB, 0, None), MIB, 0, legacy)
        assert counters("default streams") == (1, 1, 0), "one stream"
        assert torch_malloc(MIB, 0, per_thread) is None
        assert b"per-thread" in lib.cs_last_error()
        block = torch_malloc(MIB, 0, None)
        torch_free(block, MIB, 0, per_thread)
        assert counters("default streams")[2] == 1, "it was not freed"
        torch_free(block, MIB, 0, None)
        assert counters("default streams")[2] == 0


def test_a_free_that_fails_is_repeated():
    own, other = new_stream(), new_stream()
    with cachescope.scope("repeated"):
        block = torch_malloc(MIB, 0, own)
        cuda.emulator_fail_named(b"cuEventRecord", ctypes.c_uint64(1), 2)
        torch_free(block, MIB, 0, other)
        assert counters("repeated")[2] == 1, "it was freed without an event"
        torch_free(block, MIB, 0, other)
        assert b"not a live block" in lib.cs_last_error(), "it cannot be freed twice"
        assert counters("repeated")[2] == 0
    driver("cuCtxSynchronize")


assert torch_malloc(MIB, 77, None) is None  # Loads the driver.
context = POINTER()
driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
driver("cuCtxSetCurrent", context)
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, os.getpid())
print("ok")
