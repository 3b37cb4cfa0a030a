"""PyTorch's part of halves.py: reads a request in each line, and answers a line of JSON.

    {"kind": "facts"}
    {"kind": "train", "network": "gpt2", "size": "8", "numbers": "bf16", "backend": "flash", "compiled": "", "seconds": 1}
    {"kind": "attention", "shape": "bf16,64,1024,causal", "backend": "cudnn", "tokens": 16384, "features": 2048, "round_ms": 20}
    {"kind": "layer", "layer": "linear,bf16,16384,768", "round_ms": 20}
    {"kind": "check", "shape": "bf16,64,300,causal"}

Networks, values and losses are those of benches/peers/python/training.py. DEVICE=cpu tries it without a GPU."""

import contextlib
import gc
import json
import os
import sys
import time

os.environ.setdefault("DEVICE", "cuda")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../benches/peers/python")]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from training import CASES, DEVICE, NETWORKS, Values  # noqa: E402

BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
TYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# As in benches/w10.
BOUND, SAMPLES, CHECKED, WARM_UP, SLOW, LOSSES, ROUNDS = 2.0, 64, (2, 3), 3, 4, 5, 3
IS_CUDA = DEVICE == "cuda"


class Remembered(Values):
    """Values that are made once for all batches of a network: those of GPT-2 take seconds."""

    known = {}

    def units(self, elements):
        key = (self.tensors, elements)
        if key in self.known:
            self.tensors += 1
        else:
            self.known[key] = super().units(elements)
        return self.known[key]


def synchronize():
    if IS_CUDA:
        torch.cuda.synchronize()


def begin_peak():
    """Releases idle memory, and returns the bytes that are live already."""
    gc.collect()
    if not IS_CUDA:
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak():
    return (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if IS_CUDA else (0, 0)


def attending(backend):
    if backend not in BACKENDS:
        return contextlib.nullcontext()
    if not hasattr(SDPBackend, BACKENDS[backend]):
        raise RuntimeError(f"No available kernel: this PyTorch does not have {BACKENDS[backend]}")
    return sdpa_kernel(getattr(SDPBackend, BACKENDS[backend]))


def default_backend(q, k, v, is_causal):
    """The backend that PyTorch itself chooses."""
    try:
        return SDPBackend(torch._fused_sdp_choice(q, k, v, None, 0.0, is_causal)).name.lower()
    except Exception as error:
        return f"unknown ({type(error).__name__})"


def facts():
    found = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    if IS_CUDA:
        found["device"], found["capability"] = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        found["cuda"] = torch.version.cuda
    q = torch.zeros(1, 12, 1024, 64, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    return found | {"default_backend": default_backend(q, q, q, True)}


def set_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def train(network, size, numbers, backend, compiled, seconds, **_):
    set_tf32(numbers == "tf32")
    before = begin_peak()
    steps, *sizes = CASES[network][size]
    if network != "gpt2":
        Remembered.known.clear()
    trained = NETWORKS[network](Remembered(), *sizes)
    parameters = sum(own.numel() for own in trained.parameters())
    # Compiled steps have the optimizer of one launch.
    fused = {"fused": True} if compiled else {}
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, weight_decay=0.01, **fused)
    loss_of = torch.compile(trained.loss, mode=None if compiled == "default" else compiled) if compiled else trained.loss
    times, losses = [], []
    with attending(backend):
        while not (len(times) > WARM_UP + 2 and sum(times) > SLOW * seconds):
            if len(times) >= steps and sum(times) > seconds:
                break
            began = time.perf_counter()
            with torch.autocast(DEVICE, torch.bfloat16, enabled=numbers == "bf16"):
                loss = loss_of()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            times.append(time.perf_counter() - began)
    live, reserved = peak()
    del trained, optimizer, loss_of, loss
    if compiled:
        torch._dynamo.reset()
    timed = sorted(times[WARM_UP:])
    return {
        "step_ms": timed[len(timed) // 2] * 1e3,
        "least_ms": timed[0] * 1e3,
        "first_s": times[0],
        "steps": len(timed),
        "losses": losses[:LOSSES],
        "peak_bytes": live - before,
        "peak_reserved_bytes": reserved,
        "parameters": parameters,
    }


def median(once, least):
    def batch(times):
        began = time.perf_counter()
        for _ in range(times):
            once()
        synchronize()
        return time.perf_counter() - began

    batch(1)
    times = 1
    while batch(times) < least:
        times *= 2
    return sorted(batch(times) for _ in range(ROUNDS))[ROUNDS // 2] / times


def attention(shape, backend, tokens, features, round_ms, **_):
    set_tf32(False)
    numbers, width, length, mask = shape.split(",")
    batch, heads = max(tokens // int(length), 1), max(features // int(width), 1)
    size, is_causal = (batch, heads, int(length), int(width)), mask == "causal"
    own = [torch.randn(size, dtype=TYPES[numbers], device=DEVICE, requires_grad=True) for _ in range(3)]
    before, least = begin_peak(), round_ms * 1e-3
    with attending(backend):
        chosen = default_backend(*own, is_causal) if backend == "default" else backend

        def forward():
            return F.scaled_dot_product_attention(*own, is_causal=is_causal)

        forward_s = median(forward, least)
        result = forward()
        gradient = torch.ones_like(result)
        backward_s = median(lambda: torch.autograd.grad(result, own, gradient, retain_graph=True), least)
    return {
        "forward_ms": forward_s * 1e3,
        "backward_ms": backward_s * 1e3,
        "backend": chosen,
        "peak_bytes": peak()[0] - before,
    }


def layer(layer, round_ms, **_):
    set_tf32(False)
    kind, numbers, rows, width = layer.split(",")
    rows, width, least = int(rows), int(width), round_ms * 1e-3
    shapes = [(rows, width), (width,) if kind == "layer_norm" else (width, width), (width,)]
    own = [torch.randn(shape, dtype=TYPES[numbers], device=DEVICE, requires_grad=True) for shape in shapes]
    before = begin_peak()

    def forward():
        x, weight, bias = own
        return F.layer_norm(x, (width,), weight, bias) if kind == "layer_norm" else F.linear(x, weight, bias)

    forward_s = median(forward, least)
    result = forward()
    gradient = torch.ones_like(result)
    backward_s = median(lambda: torch.autograd.grad(result, own, gradient, retain_graph=True), least)
    return {"forward_ms": forward_s * 1e3, "backward_ms": backward_s * 1e3, "peak_bytes": peak()[0] - before}


def sample(array):
    flat = array.detach().reshape(-1)
    count = min(SAMPLES, flat.numel())
    return [float(flat[at * flat.numel() // count]) for at in range(count)]


def check(shape, **_):
    """Elements of the attention of a small batch, and of the gradients of a sum of its squares, in double precision from
    operands that have the shape's type."""
    numbers, width, length, mask = shape.split(",")
    values, is_causal = Values(), mask == "causal"
    own = [values.uniform((*CHECKED, int(length), int(width)), BOUND).to(TYPES[numbers]) for _ in range(3)]
    own = [operand.double().requires_grad_() for operand in own]
    with sdpa_kernel(SDPBackend.MATH):
        result = F.scaled_dot_product_attention(*own, is_causal=is_causal)
        gradients = torch.autograd.grad(result.square().sum(), own)
    named = zip(("result", "q", "k", "v"), (result, *gradients))
    return {name: sample(array) for name, array in named}


KINDS = {"facts": facts, "train": train, "attention": attention, "layer": layer, "check": check}


def main():
    answers = os.fdopen(os.dup(1), "w")
    # Libraries print to the standard output.
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = KINDS[request.pop("kind")](**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
