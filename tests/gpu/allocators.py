"""A training step of PyTorch and of CuPy in a cache of this library, by its C ABI, beside their own allocators.

    CACHESCOPE_LIBRARY=libcachescope_capi.so python3 tests/gpu/allocators.py --digits digits.csv.gz --out target/gpu/out

Results must be equal in both. Prints time, peak and calls for memory, and writes allocators.json. The exit status is 1 if
results differ or a run fails, and 3 if PyTorch or CuPy is missing. `--libraries numpy` tries the script without a GPU."""

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# In the folder that tests/gpu/build makes, and in the repository.
sys.path[:0] = [HERE, os.path.join(HERE, "python")]
sys.path += [os.path.join(HERE, "../../crates/capi/python"), os.path.join(HERE, "../../benches/peers/python")]

STEPS, WARM_UP = 40, 10
UNITS, BATCHES, BATCH = 256, 8, 128
# Parts of a loss. Products may add in another order if the memory has another alignment.
TOLERANCE = 1e-5


def scope_of(cachescope):
    """The scope of a step; without the library, nothing."""
    return cachescope.scope("step") if cachescope else contextlib.nullcontext()


class Torch:
    """The smallest GPT of W10, whose backward pass runs on a thread of PyTorch's own."""

    def __init__(self, cachescope):
        os.environ["DEVICE"] = "cuda"
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        import torch

        torch.use_deterministic_algorithms(True, warn_only=True)
        self.torch, self.is_own = torch, not cachescope
        if cachescope:
            from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator

            library = str(cachescope.library())
            allocator = CUDAPluggableAllocator(library, "cs_torch_malloc", "cs_torch_free")
            record = ctypes.cast(ctypes.CDLL(library).cs_torch_record_stream, ctypes.c_void_p).value
            allocator.allocator().set_record_stream_fn(record)
            change_current_allocator(allocator)
        torch.cuda.init()
        self.free = torch.cuda.mem_get_info()[0]
        import training

        steps, *sizes = training.CASES["gpt"]["small"]
        self.step = training.start("gpt", sizes)

    def extra(self):
        used = {"used_bytes": self.free - self.torch.cuda.mem_get_info()[0]}
        if self.is_own:
            used["peak_bytes"] = self.torch.cuda.max_memory_allocated()
        return used

    def calls(self):
        """The calls of the driver for memory so far. Under another allocator, PyTorch does not count."""
        return self.torch.cuda.memory_stats().get("num_device_alloc") if self.is_own else None


class Arrays:
    """The step of the handwritten digits, in a library with NumPy's interface."""

    def __init__(self, xp, digits):
        import numpy
        from peers import CLASSES, ArrayStep

        random = numpy.random.default_rng(1)
        facts = {
            "hidden_units": UNITS,
            "hidden": random.uniform(-0.1, 0.1, 64 * UNITS),
            "output": random.uniform(-0.1, 0.1, UNITS * CLASSES),
            "batches": random.integers(0, 1000, (BATCHES, BATCH)).tolist(),
        }
        self.array_step = ArrayStep(xp, facts, digits)

    def step(self):
        self.array_step.once()
        return float(self.array_step.total_loss)

    def extra(self):
        return {}

    def calls(self):
        return None


class CuPy(Arrays):
    def __init__(self, cachescope, digits):
        import cupy

        self.cupy, self.is_own = cupy, not cachescope
        if cachescope:
            library = ctypes.CDLL(str(cachescope.library()))
            malloc, free = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("cs_cupy_malloc", "cs_cupy_free"))
            cupy.cuda.set_allocator(cupy.cuda.CFunctionAllocator(0, malloc, free, library).malloc)
        self.free = cupy.cuda.runtime.memGetInfo()[0]
        super().__init__(cupy, digits)

    def extra(self):
        used = {"used_bytes": self.free - self.cupy.cuda.runtime.memGetInfo()[0]}
        if self.is_own:
            used["peak_bytes"] = self.cupy.get_default_memory_pool().total_bytes()
        return used


class NumPy(Arrays):
    """In place of CuPy, to try this script."""

    def __init__(self, _, digits):
        import numpy

        super().__init__(numpy, digits)


def child(name, is_own, digits):
    """Trains in this process, and prints the result."""
    cachescope = None
    if not is_own:
        import cachescope
    work = Torch(cachescope) if name == "torch" else {"cupy": CuPy, "numpy": NumPy}[name](cachescope, digits)
    results, times, before, warm = [], [], None, None
    for number in range(STEPS):
        if number == WARM_UP:
            before = work.calls() if is_own else cachescope.stats("step").misses
        began = time.perf_counter()
        with scope_of(cachescope):
            results.append(work.step())
        times.append(time.perf_counter() - began)
    warm = work.calls() if is_own else cachescope.stats("step").misses
    found = {"step_ms": statistics.median(times[WARM_UP:]) * 1e3, "results": results, **work.extra()}
    found["warm_calls"] = warm - before if warm is not None else None
    if not is_own:
        stats = cachescope.stats("step")
        found |= {"peak_bytes": stats.peak_live_bytes, "hits": stats.hits, "misses": stats.misses}
    print(json.dumps(found))


def measured(name, is_own, options, seconds):
    command = [sys.executable, __file__, "--child", name, "own" if is_own else "cachescope", "--digits", options.digits]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1))
    if ended.returncode:
        raise RuntimeError(f"status {ended.returncode}: {(ended.stderr.strip().splitlines() or ['nothing'])[-1]}")
    return json.loads(ended.stdout.splitlines()[-1])


def compared(name, options, deadline):
    """Both allocators in turn, and once more if there is time; the faster round of each counts."""
    best, began = {}, time.monotonic()
    for is_second in (False, True):
        if is_second and 4 * time.monotonic() > 3 * began + deadline:
            break
        for who in ("own", "cachescope"):
            found = measured(name, who == "own", options, deadline - time.monotonic())
            if who not in best or found["step_ms"] < best[who]["step_ms"]:
                best[who] = found
    own, ours = best["own"].pop("results"), best["cachescope"].pop("results")
    agree = len(own) == len(ours) and all(abs(a - b) <= TOLERANCE * abs(a) for a, b in zip(own, ours))
    return {**best, "agree": agree, "equal_bits": own == ours, "last": [own[-1], ours[-1]]}


def said(row):
    ratio = row["cachescope"]["step_ms"] / row["own"]["step_ms"]
    bits = "equal bits" if row["equal_bits"] else "equal results"
    texts = [f"{bits}, {ratio:.2f} × the time"]
    for who in ("own", "cachescope"):
        facts = (f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in row[who].items())
        texts.append(f"{who}: {', '.join(facts)}")
    return "; ".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", required=True)
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--libraries", default="torch,cupy", help="torch, cupy, numpy")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1] == "own", options.digits)
        return 0
    rows, status, deadline = {}, 0, time.monotonic() + options.seconds
    for name in options.libraries.split(","):
        if importlib.util.find_spec(name) is None:
            print(f"NOT RUN  allocators: {name}: it is not installed")
            status = status or 3
            continue
        try:
            rows[name] = compared(name, options, deadline)
        except Exception as error:
            print(f"FAILED   allocators: {name}: {type(error).__name__}: {error}", flush=True)
            status = 1
            continue
        word = "ok      " if rows[name]["agree"] else "FAILED  "
        status = status if rows[name]["agree"] else 1
        print(f"{word} allocators: {name}: {said(rows[name])}", flush=True)
        with open(os.path.join(options.out, "allocators.json"), "w") as file:
            json.dump(rows, file, indent=1)
    return status


if __name__ == "__main__":
    sys.exit(main())
