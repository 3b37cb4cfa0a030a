#!/usr/bin/env python3
"""Where the time of the training steps goes, by kind of work, beside PyTorch. (BENCHMARKS: W10.)

    RUSTFLAGS="-C force-frame-pointers=yes" cargo build --profile bench \\
        --manifest-path benches/peers/Cargo.toml --example training
    python3 benches/peers/where.py PROGRAM --python venv/bin/python [gpt-small cnn-medium …]

`PROGRAM` is the executable of that example. A sample of `perf` counts for the innermost function on its stack that a row
of KINDS names, or for a function of OUTER around it. PyTorch's profiler reports the time of each operation without its
callees, and what called it. Both are scaled to the median step without a profiler, because PyTorch's takes time itself.
Milliseconds a step, one thread.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

CASES = [f"{network}-{size}" for network in ("gpt", "cnn") for size in ("small", "medium", "large")]
# Kinds of work: functions of this library, and PyTorch's operations. The first row that matches counts.
KINDS = [
    ("attention", r"ops::attention", r"scaled_dot_product|flash_attention"),
    ("convolution", r"convolution", r"convolution"),
    ("optimizer", r"optim", r"Optimizer"),
    ("pooling", r"pooling", r"max_pool"),
    ("layer norm", r"norms", r"layer_norm"),
    ("loss", r"cross_entropy|losses", r"log_softmax|nll_loss|cross_entropy"),
    ("embedding", r"indexed|index::", r"embedding|index_select"),
    ("products", r"products|gemm", r"^aten::(mm|addmm|bmm|linear|matmul)"),
]
REST = "elementwise, sums, copies"
# These contain others: attention has products, and the gradient of a convolution, too.
OUTER = ("attention", "convolution", "optimizer")
SAMPLES_A_SECOND = 4999


def kind_of(text, column):
    return next((row[0] for row in KINDS if re.search(row[column], text)), None)


def kind_within(kinds):
    """The kind of a stack, whose innermost kind is the first."""
    named = [kind for kind in kinds if kind]
    return next((kind for kind in named if kind in OUTER), next(iter(named), REST))


def scaled(counts, milliseconds):
    total = sum(counts.values())
    return {kind: milliseconds * count / total for kind, count in counts.items()}


def own(program, network, size):
    """Milliseconds of a step, by the stacks that `perf` sampled."""
    case = [program, "cachescope", network, size]
    plain = subprocess.run(case, check=True, capture_output=True, text=True).stdout
    step_ms = float(plain.splitlines()[-1].split(",")[4])
    with tempfile.TemporaryDirectory() as folder:
        data = str(pathlib.Path(folder) / "perf.data")
        record = ["perf", "record", "-q", "-F", str(SAMPLES_A_SECOND), "-g", "-o", data, *case]
        subprocess.run(record, check=True, capture_output=True)
        script = ["perf", "script", "-i", data, "-F", "time,ip,sym"]
        text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    stacks = [stack.strip().splitlines() for stack in text.split("\n\n") if stack.strip()]
    times = [float(stack[0].strip().rstrip(":")) for stack in stacks]
    counts = collections.Counter()
    for time, stack in zip(times, stacks):
        frames = [line.strip().split(" ", 1)[-1] for line in stack[1:]]
        # The program's own frames end at its step; values are made before.
        step = next((at for at, frame in enumerate(frames) if frame.endswith("Training>::step")), None)
        # The first steps touch fresh pages.
        if step is None or time < (times[0] + times[-1]) / 2:
            continue
        counts[kind_within([kind_of(frame, 1) for frame in frames[:step]])] += 1
    return scaled(counts, step_ms)


def peer(python, network, size):
    """Milliseconds of a step, by PyTorch's profiler."""
    folder = str(pathlib.Path(__file__).resolve().parent / "python")
    code = (
        f"import sys, time; sys.path.insert(0, {folder!r})\n"
        "import training, torch\n"
        f"step = training.start({network!r}, training.CASES[{network!r}][{size!r}][1:])\n"
        "def timed():\n"
        "    begin = time.perf_counter(); step(); return time.perf_counter() - begin\n"
        "for _ in range(3): step()\n"
        "print(1000 * sorted(timed() for _ in range(9))[4])\n"
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:\n"
        "    for _ in range(5): step()\n"
        "for event in profile.events():\n"
        "    time, names = event.self_cpu_time_total, []\n"
        "    while event: names.append(event.name); event = event.cpu_parent\n"
        "    print(time, *names, sep='\\t')\n"
    )
    text = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    step_ms, *events = text.splitlines()
    counts = collections.Counter()
    for line in events:
        micros, *names = line.split("\t")
        counts[kind_within([kind_of(name, 2) for name in names])] += float(micros)
    return scaled(counts, float(step_ms))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*", default=CASES, metavar="NETWORK-SIZE")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_intermixed_args()
    columns = []
    for case in options.cases:
        network, size = case.split("-")
        columns += [(f"{network} {size}", own(options.program, network, size)), ("PyTorch", peer(options.python, network, size))]
    print("| |", " | ".join(name for name, _ in columns), "|")
    print("|---|" + "---:|" * len(columns))
    for kind in [row[0] for row in KINDS] + [REST]:
        print(f"| {kind} |", " | ".join(f"{side.get(kind, 0):.2f}" for _, side in columns), "|")
    print("| a step |", " | ".join(f"{sum(side.values()):.1f}" for _, side in columns), "|")


if __name__ == "__main__":
    main()
