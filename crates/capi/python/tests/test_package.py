"""The package: its files, its library, its NumPy, and the libraries that it meets."""

import importlib.metadata
import importlib.resources
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cachescope
import numpy as np
import pytest
from cachescope import _library, _numpy


def test_the_package_is_typed_and_its_version_is_the_librarys():
    files = importlib.resources.files(cachescope)
    assert files.joinpath("py.typed").is_file()
    assert cachescope.__version__ == importlib.metadata.version("cachescope")
    assert _library.lib.cs_version().decode() == cachescope.__version__
    assert Path(cachescope.library()).is_file()
    for public in cachescope.__all__:
        assert public == "__version__" or getattr(cachescope, public).__doc__


def test_a_library_of_another_version_is_refused(tmp_path):
    with pytest.raises(ImportError, match="version .* 9.9.9"):
        _library.load(_library.library_path(), "9.9.9")
    with pytest.raises(ImportError, match="not the library"):
        _library.load(tmp_path / "missing.so")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "old.c").write_text('const char *cs_version(void) { return "0.0.1"; }')
    library = tmp_path / "old.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "old.c"], check=True)
    environment = {**os.environ, "CACHESCOPE_LIBRARY": str(library)}
    command = [sys.executable, "-c", "import cachescope"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "has version 0.0.1" in done.stderr


def test_calls_that_may_wait_release_the_interpreters_lock():
    keeps_lock = {
        name for name in _library._SIGNATURES if getattr(_library.lib, name)._flags_ & 4  # FUNCFLAG_PYTHONAPI
    }
    assert {"cs_enter", "cs_exit", "cs_record"} <= keeps_lock
    assert not keeps_lock & {"cs_record_end", "cs_invalidate", "cs_memory_limit", "cs_stats"}


def test_a_numpy_without_handlers_is_refused():
    with pytest.raises(ImportError, match="1.22"):
        _numpy.check_features(0xE)
    _numpy.check_features(_numpy._features())


def test_numpy_names_the_handler():
    try:
        from numpy._core.multiarray import get_handler_name
    except ImportError:
        from numpy.core.multiarray import get_handler_name
    outside = get_handler_name()
    with cachescope.scope("handlers"):
        inside = np.empty(10)
        assert get_handler_name() == "cachescope" == get_handler_name(inside)
    assert get_handler_name() == outside
    assert get_handler_name(inside) == "cachescope"


def test_scipy_computes_the_same(name):
    signal = pytest.importorskip("scipy.signal")
    a = np.random.default_rng(5).standard_normal(200_000)
    expected = signal.fftconvolve(a, a[:1000])
    for _ in range(3):
        with cachescope.scope(name):
            assert (signal.fftconvolve(a, a[:1000]) == expected).all()
    assert cachescope.stats(name).hits > 0


def test_scikit_learn_computes_the_same(name):
    decomposition = pytest.importorskip("sklearn.decomposition")
    a = np.random.default_rng(5).standard_normal((2000, 50))
    expected = decomposition.PCA(5, svd_solver="full").fit_transform(a)
    for _ in range(3):
        with cachescope.scope(name):
            found = decomposition.PCA(5, svd_solver="full").fit_transform(a)
            np.testing.assert_allclose(found, expected)
    assert cachescope.stats(name).hits > 0


def test_torch_shares_the_memory_of_an_array(name):
    torch = pytest.importorskip("torch")
    with cachescope.scope(name):
        tensor = torch.from_numpy(np.ones(1 << 20))
    assert tensor.sum().item() == 1 << 20
    del tensor
    assert cachescope.stats(name).live_blocks == 0


def test_cupy_allocates_from_a_scope(name):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("there is no CUDA device")
    functions = [_library.address_of(f"cs_cupy_{part}") for part in ("malloc", "free")]
    allocator = cupy.cuda.CFunctionAllocator(0, *functions, None)
    with cupy.cuda.using_allocator(allocator.malloc), cachescope.scope(name):
        for _ in range(3):
            assert int(cupy.ones(1 << 20).sum()) == 1 << 20
    assert cachescope.stats(name).hits > 0
