"""Makes `half.npz`: the losses of two networks that PyTorch trains in `f32`, and by autocast in `bf16` and `f16`.

    python3 -m venv venv && venv/bin/pip install numpy torch
    venv/bin/python tests/reference/torch_half.py

`tests/operations/tests/grad/half_training.rs` trains the networks of the same names with equal data, initial values and
batches. For the first of five initial values, the file has the losses of the first 100 steps, and the gradients of the
first step of `mlp`. The script prints means over all five. The scaler of `f16` is `GradScaler`. PyTorch 2.15 wrote the
present file.
"""

import gzip
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
ROOT = pathlib.Path(__file__).parent.parent.parent
STEPS, BATCH, TRAIN, SEEDS = 300, 50, 1500, 5
out = {}


def numbers(seed, shape):
    """Equally distributed from -1 to 1, multiples of 2^-23: an integer hash of the position (MurmurHash3's last steps)."""
    x = (np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(seed * 1_000_003)) * np.uint32(0x9E3779B9)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    x = (x ^ (x >> np.uint32(16))) >> np.uint32(8)
    return torch.tensor((x.astype(np.float64) / 2**23 - 1).reshape(shape).astype(np.float32))


def initialize(network, seed):
    """Matrices get numbers of a size of 1 / sqrt(inputs), in the order of the parameters; vectors keep zeros or ones."""
    for number, (name, own) in enumerate(network.named_parameters()):
        if own.ndim > 1:
            own.data = numbers(100 * seed + number, tuple(own.shape)) / np.float32(np.sqrt(own.shape[-1]))
        elif name.endswith("bias"):
            own.data.zero_()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.out(F.relu(self.hidden(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.qkv, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.second, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        count, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(count, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.project(seen)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Reads an image as a sequence of its rows."""

    def __init__(self, width=32):
        super().__init__()
        self.embed, self.places = nn.Linear(8, width), nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.embed(x.reshape(-1, 8, 8)) + self.places
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x).mean(1))


lines = np.loadtxt(gzip.open(ROOT / "examples/data/digits.csv.gz", "rt"), delimiter=",", dtype=np.int64)
lines = lines[np.arange(len(lines)) * 1000 % len(lines)]  # the writers, mixed
images, labels = torch.tensor(lines[:, :64] / 16, dtype=torch.float32), torch.tensor(lines[:, 64])


def train(name, make, make_optimizer, precision, seed):
    network = make()
    initialize(network, seed)
    optimizer = make_optimizer(network)
    dtype = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[precision]
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "f16")
    losses = []
    for step in range(STEPS):
        rows = (torch.arange(BATCH) + step * BATCH) % TRAIN
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(network(images[rows]).float(), labels[rows])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if name == "mlp" and step == seed == 0:
            out.update({f"{name}.{precision}.{key}": own.grad.numpy().copy() for key, own in network.named_parameters()})
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    with torch.no_grad():
        right = (network(images[TRAIN:]).argmax(1) == labels[TRAIN:]).float().mean().item()
    if seed == 0:
        out[f"{name}.{precision}.losses"] = np.array(losses[:100], np.float32)
    return np.mean(losses[-50:]), 100 * right


def report(name, make, make_optimizer):
    for precision in ("f32", "bf16", "f16"):
        runs = np.array([train(name, make, make_optimizer, precision, seed) for seed in range(SEEDS)])
        (least, _), (most, _), (loss, right) = runs.min(0), runs.max(0), runs.mean(0)
        print(f"{name} in {precision}: loss {loss:.4f} ({least:.4f} to {most:.4f}), {right:.1f} % right")


report("mlp", Mlp, lambda network: torch.optim.SGD(network.parameters(), 0.05, 0.9))
report("transformer", Transformer, lambda network: torch.optim.AdamW(network.parameters(), 2e-3))
np.savez_compressed(pathlib.Path(__file__).parent / "half.npz", **out)
