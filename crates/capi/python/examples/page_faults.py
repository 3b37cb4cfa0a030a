"""Plots the time and the page faults of a NumPy loop, plainly and in a scope.

Usage: page_faults.py [PICTURE.png]. Without matplotlib it prints the figures alone.
"""

import resource
import statistics
import sys
import time

import cachescope
import numpy as np

SIZES = [1 << exponent for exponent in range(14, 25)]
STEPS = 12


def step(a, b, c):
    return np.sin(a * b + c) * 2 - c


@cachescope.scope("step")
def step_in_scope(a, b, c):
    return step(a, b, c)


def measure(function, arrays):
    """Returns the median milliseconds and the page faults of a step."""
    times, faults = [], []
    for _ in range(STEPS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        function(*arrays)
        times.append((time.perf_counter() - start) * 1e3)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return statistics.median(times), statistics.median(faults)


def main():
    rows = []
    for size in SIZES:
        arrays = [np.random.rand(size).astype(np.float32) for _ in range(3)]
        rows.append((size, *measure(step, arrays), *measure(step_in_scope, arrays)))
        print("%9d elements: plain %8.3f ms %6.0f faults, scope %8.3f ms %6.0f faults" % rows[-1])
    print(cachescope.report())
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    sizes, plain_ms, plain_faults, scope_ms, scope_faults = zip(*rows)
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 7))
    for axes, plain, scope, label in (
        (above, plain_ms, scope_ms, "ms a step"),
        (below, plain_faults, scope_faults, "page faults a step"),
    ):
        axes.plot(sizes, plain, marker="o", label="plain NumPy")
        axes.plot(sizes, scope, marker="o", label="in a scope")
        axes.set_ylabel(label)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend()
    above.set_yscale("log")
    below.set_yscale("symlog")
    below.set_xlabel("elements (float32)")
    path = sys.argv[1] if len(sys.argv) > 1 else "page_faults.png"
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
