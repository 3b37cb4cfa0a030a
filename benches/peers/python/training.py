"""The training of `examples/training`, by PyTorch on the processor. (BENCHMARKS: W10, training with gradients.)

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python benches/peers/python/training.py torch gpt small
    venv/bin/python benches/peers/python/training.py all

Networks, sizes, values and rows are those of `examples/training`, whose text says what is counted; losses of the first
steps agree with it. One thread. A case is trained twice, each time in a process of its own:

- `torch`: peak and growth by the profiler's events of PyTorch's allocator for the processor, which give exactly the bytes of
  its live tensors. What oneDNN and MKL allocate for themselves is not among them, nor are Python's objects. The network is
  made under the profiler, so that it sees every tensor. Times are those of the other process.
- `torch_resident`: peak and growth of the resident set (VmHWM after the training above VmRSS before the network was made), with
  all that. A network of almost no size is trained before, so that most of what a first step imports and loads (some 180 MB
  in a GPT's case) is not counted.

With `CHECKPOINT=1`, each block of the GPT, and each convolution of the CNN with its activation and pool, is a
`torch.utils.checkpoint`: the backward pass runs it again.

With `DEVICE=cuda` the networks are on a GPU. Then there is one row, `torch_cuda`, whose peak and growth are those that
`torch.cuda` counts, and one case more, a GPT of GPT-2's depth and width. `tests/gpu` trains the networks in half precision, and GPT-2 itself.

Attention is `F.scaled_dot_product_attention`, whose kernel for the processor never has all scores. Optimizer: `torch.optim.AdamW`
as its defaults are.
"""

import os
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
# "cuda", or the processor.
DEVICE = os.environ.get("DEVICE", "cpu")
torch.set_default_device(DEVICE)
# Products of full precision, as this library's are.
torch.backends.cudnn.allow_tf32 = False

# Steps, and layers, width, heads, length, batch.
GPTS = {"small": (20, 2, 128, 4, 128, 8), "medium": (10, 4, 256, 8, 256, 4), "large": (7, 6, 384, 6, 256, 8),
        "gpt2": (12, 12, 768, 12, 512, 8), "tiny": (5, 1, 64, 2, 16, 2)}
# Steps, and channels, batch.
CNNS = {"small": (20, 16, 64), "medium": (10, 32, 128), "large": (7, 64, 256), "tiny": (5, 2, 4)}
# GPT-2 with 124 million parameters: as a GPT, and vocabulary, a head that is the embedding. For a GPU.
GPT2S = {size: (12, 12, 768, 12, 1024, int(size), 50257, True) for size in ("8", "16", "64")}
GPT2S["tiny"] = (5, 1, 64, 2, 16, 2, 256, True)
CASES = {"gpt": GPTS, "cnn": CNNS, "gpt2": GPT2S}
VOCABULARY, CLASSES, SIDE, FEATURES = 256, 10, 28, 128
EMBEDDED = np.float32(0.05)
WARM_UP, SETTLED, TOLD, LONG_SECONDS = 2, 3, 3, 5.0
# Whether layers are run again in the backward pass.
CHECKPOINT = os.environ.get("CHECKPOINT") == "1"
# In a profile, the end of a step.
MARK = "end of step"
HEADING = "framework,network,size,peak_bytes,step_ms,growth_bytes"


class Values:
    """Initial values and inputs, as `values.rs` says, in memory that is PyTorch's own, so that it is counted."""

    def __init__(self):
        self.tensors = 0

    def bits(self, elements):
        z = np.arange(elements, dtype=np.uint64) + np.uint64((self.tensors << 32) + 1)
        self.tensors += 1
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def units(self, elements):
        """The next tensor with values that are uniform in [-1, 1)."""
        return (self.bits(elements) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24) * 2 - 1

    def uniform(self, shape, bound):
        values = self.units(int(np.prod(shape))) * np.float32(bound)
        return torch.from_numpy(values.reshape(shape)).to(DEVICE, copy=True)

    def below(self, shape, limit):
        numbers = (self.bits(int(np.prod(shape))) >> np.uint64(32)) % np.uint64(limit)
        return torch.from_numpy(numbers.astype(np.int64).reshape(shape)).to(DEVICE, copy=True)

    def fill(self, layer):
        """A layer with weight and bias, bounded as PyTorch bounds them; the bias may be missing."""
        bound = np.float32(1) / np.sqrt(np.float32(layer.weight[0].numel()))
        with torch.no_grad():
            layer.weight.copy_(self.uniform(tuple(layer.weight.shape), bound))
            if layer.bias is not None:
                layer.bias.copy_(self.uniform(tuple(layer.bias.shape), bound))
        return layer

    def embedding(self, rows, width):
        return nn.Embedding.from_pretrained(self.uniform((rows, width), EMBEDDED), freeze=False)


def layer(function, x):
    return checkpoint(function, x, use_reentrant=False) if CHECKPOINT else function(x)


