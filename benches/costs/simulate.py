#!/usr/bin/env python3
"""What memory asks of a driver, simulated: random allocations, recorded graphs, drifting lengths and growth. (W11.)

    cargo build --release -p cachescope-cli
    benches/costs/simulate.py target/release/cachescope [TRACE.csv…]

Every program is a log of RMM, which `cachescope replay --costs h100` runs through the library's memory over a driver that
only counts, and through models of PyTorch's allocator and CUDA's pool. Programs repeat four times, so that the second
half is warm. TRACEs are lifetimes in MiniMalloc's format. No GPU is run.
"""

import argparse
import csv
import json
import pathlib
import random
import subprocess
import tempfile

MIB = 1 << 20
REPETITIONS = 4
# What cuMemAlloc takes by the table of costs, in microseconds: a fixed part, and one a byte.
ALLOCATION_US = (10.0, 371.0 / (1 << 31))


def random_allocations(most_bytes, seed, count=10_000, most_live_bytes=16_000 * MIB):
    """RMM's `random_allocations`: steps of an id and its bytes, or 0 where it is freed."""
    numbers, steps, live, live_bytes, made = random.Random(seed), [], [], 0, 0
    while len(steps) < 2 * count:
        size = 1 + numbers.randrange(most_bytes)
        wants = not live or numbers.randrange(100) < 73
        if wants and made < count and live_bytes + size < most_live_bytes:
            live.append((made, size))
            steps.append((made, size))
            made, live_bytes = made + 1, live_bytes + size
        else:
            index = numbers.randrange(len(live))
            live[index], live[-1] = live[-1], live[index]
            freed, size = live.pop()
            steps.append((freed, 0))
            live_bytes -= size
    return steps


def lifetimes(path):
    """The steps of a table of lifetimes: at equal times frees come first."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    events = []
    for number, row in enumerate(rows):
        lower, upper, size = int(row["lower"]), int(row["upper"]), int(row["size"])
        if lower < upper and size:
            events += [(lower, 1, number, size), (upper, 0, number, 0)]
    return [(number, size) for _, _, number, size in sorted(events)]


def drifting(lengths, seed=3, arrays=24):
    """Turns of arrays that grow with the turn's length; half of them are freed before the turn ends."""
    numbers, steps, made = random.Random(seed), [], 0
    units = [numbers.randrange(1, 33) * 2048 for _ in range(arrays)]
    for length in lengths:
        live = []
        for unit in units:
            steps.append((made, unit * length))
            live.append(made)
            made += 1
            if len(live) > 8 and numbers.random() < 0.5:
                steps.append((live.pop(numbers.randrange(len(live))), 0))
        steps += [(number, 0) for number in reversed(live)]
    return steps


def write(steps, path, repetitions):
    sizes = {number: size for number, size in steps if size}
    with open(path, "w") as file:
        file.write("Thread,Time,Action,Pointer,Size,Stream\n")
        for _ in range(repetitions):
            for number, size in steps:
                action = "allocate" if size else "free"
                file.write(f"1,0,{action},{0x1000 + 16 * number:#x},{size or sizes[number]},0\n")


def replay(program, path, *options):
    command = [program, "replay", str(path), "--pool", "all", "--model", "all", "--costs", "h100", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["simulated"]["rows"]


def table(title, rows):
    print(f"\n{title}\n")
    print("| | calls | driver, ms | warm calls | warm, ms | reserved / live | failures |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row['name']} | {row['calls']:,} | {row['driver_us'] / 1e3:.1f} | {row['warm_calls']:,} "
            f"| {row['warm_driver_us'] / 1e3:.1f} | {row['ratio']:.4f} | {row['failures']} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cachescope")
    parser.add_argument("traces", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.csv"

        def run(title, steps, repetitions=REPETITIONS, *arguments):
            write(steps, log, repetitions)
            table(title, replay(options.cachescope, log, *arguments))

        for name, most_bytes in [("1 MiB", MIB), ("64 MiB", 64 * MIB), ("1 GiB", 1024 * MIB)]:
            run(f"random allocations up to {name}", random_allocations(most_bytes, 1))
        for limit in ["20000MB", "18500MB"]:
            steps = random_allocations(1024 * MIB, 1)
            run(f"random allocations up to 1 GiB, below {limit}", steps, REPETITIONS, "--memory-limit", limit)
        for trace in options.traces:
            run(trace.name, lifetimes(trace))
        numbers = random.Random(1)
        walk, length = [], 1000
        for _ in range(400):
            length = max(200, min(2000, length + numbers.randrange(-60, 61)))
            walk.append(length)
        run("lengths at random", drifting([numbers.randrange(200, 2000) for _ in range(400)]), 1)
        run("lengths that rise", drifting([200 + 5 * turn for turn in range(400)]), 1)
        run("lengths that wander", drifting(walk), 1)

        print("\ngrowth from nothing to 64 GiB, by blocks of one size\n")
        print("| block | cuMemAlloc, ms | best-fit, ms | × | calls |\n|---|---:|---:|---:|---:|")
        for mib in (2, 16, 64, 256, 1024):
            count = (64 << 10) // mib
            write([(number, mib * MIB) for number in range(count)], log, 1)
            row = replay(options.cachescope, log)[0]
            plain = count * (ALLOCATION_US[0] + ALLOCATION_US[1] * mib * MIB)
            ratio = row["driver_us"] / plain
            print(f"| {mib} MiB | {plain / 1e3:.1f} | {row['driver_us'] / 1e3:.1f} | {ratio:.2f} | {row['calls']:,} |")


if __name__ == "__main__":
    main()
