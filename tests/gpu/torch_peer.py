"""PyTorch as one of the benchmark's peers: see peers.py."""

import ctypes
import glob
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

from peers import CLASSES, LEARNING_RATE, MOMENTUM, elements, read_digits, timed

# What a C++ program would call, so that no interpreter is timed.
SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
#include <cstdint>
#include <vector>

extern "C" {
double pairs(int64_t bytes, int64_t times);
double churn(int64_t bytes, int64_t live, const int64_t* order, int64_t count, int64_t times);
double replay(const int64_t* slots, const int64_t* sizes, int64_t count, int64_t slot_count, int64_t times);
}

namespace allocator = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;

static double nanos_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double pairs(int64_t bytes, int64_t times) {
    auto start = Clock::now();
    for (int64_t i = 0; i < times; i++) {
        allocator::raw_delete(allocator::raw_alloc(bytes));
    }
    return nanos_since(start);
}

double churn(int64_t bytes, int64_t live, const int64_t* order, int64_t count, int64_t times) {
    std::vector<void*> blocks(live);
    for (void*& block : blocks) block = allocator::raw_alloc(bytes);
    auto start = Clock::now();
    for (int64_t i = 0; i < times; i++) {
        void*& block = blocks[order[i % count]];
        allocator::raw_delete(block);
        block = allocator::raw_alloc(bytes);
    }
    double nanos = nanos_since(start);
    for (void* block : blocks) allocator::raw_delete(block);
    return nanos;
}

double replay(const int64_t* slots, const int64_t* sizes, int64_t count, int64_t slot_count, int64_t times) {
    std::vector<void*> blocks(slot_count);
    auto start = Clock::now();
    for (int64_t i = 0; i < times; i++) {
        for (int64_t step = 0; step < count; step++) {
            void*& block = blocks[slots[step]];
            if (sizes[step] == 0) {
                allocator::raw_delete(block);
            } else {
                block = allocator::raw_alloc(sizes[step]);
            }
        }
    }
    return nanos_since(start);
}
"""


class PythonAllocator:
    """The same functions from Python, where there is no C++ compiler."""

    label = "PyTorch (from Python)"

    @staticmethod
    def pairs(size, times):
        allocate, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
        start = time.perf_counter()
        for _ in range(times):
            free(allocate(size))
        return (time.perf_counter() - start) * 1e9

    @staticmethod
    def churn(size, live, order, times):
        allocate, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
        blocks = [allocate(size) for _ in range(live)]
        start = time.perf_counter()
        for step in range(times):
            slot = order[step % len(order)]
            free(blocks[slot])
            blocks[slot] = allocate(size)
        nanos = (time.perf_counter() - start) * 1e9
        for block in blocks:
            free(block)
        return nanos

    @staticmethod
    def replay(slots, sizes, slot_count, times):
        allocate, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
        blocks = [None] * slot_count
        start = time.perf_counter()
        for _ in range(times):
            for slot, size in zip(slots, sizes):
                if size:
                    blocks[slot] = allocate(size)
                else:
                    free(blocks[slot])
        return (time.perf_counter() - start) * 1e9


class CppAllocator:
    label = "PyTorch (C++)"

    def __init__(self):
        self.library = compiled()
        for name in ("pairs", "churn", "replay"):
            getattr(self.library, name).restype = ctypes.c_double

    def pairs(self, size, times):
        return self.library.pairs(ctypes.c_int64(size), ctypes.c_int64(times))

    def churn(self, size, live, order, times):
        numbers = map(ctypes.c_int64, (len(order), times))
        return self.library.churn(ctypes.c_int64(size), ctypes.c_int64(live), array_of(order), *numbers)

    def replay(self, slots, sizes, slot_count, times):
        numbers = map(ctypes.c_int64, (len(slots), slot_count, times))
        return self.library.replay(array_of(slots), array_of(sizes), *numbers)


def array_of(numbers):
    return (ctypes.c_int64 * len(numbers))(*numbers)


def cuda_headers():
    """A folder with what PyTorch's header wants: of the toolkit, which has all of CUDA's headers, or of the packages
    for Python, which have some of them."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    places += [os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else None, "/usr/local/cuda"]
    places += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    patterns = ["include", "targets/*/include", "nvidia/cuda_runtime/include", "nvidia/cu1*/include"]
    found = [path for place in places if place for pattern in patterns for path in glob.glob(f"{place}/{pattern}")]
    needed = ("cuda_runtime_api.h", "crt/host_defines.h")
    for path in found:
        if all(os.path.exists(f"{path}/{name}") for name in needed):
            return path
    raise FileNotFoundError(f"no folder with {' and '.join(needed)}")


