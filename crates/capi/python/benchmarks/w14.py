"""W14: NumPy with and without a scope, and over a tuned glibc, in turns. Prints tables in Markdown.

Usage: w14.py [--rounds N] [--no-huge-pages] [PROGRAM ...]

One process runs each program plainly and in a scope. A second process runs it plainly over glibc with
a threshold of 32 MiB for mmap and no trim. A third one runs it plainly and in a scope after an array
of 31 MiB died, which raises glibc's own threshold to 31 MiB. The contestants alternate; figures are
medians of the rounds, and ratios are medians of the ratios within a round.
"""

import argparse
import ctypes
import gc
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
PR_SET_THP_DISABLE = 41


def five_cheap(n):
    a, b, c, d = operands(n)
    return lambda: ((a * b + c) * 2 - d) + a


def five_with_sine(n):
    a, b, c, d = operands(n)
    return lambda: np.sin(a * b + c) * 2 - d


def five_named(n):
    a, b, c, d = operands(n)

    def step():
        product = a * b
        total = product + c
        root = np.sqrt(total)
        twice = root * 2
        return twice - d

    return step


def operands(n):
    generator = np.random.default_rng(5)
    return [generator.random(n, np.float32) for _ in range(4)]


def scipy_filter(_):
    from scipy import ndimage

    image = np.random.default_rng(5).random((2048, 2048), np.float32)
    return lambda: ndimage.gaussian_gradient_magnitude(image, 1.0)


def sklearn_pipeline(_):
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = np.random.default_rng(5).standard_normal((200_000, 20))
    pipeline = make_pipeline(StandardScaler(), PCA(5, svd_solver="covariance_eigh"))
    return lambda: pipeline.fit_transform(table)


PROGRAMS = {
    "five, cheap": (five_cheap, [22]),
    "five, with sin": (five_with_sine, [22]),
    "five, named": (five_named, [22]),
    "chain": (five_with_sine, range(16, 27, 2)),
    "SciPy": (scipy_filter, [0]),
    "scikit-learn": (sklearn_pipeline, [0]),
}


def measure(step, steps, scoped):
    """Returns the milliseconds and the minor faults of a step."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start = time.perf_counter()
    for _ in range(steps):
        if scoped:
            import cachescope

            with cachescope.scope("w14"):
                step()
        else:
            step()
    seconds = time.perf_counter() - start
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return seconds / steps * 1e3, faults / steps


def serve(glibc, adapted, huge_pages):
    """Runs turns: reads a program, an exponent, steps and a mode from each line."""
    libc = ctypes.CDLL(None)
    if glibc:
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
    if not huge_pages:
        libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    if adapted:
        np.ones(31 << 20, np.uint8)
    made = {}
    for line in sys.stdin:
        name, exponent, steps, scoped = line.rstrip("\n").split("|")
        if (name, exponent) not in made:
            made.clear()
            gc.collect()
            made[name, exponent] = PROGRAMS[name][0](1 << int(exponent))
        time_ms, faults = measure(made[name, exponent], int(steps), scoped == "1")
        print(time_ms, faults, flush=True)


class Worker:
    def __init__(self, *arguments):
        command = [sys.executable, __file__, "--serve", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def turn(self, name, exponent, steps, scoped):
        self.process.stdin.write(f"{name}|{exponent}|{steps}|{int(scoped)}\n")
        self.process.stdin.flush()
        time_ms, faults = self.process.stdout.readline().split()
        return float(time_ms), float(faults)


def compare(name, rounds, huge):
    print(f"\n| {name} | plain ms | faults | scope ms | faults | scope / plain | glibc tuned / plain | faults | scope / adapted | faults |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for exponent in PROGRAMS[name][1]:
        workers = [Worker(*huge), Worker("--glibc", *huge), Worker("--adapted", *huge)]
        own, tuned, adapted = workers
        steps = max(2, min(200, (1 << 25) >> max(exponent, 20)) if exponent < 20 else (1 << 26) >> exponent)
        steps = 3 if exponent == 0 else steps
        turns = []
        for number in range(rounds + 1):
            turn = [
                own.turn(name, exponent, steps, False),
                own.turn(name, exponent, steps, True),
                tuned.turn(name, exponent, steps, False),
                adapted.turn(name, exponent, steps, False),
                adapted.turn(name, exponent, steps, True),
            ]
            if number:  # The first round warms up.
                turns.append(turn)
        plain, scope, glibc, raised, inside = (list(zip(*contestant)) for contestant in zip(*turns))
        ratio = statistics.median(a / b for a, b in zip(scope[0], plain[0]))
        tuned_ratio = statistics.median(a / b for a, b in zip(glibc[0], plain[0]))
        raised_ratio = statistics.median(a / b for a, b in zip(inside[0], raised[0]))
        label = f"2^{exponent}" if exponent else "a step"
        middle = statistics.median
        print(
            f"| {label} | {middle(plain[0]):.3f} | {middle(plain[1]):.0f} | {middle(scope[0]):.3f} | "
            f"{middle(scope[1]):.1f} | {ratio:.2f} | {tuned_ratio:.2f} | {middle(glibc[1]):.0f} | "
            f"{raised_ratio:.2f} | {middle(raised[1]):.0f} |",
            flush=True,
        )
        for worker in workers:
            worker.process.stdin.close()
            worker.process.wait()


def calls(rounds):
    """Prints the nanoseconds of a request and a free from NumPy."""
    import cachescope

    print("\n| `np.empty`, bytes | plain ns | scope ns | difference |")
    print("|---|---:|---:|---:|")

    def nanoseconds(n):
        empty, kind, count = np.empty, np.uint8, 20_000
        start = time.perf_counter()
        for _ in range(count):
            empty(n, kind)
        return (time.perf_counter() - start) / count * 1e9

    for n in (16, 512, 1024, 4096, 65_536, 1 << 20, 1 << 24):
        pairs = []
        for _ in range(rounds * 3):
            plain = nanoseconds(n)
            with cachescope.scope("calls"):
                pairs.append((plain, nanoseconds(n)))
        plain, scope = zip(*pairs)
        more = statistics.median(b - a for a, b in pairs)
        print(f"| {n} | {statistics.median(plain):.0f} | {statistics.median(scope):.0f} | {more:+.0f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=[*PROGRAMS, "calls"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-huge-pages", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--glibc", action="store_true")
    parser.add_argument("--adapted", action="store_true")
    options = parser.parse_args()
    if options.serve:
        return serve(options.glibc, options.adapted, not options.no_huge_pages)
    print(f"NumPy {np.__version__}, Python {sys.version.split()[0]}, {options.rounds} rounds")
    for name in options.programs:
        if name == "calls":
            calls(options.rounds)
        else:
            compare(name, options.rounds, ["--no-huge-pages"] * options.no_huge_pages)


if __name__ == "__main__":
    main()
