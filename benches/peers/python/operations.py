"""Operations on whole arrays on the host beside NumPy's, on one thread. (BENCHMARKS: W6, the operations of part two.)

    cargo build --profile bench --manifest-path benches/peers/Cargo.toml --example operations
    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python benches/peers/python/operations.py benches/peers/target/release/examples/operations

Each round times a batch of both; what is printed are the medians, and the median of NumPy's times over this library's:
above 1 this library is faster. Where NumPy has no such function the usual formula stands for it. Matrices have SIDE rows
and columns. Options: --rounds N, and names of operations.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

for name in ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

BATCH_SECONDS = 0.02
SIDES = (256, 2048)
DECOMPOSED = (64, 512)
rng = np.random.default_rng(1)


def rand(*shape, dtype=np.float32):
    return rng.random(shape, dtype=dtype)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return e


def attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    scores[..., ~np.tri(q.shape[-2], k.shape[-2], dtype=bool)] = -np.inf
    return softmax(scores) @ v


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * weight + bias


def cross_entropy(x, classes):
    top = x.max(-1, keepdims=True)
    logs = np.log(np.exp(x - top).sum(-1)) + top[:, 0]
    return (logs - np.take_along_axis(x, classes[:, None], 1)[:, 0]).mean()


def scatter(x, index, source):
    x[index] = source


def masked_assign(x, mask):
    x[mask] = 2


def pooled(x, fold):
    rows, columns = x.shape
    return fold(x.reshape(rows // 2, 2, columns // 2, 2), axis=(1, 3))


def integers(n, below=1000, dtype=np.int32):
    return rng.integers(0, below, n * n, dtype=dtype)


def regular(n):
    return rand(n, n, dtype=np.float64) + n * np.eye(n)


def symmetric(n):
    a = rand(n, n, dtype=np.float64)
    return a + a.T


def spectra(n):
    return rand(n, n, dtype=np.float64) + 1j * rand(n, n, dtype=np.float64)


# What is made before the clock starts, and what is timed.
OPERATIONS = {
    "nonzero": (lambda n: (rand(n * n) > 0.5,), np.argwhere),
    "select_by": (lambda n: (x := rand(n * n), x > 0.5), lambda x, mask: x[mask]),
    "masked_assign": (lambda n: (x := rand(n * n), x > 0.5), masked_assign),
    "scatter": (lambda n: (rand(n * n), rng.permutation(n * n), rand(n * n)), scatter),
    "scatter along rows": (
        lambda n: (rand(n, n), rng.integers(0, n, (n, n)), rand(n, n)),
        lambda x, index, source: np.put_along_axis(x, index, source, -1),
    ),
    "scatter_add": (lambda n: (rand(n * n), rng.permutation(n * n), rand(n * n)), np.add.at),
    "take": (lambda n: (rand(n * n), rng.permutation(n * n)), lambda x, index: x[index]),
    "cumprod": (lambda n: (rand(n, n),), lambda x: np.cumprod(x, -1)),
    "diff": (lambda n: (rand(n, n),), np.diff),
    "roll": (lambda n: (rand(n, n),), lambda x: np.roll(x, 3, -1)),
    "median": (lambda n: (rand(n, n),), lambda x: np.median(x, -1)),
    "quantile": (lambda n: (rand(n, n),), lambda x: np.quantile(x, 0.3, -1)),
    "unique": (lambda n: (integers(n),), np.unique),
    "unique of floats": (lambda n: (rand(n * n),), np.unique),
    "sort": (lambda n: (rand(n * n),), np.sort),
    "searchsorted": (lambda n: (np.sort(rand(n * n)), rand(n * n)), np.searchsorted),
    "bincount": (lambda n: (integers(n, 256, np.int64),), lambda x: np.bincount(x, minlength=256)),
    "histogram": (lambda n: (rand(n * n),), lambda x: np.histogram(x, 64)),
    "topk": (lambda n: (rand(n * n),), lambda x: -np.sort(np.partition(-x, 10)[:10])),
    "topk, indices": (lambda n: (rand(n * n),), lambda x: np.argpartition(x, -10)[-10:]),
    "topk 1000, indices": (lambda n: (rand(n * n),), lambda x: np.argpartition(x, -1000)[-1000:]),
    "bit and": (lambda n: (integers(n),), lambda x: x & 255),
    "shift": (lambda n: (integers(n),), lambda x: x << 3),
    "integer powi": (lambda n: (integers(n),), lambda x: x**3),
    "integer square": (lambda n: (integers(n),), lambda x: x**2),
    "integer powi 20": (lambda n: (integers(n),), lambda x: x**20),
    "i64 powi": (lambda n: (integers(n, dtype=np.int64),), lambda x: x**3),
    "windows sum": (lambda n: (rand(n, n),), lambda x: np.lib.stride_tricks.sliding_window_view(x, 8, -1).sum(-1)),
    "pad reflect": (lambda n: (rand(n, n),), lambda x: np.pad(x, 2, "reflect")),
    "max_pool2d": (lambda n: (rand(n, n),), lambda x: pooled(x, np.max)),
    "avg_pool2d": (lambda n: (rand(n, n),), lambda x: pooled(x, np.mean)),
    "cross_entropy": (lambda n: (rand(n, n), rng.integers(0, n, n)), cross_entropy),
    "layer_norm": (lambda n: (rand(n, n), rand(n), rand(n)), layer_norm),
    "rms_norm": (
        lambda n: (rand(n, n), rand(n)),
        lambda x, weight: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * weight,
    ),
    "attention": (lambda n: tuple(rand(n // 64, 8, 128, 64) for _ in range(3)), attention),
    "einsum ij,kj->ik": (lambda n: (rand(n, n), rand(n, n)), lambda a, b: np.einsum("ij,kj->ik", a, b, optimize=True)),
    "einsum ij,ij->i": (lambda n: (rand(n, n), rand(n, n)), lambda a, b: np.einsum("ij,ij->i", a, b, optimize=True)),
    "einsum ij->ji": (lambda n: (rand(n, n),), lambda a: np.einsum("ij->ji", a).copy()),
    "kron": (lambda n: (rand(n // 8, n // 8), rand(8, 8)), np.kron),
    "small @ many": (lambda n: (rand(2, 2), rand(n * n // 4, 2, 2)), np.matmul),
    "many @ small": (lambda n: (rand(n * n // 4, 2, 2), rand(2, 2)), np.matmul),
    "fft": (lambda n: (spectra(n),), np.fft.fft),
    "fft f32": (lambda n: (spectra(n).astype(np.complex64),), np.fft.fft),
    "fft of columns": (lambda n: (spectra(n),), lambda z: np.fft.fft(z, axis=0)),
    "fft of one row": (lambda n: (spectra(n).ravel(),), np.fft.fft),
    "ifft": (lambda n: (spectra(n),), np.fft.ifft),
    "rfft": (lambda n: (rand(n, n, dtype=np.float64),), np.fft.rfft),
    "irfft": (lambda n: (np.fft.rfft(rand(n, n, dtype=np.float64)), n), np.fft.irfft),
    "fft2": (lambda n: (spectra(n),), np.fft.fft2),
    "solve": (lambda n: (regular(n), rand(n, 8, dtype=np.float64)), np.linalg.solve),
    "inv": (lambda n: (regular(n),), np.linalg.inv),
    "det": (lambda n: (regular(n),), np.linalg.det),
    "cholesky": (lambda n: (symmetric(n) + n * np.eye(n),), np.linalg.cholesky),
    "qr": (lambda n: (regular(n),), np.linalg.qr),
    "svd": (lambda n: (rand(n, n, dtype=np.float64),), lambda a: np.linalg.svd(a, full_matrices=False)),
    "eigh": (lambda n: (symmetric(n),), np.linalg.eigh),
    "lstsq": (
        lambda n: (rand(2 * n, n, dtype=np.float64), rand(2 * n, dtype=np.float64)),
        lambda a, b: np.linalg.lstsq(a, b, rcond=None),
    ),
}
OF_MATRICES = {"solve", "inv", "det", "cholesky", "qr", "svd", "eigh", "lstsq"}
# Beside candle: NumPy has none.
CONVOLUTION = ("conv2d", "conv2d of candle", 64)


class Server:
    """cachescope's program, which does what it is told and answers how long it took."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def runner(self, name, side):
        def run(n):
            self.process.stdin.write(f"{name} {side} {n}\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline()) * 1e-9

        return run


def timed(once, operands):
    def run(n):
        start = time.perf_counter()
        for _ in range(n):
            once(*operands)
        return time.perf_counter() - start

    return run


def batch(run):
    """How often to do it so that the clock is fine enough."""
    run(1)
    times = 1
    while (seconds := run(times)) < BATCH_SECONDS:
        times = max(2 * times, int(times * BATCH_SECONDS / max(seconds, 1e-9)))
    return times


def race(title, ours, theirs, rounds):
    times = [batch(run) for run in (ours, theirs)]
    pairs = [[run(n) / n for run, n in zip((ours, theirs), times)] for _ in range(rounds)]
    median = statistics.median(own for own, _ in pairs)
    ratio = statistics.median(other / own for own, other in pairs)
    print(f"{title:<28} {median * 1e6:>12.1f} µs {ratio:>8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print("numpy", np.__version__)
    for name, (prepare, once) in OPERATIONS.items():
        if options.names and name not in options.names:
            continue
        for side in DECOMPOSED if name in OF_MATRICES else SIDES:
            server = Server(options.program)
            race(f"{name} {side}", server.runner(name, side), timed(once, prepare(side)), options.rounds)
            server.process.kill()
    own, candle, channels = CONVOLUTION
    if not options.names or own in options.names:
        servers = [Server(options.program) for _ in range(2)]
        runs = [server.runner(name, channels) for server, name in zip(servers, (own, candle))]
        race(f"{own} beside candle", *runs, options.rounds)
        for server in servers:
            server.process.kill()


if __name__ == "__main__":
    main()