def compiled():
    """The functions above as a library. By the compiler alone: PyTorch's own way wants ninja beside it, and includes
    its header for modules, which takes a minute to compile."""
    names = (os.environ.get("CXX"), "g++", "c++", "clang++")
    compiler = next((name for name in names if name and shutil.which(name)), None)
    if compiler is None:
        raise FileNotFoundError("no C++ compiler")
    folder, own = tempfile.mkdtemp(), os.path.dirname(torch.__file__)
    source, library = os.path.join(folder, "allocator.cpp"), os.path.join(folder, "allocator.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    command = [compiler, "-O2", "-fPIC", "-shared", source, "-o", library, f"-I{own}/include", f"-I{cuda_headers()}"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-L{own}/lib", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{own}/lib"]
    # Which of them PyTorch's headers are written in depends on its version.
    for standard in ("c++17", "c++20"):
        ended = subprocess.run([*command, f"-std={standard}"], capture_output=True, text=True, timeout=120)
        if ended.returncode == 0:
            return ctypes.CDLL(library)
    lines = ended.stderr.splitlines() or ["the compiler failed"]
    raise RuntimeError(next((line for line in lines if "error" in line), lines[0]))


class TorchPeer:
    name = "PyTorch"

    def __init__(self, device):
        # Products in single precision, as the others'.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.device, self.is_cuda = torch.device(device), device != "cpu"
        self.version = f"PyTorch {torch.__version__}"
        self.notes, self.allocator, self.operands = [], None, (0, None)
        torch.zeros(1, device=self.device)
        self.synchronize()
        if not self.is_cuda:
            return
        try:
            self.allocator = CppAllocator()
            self.notes.append("PyTorch's allocator is called from C++.")
        except Exception as error:
            self.allocator = PythonAllocator()
            first = str(error).strip().splitlines()[:1]
            self.notes.append(f"PyTorch's allocator is called from Python: {type(error).__name__} {first}")

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def give_back(self):
        if self.is_cuda:
            torch.cuda.empty_cache()

    def allocations(self, nanos_of, pieces=1, extra=dict):
        def run(times):
            return nanos_of(times) * 1e-9, times * pieces

        return {self.allocator.label: (run, extra, None)}

    def pairs(self, size):
        if self.allocator is None:
            return {}
        return self.allocations(lambda times: self.allocator.pairs(size, times))

    def churn(self, size, facts):
        if self.allocator is None:
            return {}
        live, order = facts["live"], facts["order"]
        return self.allocations(lambda times: self.allocator.churn(size, live, order, times))

    def random(self, program):
        if self.allocator is None:
            return {}
        slots, sizes, count = program["slots"], program["sizes"], program["slot_count"]
        self.operands = (0, None)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()

        def extra():
            reserved = torch.cuda.max_memory_reserved() - before
            return {"peak_reserved_bytes": reserved, "peak_live_bytes": program["peak_live_bytes"]}

        return self.allocations(lambda times: self.allocator.replay(slots, sizes, count, times), len(slots), extra)

    def summary(self, result, samples=64):
        flat = result.reshape(-1)
        count = flat.numel()
        samples = min(samples, count)
        positions = torch.tensor([n * count // samples for n in range(samples)], device=self.device)
        mean = float(flat.double().mean())
        return {"count": count, "sample": flat[positions].tolist(), "mean": mean}

    def matrices(self, size):
        if self.operands[0] != size:
            self.operands = (0, None)
            side = int(round(size**0.5))
            made = [elements(numpy, which, size).reshape(side, side) for which in range(4)]
            a, b, c, d = (torch.from_numpy(matrix).to(self.device) for matrix in made)
            row = torch.from_numpy(elements(numpy, 2, side)).to(self.device)
            self.operands = (size, (a, b, c, d, row, row.reshape(side, 1), torch.zeros_like(a)))
        return self.operands[1]

    def operation(self, name, size):
        a, b, c, d, row, column, out = self.matrices(size)
        once = {
            "assign": lambda: out.copy_(a),
            "a+b": lambda: a + b,
            "a+b.T": lambda: a + b.t(),
            "a+row": lambda: a + row,
            "a+column": lambda: a + column,
            "fused": lambda: torch.sin(a * b + c) * 2 - d,
            "exp": lambda: torch.exp(a),
            "tanh": lambda: torch.tanh(a),
            "softmax": lambda: torch.softmax(a, 1),
            "sum": lambda: a.sum(),
            "sum_axis0": lambda: a.sum(0),
            "sum_axis1": lambda: a.sum(1),
            "matmul": lambda: a @ b,
        }[name]
        return {self.name: (timed(once, self.synchronize), dict, lambda: self.summary(once()))}

    def chain(self, count):
        def once():
            return torch.sin(torch.rand(count, device=self.device))

        return {self.name: (timed(once, self.synchronize), dict, lambda: {"mean": float(once().mean())})}

    def digits(self, facts, path):
        made = {}
        steps = [("PyTorch, eager", TorchStep)]
        if self.is_cuda:
            steps.append(("PyTorch, graph", TorchGraph))
        for name, make in steps:
            step = make(self.device, facts, path)

            def result(step=step):
                while step.next < facts["steps"]:
                    step.once()
                # Its loss is the mean of a batch, the other's the sum.
                return {"total_loss": float(step.total_loss) * len(facts["batches"][0])}

            made[name] = (timed(step.once, self.synchronize), dict, result)
        return made


class TorchStep:
    """The training step as one writes it in PyTorch."""

    def __init__(self, device, facts, path):
        images, labels = read_digits(path)
        units = facts["hidden_units"]
        self.images = torch.from_numpy(images).to(device)
        self.labels = torch.from_numpy(labels).to(device)
        self.batches = [torch.tensor(batch, device=device) for batch in facts["batches"]]
        self.model = nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, CLASSES)).to(device)
        with torch.no_grad():
            for layer, name in ((self.model[0], "hidden"), (self.model[2], "output")):
                # A layer's weights are the transpose of the example's.
                weights = torch.tensor(facts[name], dtype=torch.float32).reshape(layer.weight.shape[::-1])
                layer.weight.copy_(weights.t())
                layer.bias.zero_()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self.total_loss = torch.zeros((), device=device)
        self.next = 0

    def next_batch(self):
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        return batch

    def learn(self, batch):
        loss = functional.cross_entropy(self.model(self.images[batch]), self.labels[batch])
        loss.backward()
        self.optimizer.step()
        self.total_loss += loss.detach()

    def once(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.learn(self.next_batch())


class TorchGraph(TorchStep):
    """The same in a CUDA graph, which reads the batch from where its indices are put."""

    def __init__(self, device, facts, path):
        super().__init__(device, facts, path)
        self.indices = torch.zeros_like(self.batches[0])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.indices.copy_(self.next_batch())
                self.optimizer.zero_grad(set_to_none=True)
                self.learn(self.indices)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.learn(self.indices)

    def once(self):
        self.indices.copy_(self.next_batch())
        self.graph.replay()
