"""Array operations on the host beside NumPy, numexpr and JAX. (BENCHMARKS: W6.)

    cargo build --profile bench --manifest-path benches/peers/Cargo.toml --example arrays
    python3 -m venv venv && venv/bin/pip install numpy numexpr "jax[cpu]"
    venv/bin/python benches/peers/python/arrays.py benches/peers/target/release/examples/arrays

In every round each contestant does one batch; cachescope does its own in a program that waits for
orders meanwhile. What is printed are medians over the rounds, and ratios taken round by round.
Without CONTESTANT_THREADS it runs itself with one thread, and again with two. Options: --rounds N,
--side N, and names of operations.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

THREADS = os.environ.get("CONTESTANT_THREADS")
if THREADS is None:
    for threads in ("1", "2"):
        names = ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        environment = dict(os.environ, CONTESTANT_THREADS=threads, **dict.fromkeys(names, threads))
        status = subprocess.run([sys.executable] + sys.argv, env=environment).returncode
        if status:
            sys.exit(status)
    sys.exit()

# One processor for each thread: that is what JAX goes by.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(THREADS)])

import jax
import jax.numpy as jnp
import numexpr
import numpy as np

numexpr.set_num_threads(int(THREADS))

BATCH_SECONDS = 500e-6
SIDES = (4, 16, 32, 256, 2048)
PRODUCT_SIDES = (64, 128, 256, 512, 1024, 2048)


def operands(side):
    """The matrices a to d, a row and a column, of elements from -2 to 2."""
    generator = np.random.default_rng(side)
    matrices = [generator.uniform(-2, 2, (side, side)).astype(np.float32) for _ in range(4)]
    return matrices + [matrices[2][0].copy(), matrices[2][0].reshape(side, 1).copy()]


def numpy_softmax(a):
    exponentials = np.exp(a - a.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


# For each operation: what has to be read and written in matrices, then NumPy's form, its form into
# an array `out` that is there already, numexpr's expression, and JAX's form.
OPERATIONS = {
    "a+b": (3, lambda a, b, c, d, r, k: a + b, lambda a, b, c, d, r, k, out: np.add(a, b, out), "a+b",
            lambda a, b, c, d, r, k: a + b),
    "a+b.T": (3, lambda a, b, c, d, r, k: a + b.T, lambda a, b, c, d, r, k, out: np.add(a, b.T, out), None,
              lambda a, b, c, d, r, k: a + b.T),
    "a+row": (2, lambda a, b, c, d, r, k: a + r, lambda a, b, c, d, r, k, out: np.add(a, r, out), "a+r",
              lambda a, b, c, d, r, k: a + r),
    "a+column": (2, lambda a, b, c, d, r, k: a + k, lambda a, b, c, d, r, k, out: np.add(a, k, out), "a+k",
                 lambda a, b, c, d, r, k: a + k),
    # numexpr calls f32 `float`, and makes the 2 one.
    "chain": (5, lambda a, b, c, d, r, k: np.sin(a * b + c) * 2 - d, None, "sin(a*b+c)*2-d",
              lambda a, b, c, d, r, k: jnp.sin(a * b + c) * 2 - d),
    "exp": (2, lambda a, b, c, d, r, k: np.exp(a), lambda a, b, c, d, r, k, out: np.exp(a, out), "exp(a)",
            lambda a, b, c, d, r, k: jnp.exp(a)),
    "tanh": (2, lambda a, b, c, d, r, k: np.tanh(a), lambda a, b, c, d, r, k, out: np.tanh(a, out), "tanh(a)",
             lambda a, b, c, d, r, k: jnp.tanh(a)),
    "softmax": (2, lambda a, b, c, d, r, k: numpy_softmax(a), None, None,
                lambda a, b, c, d, r, k: jax.nn.softmax(a, axis=1)),
    "sum": (1, lambda a, b, c, d, r, k: a.sum(), None, "sum(a)", lambda a, b, c, d, r, k: a.sum()),
    "sum_axis0": (1, lambda a, b, c, d, r, k: a.sum(axis=0), None, "sum(a, axis=0)",
                  lambda a, b, c, d, r, k: a.sum(axis=0)),
    "sum_axis1": (1, lambda a, b, c, d, r, k: a.sum(axis=1), None, "sum(a, axis=1)",
                  lambda a, b, c, d, r, k: a.sum(axis=1)),
    "matmul": (3, lambda a, b, c, d, r, k: a @ b, lambda a, b, c, d, r, k, out: np.matmul(a, b, out), None,
               lambda a, b, c, d, r, k: a @ b),
}


class Contestant:
    """A way to do a task: `run(n)` does it n times and answers the seconds."""

    def __init__(self, name, run):
        self.name, self.run, self.times, self.seconds = name, run, 1, []
        run(1)
        filled = 0
        while filled < 2:
            if run(self.times) >= BATCH_SECONDS:
                filled += 1
            else:
                filled, self.times = 0, self.times * 2

    def round(self):
        self.seconds.append(self.run(self.times) / self.times)


def timed(once):
    def run(n):
        start = time.perf_counter()
        for _ in range(n):
            once()
        return time.perf_counter() - start

    return run


class Server:
    """cachescope's program, which does what it is told and answers how long it took."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, name, side, n):
        self.process.stdin.write(f"{name} {side} {n}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) * 1e-9


def contestants(server, name, side):
    _, numpy_form, into, expression, jax_form = OPERATIONS[name]
    matrices = operands(side)
    out = np.empty((side, side), np.float32)
    yield Contestant("cachescope", lambda n: server.run(name, side, n))
    yield Contestant("copy", lambda n: server.run("copy", side, n))
    yield Contestant("numpy", timed(lambda: numpy_form(*matrices)))
    if into:
        yield Contestant("out=", timed(lambda: into(*matrices, out)))
    if expression:
        named = dict(zip("abcdrk", matrices))
        run = numexpr.NumExpr(expression, [(n, float) for n in "abcdrk" if n in names_of(expression)])
        taken = [named[n] for n in run.input_names]
        yield Contestant("numexpr", timed(lambda: run(*taken)))
    compiled = jax.jit(jax_form)
    on_device = [jax.device_put(matrix) for matrix in matrices]
    yield Contestant("jax", timed(lambda: compiled(*on_device).block_until_ready()))


def names_of(expression):
    """The operands of an expression; the functions' names hold none of them after such a letter."""
    text = expression
    for function in ("sin", "exp", "tanh", "sum", "axis"):
        text = text.replace(function, "")
    return set(text)


def print_row(name, side, rounds, racing):
    for _ in range(rounds):
        for contestant in racing:
            contestant.round()
    own = racing[0]
    median = statistics.median(own.seconds)
    ratios = {c.name: statistics.median(t / o for t, o in zip(c.seconds, own.seconds)) for c in racing}
    matrices = OPERATIONS[name][0]
    work = 2 * side**3 if name == "matmul" else matrices * 4 * side * side
    label = f"matmul {side}" if name == "matmul" else name
    cells = [f"{ratios[c]:9.2f}" if c in ratios else f"{'-':>9}" for c in ("numpy", "out=", "numexpr", "jax")]
    of_copy = "-" if name == "matmul" else f"{ratios['copy'] * matrices / 2:.2f}"
    print(f"{label:<12} {median * 1e9:>12.1f} {work / median / 1e9:>7.1f} {of_copy:>8}", *cells, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", choices=[[], *OPERATIONS])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--side", type=int)
    options = parser.parse_args()
    server = Server(options.program)
    names = options.names or list(OPERATIONS)

    def table(title, tasks):
        tasks = [task for task in tasks if options.side in (None, task[1])]
        if not tasks:
            return
        print(f"\n{title}, {THREADS} thread(s); the times of others over cachescope's")
        print(f"{'':<12} {'ns':>12} {'GB/s':>7} {'of copy':>8} {'numpy':>9} {'out=':>9} {'numexpr':>9} {'jax':>9}")
        for name, side in tasks:
            rounds = -(-options.rounds // 5) if name == "matmul" and side >= 1024 else options.rounds
            print_row(name, side, rounds, list(contestants(server, name, side)))

    print("numpy", np.__version__, "numexpr", numexpr.__version__, "jax", jax.__version__)
    for side in SIDES:
        table(f"{side * side} elements", [(name, side) for name in names if name != "matmul"])
    if "matmul" in names:
        table("products of square matrices", [("matmul", side) for side in PRODUCT_SIDES])


if __name__ == "__main__":
    main()