class Block(nn.Module):
    def __init__(self, values, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = values.fill(nn.Linear(width, 3 * width))
        self.out = values.fill(nn.Linear(width, width))
        self.wide = values.fill(nn.Linear(width, 4 * width))
        self.narrow = values.fill(nn.Linear(4 * width, width))

    def attention(self, x):
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, values, layers, width, heads, length, batch, vocabulary=VOCABULARY, tied=False):
        super().__init__()
        self.tokens = values.embedding(vocabulary, width)
        self.positions = values.embedding(length, width)
        self.blocks = nn.Sequential(*[Block(values, width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)
        self.head = None if tied else values.fill(nn.Linear(width, vocabulary, bias=False))
        text = values.below((batch, length + 1), vocabulary)
        self.inputs, self.targets = text[:, :-1].contiguous(), text[:, 1:].reshape(-1)
        self.places = torch.arange(length)

    def loss(self):
        x = self.tokens(self.inputs) + self.positions(self.places)
        for block in self.blocks:
            x = layer(block, x)
        x = self.last(x)
        logits = self.head(x) if self.head else F.linear(x, self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), self.targets)


class Cnn(nn.Module):
    def __init__(self, values, channels, batch):
        super().__init__()
        flat = 2 * channels * (SIDE // 4) ** 2
        self.first = values.fill(nn.Conv2d(1, channels, 3, padding=1))
        self.second = values.fill(nn.Conv2d(channels, 2 * channels, 3, padding=1))
        self.features = values.fill(nn.Linear(flat, FEATURES))
        self.classes = values.fill(nn.Linear(FEATURES, CLASSES))
        self.images = values.uniform((batch, 1, SIDE, SIDE), 1.0)
        self.targets = values.below((batch,), CLASSES)

    def loss(self):
        x = self.images
        for convolution in (self.first, self.second):
            x = layer(lambda x, own=convolution: F.max_pool2d(F.relu(own(x)), 2), x)
        x = F.relu(self.features(x.flatten(1)))
        return F.cross_entropy(self.classes(x), self.targets)


NETWORKS = {"gpt": Gpt, "cnn": Cnn, "gpt2": Gpt}


def start(network, sizes):
    """A network with its optimizer and its inputs; returned is what does one step and tells the loss before it."""
    trained = NETWORKS[network](Values(), *sizes)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, weight_decay=0.01)

    def step():
        loss = trained.loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def warm(network):
    """Trains a network of almost no size, for most of what is loaded and imported by the first step of a process."""
    start(network, {"cnn": (1, 1)}.get(network, (1, 8, 1, 4, 1)))()


def status_bytes(name):
    with open("/proc/self/status") as status:
        row = next(line for line in status if line.startswith(name))
    return int(row.split()[1]) << 10


def resident(network, size, live=lambda: status_bytes("VmRSS:")):
    """Peak, time of a step in ms, and growth, by the resident set; or growth of what is live."""
    steps, *sizes = CASES[network][size]
    warm(network)
    before = status_bytes("VmRSS:")
    if status_bytes("VmHWM:") > before:
        # Imports had more for a while: the peak starts anew.
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    step, times = start(network, sizes), []
    processor = time.process_time()
    while len(times) < steps:
        began = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - began)
        if len(times) <= TOLD:
            print(f"torch {network},{size}: loss {len(times)} is {loss:.6f}", file=sys.stderr)
        if len(times) == SETTLED:
            settled = live()
        if times[-1] > LONG_SECONDS:
            steps = min(steps, WARM_UP + 3)
    busy = (time.process_time() - processor) / sum(times)
    print(f"torch {network},{size}: {steps} steps, processor time {busy:.2f} of the time", file=sys.stderr)
    growth = live() - settled
    timed = sorted(times[WARM_UP:])
    return status_bytes("VmHWM:") - before, timed[len(timed) // 2] * 1e3, growth


def allocations(events):
    """The profiler's events of the allocator: when, and bytes that came (or, below 0, went)."""
    for event in events:
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            yield event.start_ns(), event.nbytes()


def profiled(network, size):
    """Peak and growth by the events of the allocator."""
    steps, *sizes = CASES[network][size]
    warm(network)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = start(network, sizes)
        for _ in range(steps):
            step()
            with record_function(MARK):
                pass
    events = profiler.profiler.kineto_results.events()
    marks = sorted(event.start_ns() for event in events if event.name() == MARK)
    live = peak = 0
    at_marks = []
    for when, count in sorted(allocations(events), key=lambda row: row[0]):
        while len(at_marks) < len(marks) and marks[len(at_marks)] <= when:
            at_marks.append(live)
        live += count
        peak = max(peak, live)
    at_marks += [live] * (len(marks) - len(at_marks))
    return peak, at_marks[-1] - at_marks[SETTLED - 1]


def allocated(network, size):
    """Peak, time of a step in ms, and growth, by the count of PyTorch's allocator for a GPU."""
    live, peak = torch.cuda.memory_allocated, torch.cuda.max_memory_allocated
    _, step_ms, growth = resident(network, size, live)
    return peak(), step_ms, growth


def apart(how, network, size):
    """What `how` tells of a case in a process of its own."""
    command = [sys.executable, __file__, how, network, size]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def train(network, size):
    if DEVICE == "cuda":
        peak, step_ms, growth = apart("allocated", network, size)
        print(f"torch_cuda,{network},{size},{peak},{float(step_ms):.3f},{growth}", flush=True)
        return
    peak, step_ms, growth = apart("resident", network, size)
    tensors, tensor_growth = apart("profiled", network, size)
    name = "torch_checkpoint" if CHECKPOINT else "torch"
    print(f"{name},{network},{size},{tensors},{float(step_ms):.2f},{tensor_growth}")
    print(f"{name}_resident,{network},{size},{peak},{float(step_ms):.2f},{growth}", flush=True)


def main():
    match sys.argv[1:]:
        case ["resident", network, size]:
            print(*resident(network, size))
        case ["profiled", network, size]:
            print(*profiled(network, size))
        case ["allocated", network, size]:
            print(*allocated(network, size))
        case ["torch", network, size]:
            print(HEADING, flush=True)
            train(network, size)
        case ["torch"] | ["all"]:
            print(HEADING, flush=True)
            for network, sizes in CASES.items():
                for size in sizes:
                    # The processor would take a minute a step.
                    if network != "gpt2" and size != "tiny" and (size != "gpt2" or DEVICE == "cuda"):
                        train(network, size)
        case _:
            sys.exit("usage: training.py all | training.py torch [NETWORK SIZE]")


if __name__ == "__main__":
    main()
