"""Gradients of gradients beside JAX's, on one thread. (BENCHMARKS: W10, second-order steps.)

    cargo bench --no-run --profile release --bench second_order
    python3 -m venv venv && venv/bin/pip install jax numpy
    taskset -c 0 venv/bin/python benches/peers/python/second_order.py PROGRAM

The first command prints the path of PROGRAM. A step is a loss with the gradients of all parameters. Each round times a
batch of both; what is printed are the medians, and the median of JAX's times over this library's: above 1 this library
is faster. JAX compiles its steps before (`jit`). The processor's affinity limits JAX to one thread. Option: --rounds N.
"""

import argparse
import os
import statistics
import subprocess
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import jax
import jax.numpy as jnp
import numpy as np

BATCH_SECONDS = 0.2


def numbers(shape, bound):
    index = np.arange(shape[0] * shape[1], dtype=np.float64)
    return jnp.asarray((np.sin(index * 0.7391 + 0.3) * bound).astype(np.float32).reshape(shape))


def layers(*widths):
    pairs = zip(widths, widths[1:])
    return [(numbers(pair, np.sqrt(3.0 / pair[0])), jnp.zeros(pair[1])) for pair in pairs]


def forward(own, x):
    for weight, bias in own[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = own[-1]
    return x @ weight + bias


def penalty(own, x):
    slopes = jax.grad(lambda x: forward(own, x).sum())(x)
    return jnp.square(jnp.sqrt(jnp.square(slopes).sum(1)) - 1).mean()


def residual(own, x):
    first = jax.grad(lambda x: forward(own, x).sum())
    second = jax.grad(lambda x: first(x).sum())(x)
    return jnp.square(second + jnp.sin(x)).mean()


def residual_by_points(own, x):
    """The usual way in JAX: derivatives of one point, for all points at once."""
    second = jax.vmap(jax.grad(jax.grad(lambda x: forward(own, x[None])[0])))(x[:, 0])
    return jnp.square(second + jnp.sin(x[:, 0])).mean()


parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--rounds", type=int, default=15)
options = parser.parse_args()
program = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ours(name, times):
    program.stdin.write(f"{name} {times}\n")
    program.stdin.flush()
    nanos, loss = program.stdout.readline().split()
    return int(nanos) / 1e9, float(loss)


def theirs(step, times):
    start = time.perf_counter()
    for _ in range(times):
        loss, gradients = jax.block_until_ready(step())
    return time.perf_counter() - start, float(loss)


CASES = [
    ("penalty", penalty, layers(256, 256, 1), numbers((256, 256), 1.0)),
    ("residual", residual, layers(1, 64, 64, 64, 64, 1), numbers((1024, 1), 3.0)),
    ("residual", residual_by_points, layers(1, 64, 64, 64, 64, 1), numbers((1024, 1), 3.0)),
]
print(f"{'':<22} {'here, ms':>10} {'JAX, ms':>10} {'ratio':>7}")
for name, function, own, x in CASES:
    compiled = jax.jit(jax.value_and_grad(function))
    step = lambda: compiled(own, x)
    (_, loss), (_, expected) = ours(name, 5), theirs(step, 5)
    assert abs(loss - expected) < 1e-4 * abs(expected), (loss, expected)
    runs = (lambda times: ours(name, times), lambda times: theirs(step, times))
    counts = [max(1, round(BATCH_SECONDS * 5 / run(5)[0])) for run in runs]
    rounds = [[run(times)[0] / times for run, times in zip(runs, counts)] for _ in range(options.rounds)]
    here, there = (statistics.median(times) * 1e3 for times in zip(*rounds))
    ratio = statistics.median(there / here for here, there in rounds)
    print(f"{function.__name__:<22} {here:>10.3f} {there:>10.3f} {ratio:>7.2f}")
program.stdin.close()
