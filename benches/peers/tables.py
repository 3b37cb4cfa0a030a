#!/usr/bin/env python3
"""The tables of W4, W6 and W10 in one go, as Markdown, each row with its best peer.

    python3 benches/peers/tables.py [--rounds 31] [--python venv/bin/python] [--programs FOLDER] [PART]…

Builds the benchmarks of this package, and runs all parts or the named ones: hit, arrays, double (arrays of f64),
training. Without cargo, `--programs` names a folder with executables of these names. A ratio is the best peer's time over
this library's: below 1 this library is slower, and the row says so. `--python` names an interpreter with PyTorch, which
then takes part in the training. The load of the machine is printed before and after, because figures of a busy machine
count less.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess

PACKAGE = pathlib.Path(__file__).resolve().parent
MANIFEST = ["--manifest-path", str(PACKAGE / "Cargo.toml")]
# What is measured beside others, and is no peer: ways in which this library, or the machine, does a task.
NO_PEERS = ("copy", "memcpy", "in place")
FIGURE = re.compile(r"^  (.{34}) +([\d.]+) ns +([\d.]+) x$")


def output(command, **environment):
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    return run.stdout


def table(heading, rows):
    print("|", " | ".join(heading), "|")
    print("|" + "---|" + "---:|" * (len(heading) - 1))
    for row in rows:
        print("|", " | ".join(row), "|")
    print(flush=True)


def verdict(ratio):
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    described = subprocess.run(["git", "-C", str(PACKAGE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    revision = described.stdout.strip() or "unknown"
    print(f"{model[1] if model else 'an unknown processor'}, {os.cpu_count()} processors, revision {revision}, ", end="")
    print(f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}\n", flush=True)


def benchmark(options, name, *features):
    """What the benchmark prints: from the folder of programs, or built with these features."""
    if options.programs:
        command = [options.programs / "-".join([name, *features])]
    else:
        command = ["cargo", "bench", *MANIFEST, "--bench", name, *(f"--features={feature}" for feature in features), "--"]
    return output([*command, str(options.rounds)])


def hit(options):
    """W4: each table's first row is the measure; a name with "cachescope" in it is this library's."""
    text = benchmark(options, "hit")
    for part in text.split("\n\n")[1:]:
        title, *lines = part.strip().split("\n")
        figures = [(match[1].strip(), float(match[2])) for match in map(FIGURE.match, lines) if match]
        own = [figure for figure in figures if "cachescope" in figure[0]]
        peers = [figure for figure in figures[1:] if own and "cachescope" not in figure[0]]
        # Scopes have no peers.
        own = own or figures[1:]
        measure = figures[0][1]
        rows = []
        for name, nanos in own:
            best = min(peers, key=lambda peer: peer[1], default=None)
            against = [best[0], f"{best[1]:.1f}", verdict(best[1] / nanos)] if best else ["-", "-", "-"]
            rows.append([name, f"{nanos:.1f}", f"{nanos / measure:.2f}", *against])
        print(f"### {title}\n")
        table(["", "ns", "× the measure", "best peer", "ns", "its time over this library's"], rows)


def arrays(options, *features):
    """W6: rows of `arrays`, whose columns have a width of their own."""
    text = benchmark(options, "arrays", *features)
    for part in text.split("\n\n")[1:] if not text.startswith("\n") else text[1:].split("\n\n"):
        title, heading, *lines = part.strip("\n").split("\n")
        names = [heading[42 + 10 * at :][:10].strip() for at in range((len(heading) - 42) // 10)]
        rows = []
        for line in lines:
            ratios = [line[42 + 10 * at :][:10].strip() for at in range(len(names))]
            peers = [(float(ratio), name) for name, ratio in zip(names, ratios) if ratio != "-" and name not in NO_PEERS]
            ratio, best = min(peers)
            rows.append([line[:12].strip(), line[12:25].strip(), line[33:42].strip(), best, verdict(ratio)])
        print(f"### {title.split(';')[0]}\n")
        table(["", "ns", "of copy", "best peer", "its time over this library's"], rows)


def double(options):
    arrays(options, "double")


def training(options):
    """W10: peaks and times of steps; rows that count resident pages are left out."""
    folder = options.programs
    if not folder:
        subprocess.run(["cargo", "build", "--profile", "bench", *MANIFEST, "--example", "training"], check=True)
        folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PACKAGE / "target")) / "release" / "examples"
    program = str(folder / "training")
    text = "".join(output([program, name]) for name in ("candle", "cachescope", "cachescope-plan"))
    if options.python:
        text += output([options.python, str(PACKAGE / "python" / "training.py"), "all"])
    cases = {}
    for line in text.splitlines():
        name, network, size, peak, step, _ = line.split(",")
        if name != "framework" and not name.endswith("_resident"):
            # Arrays alone, where a framework counts them apart: as PyTorch's events do.
            cases.setdefault((network, size), {})[name.removesuffix("_arrays")] = (int(peak), float(step))
    rows = []
    for (network, size), figures in cases.items():
        peers = {name: figure for name, figure in figures.items() if not name.startswith("cachescope")}
        fastest = min(peers, key=lambda name: peers[name][1])
        for name in ("cachescope", "cachescope-plan"):
            peak, step = figures[name]
            least = min(peak for peak, _ in peers.values())
            row = [f"{network}, {size}, {name}", f"{step:.2f}", fastest, verdict(peers[fastest][1] / step)]
            rows.append([*row, f"{peak:,}", verdict(least / peak)])
    heading = ["", "ms", "fastest peer", "its time over this library's", "peak, bytes", "least peak of a peer over it"]
    print("### Training with gradients, one thread\n")
    table(heading, rows)


def main():
    parts = {"hit": hit, "arrays": arrays, "double": double, "training": training}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--python")
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART")
    options = parser.parse_args()
    machine()
    for name in options.parts or parts:
        parts[name](options)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
