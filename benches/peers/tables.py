#!/usr/bin/env python3
"""The tables of W4, W6, W10 and W16 in one go, as Markdown, each row with its best peer.

    python3 benches/peers/tables.py [--rounds 31] [--python venv/bin/python] [--programs FOLDER] [--save] [PART]…

Builds the benchmarks of this package, and runs all parts or the named ones: hit, arrays, double (arrays of f64),
training, server. Without cargo, `--programs` names a folder with executables of these names. A ratio is the best peer's time over
this library's: below 1 this library is slower, and the row says so. `--python` names an interpreter with PyTorch, which
then takes part in the training. `--save` replaces the files of these parts in benches/results. The load of the machine is
printed before and after, because figures of a busy machine count less.
"""

import argparse
import datetime
import os
import pathlib
import re
import statistics
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent
MANIFEST = ["--manifest-path", str(PACKAGE / "Cargo.toml")]
# What is measured beside others, and is no peer: ways in which this library, or the machine, does a task.
NO_PEERS = ("copy", "memcpy", "in place")
# Rows and columns of docs/benchmarks.md.
SAVED_ALLOCATORS = ("cachescope, hit", "cachescope, no scope (the pool)", "mimalloc", "jemalloc", "glibc")
SAVED_OPERATIONS = ("a+b", "a+row", "chain", "softmax", "sum", "sum_axis0")
SAVED_SIZES = ((16, 1), (1 << 10, 1), (1 << 16, 1), (1 << 22, 1), (1 << 16, 2), (1 << 22, 2))
SERVER_ROWS = ("150 %", "110 %", "100 %", "one lock", "mimalloc", "jemalloc")
SERVED = re.compile(r"^(\S.*?) {2,}(\d+) +([\d.]+) +(\d+) +(\d+) +(\S+)$", re.M)
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


def results():
    """Returns the module that stores results, which a copy of this script elsewhere does not have."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(PACKAGE.parent))
    import results as module

    return module


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    described = subprocess.run(["git", "-C", str(PACKAGE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    revision = described.stdout.strip() or "unknown"
    print(f"{model[1] if model else 'an unknown processor'}, {os.cpu_count()} processors, revision {revision}, ", end="")
    print(f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}\n", flush=True)


def benchmark(options, name, *features, arguments=None):
    """What the benchmark prints: from the folder of programs, or built with these features."""
    if options.programs:
        command = [options.programs / "-".join([name, *features])]
    else:
        command = ["cargo", "bench", *MANIFEST, "--bench", name, *(f"--features={feature}" for feature in features), "--"]
    return output([*command, *(arguments or [str(options.rounds)])])


def nanos_text(nanos):
    return f"{nanos:.1f}" if nanos < 100 else f"{nanos:.0f}"


def save_hit(tables):
    """Saves the hit beside each peer, and policies and scopes in pairs of the measure."""
    store = results()
    buffers = {title.split(",")[0].removeprefix("one buffer of "): of for title, of in tables.items() if title[:3] == "one"}
    rows = [[name] + [nanos_text(of[name]) for of in buffers.values()] for name in SAVED_ALLOCATORS]
    small = buffers["4 KiB"]
    figures = {"cpu_hit": f"{small['cachescope, hit']:.1f} ns", "cpu_hit_mimalloc": f"{small['mimalloc']:.1f} ns"}
    store.save("hit", rows=rows, figures=figures)

    pairs = [{name: nanos / next(iter(of.values())) for name, nanos in of.items()} for of in tables.values()]
    by_title = {title.lower(): of for title, of in zip(tables, pairs)}
    entries = next(of for title, of in by_title.items() if "to an entry" in title)
    empty = {policy: by_title[f"an empty scope under {policy}"] for policy in ("recycle", "release", "bump", "plan")}
    many = [entries[f"cachescope, {policy}"] for policy in ("Recycle", "Bump", "Plan")]
    kinds = {
        "an empty scope, its name a literal": "a literal",
        "entered by a handle": "a handle",
    }
    rows = [["a hit of 4 KiB, 64 in an entry", f"{many[0]:.2f}", "–", f"{many[1]:.2f}", f"{many[2]:.2f}"]]
    rows += [[text] + [f"{of[name]:.2f}" for of in empty.values()] for text, name in kinds.items()]
    one = [of["a literal, with one hit of 4 KiB"] for of in empty.values()]
    rows.append(["a literal, with one hit", f"{one[0]:.2f}", "–", f"{one[2]:.2f}", f"{one[3]:.2f}"])
    hits = [of["cachescope, hit"] for of in pairs[: len(buffers)]]
    names = (*kinds.values(), "a computed name")
    slowest = max((of[name], name, policy.title()) for policy, of in empty.items() for name in names)
    are_met = [max(hits) < 1, many[0] <= 1.0 and max(many[1:]) <= 1.2, slowest[0] <= 2.0]
    summary = [
        ["W4", "a hit against mimalloc's pair of 256 B", f"{min(hits):.2f} to {max(hits):.2f} ×", "1 ×"],
        ["W4", "64 hits and their entry: Recycle, Bump, Plan", ", ".join(f"{of:.2f}" for of in many) + " ×", "1, 1.2, 1.2 ×"],
        ["W4", f"an empty scope, the slowest ({slowest[1]} under {slowest[2]})", f"{slowest[0]:.2f} ×", "2 ×"],
    ]
    alone = small["cachescope, hit"]
    note = f"The pair took {alone / hits[1]:.1f} ns, and a hit {alone:.1f} ns."
    store.save("scopes", rows=rows, note=note, summary=[row + [store.verdict(met)] for row, met in zip(summary, are_met)])


def hit(options):
    """W4: each table's first row is the measure; a name with "cachescope" in it is this library's."""
    text, tables = benchmark(options, "hit"), {}
    for part in text.split("\n\n")[1:]:
        title, *lines = part.strip().split("\n")
        figures = [(match[1].strip(), float(match[2])) for match in map(FIGURE.match, lines) if match]
        tables[title] = dict(figures)
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
    if options.save:
        save_hit(tables)


def save_arrays(best):
    """Saves the ratios of the best peer, by elements (or rows of a product), threads and operation."""
    store = results()
    rows = [[f"`{name}`"] + [verdict(best[of][name]) for of in SAVED_SIZES] for name in SAVED_OPERATIONS]
    worst = [min((ratio, name) for name, ratio in best[size, 1].items()) for size in (16, 1 << 22)]
    products = [[ratio for name, ratio in best["products", threads].items()] for threads in (1, 2)]
    spans = ", ".join(f"{min(ratios):.2f} to {max(ratios):.2f}" for ratios in products)
    summary = [
        ["W6", "operations against ndarray, candle, the worst: 16, 2^22 elements",
         f"{worst[0][0]:.2f}, {worst[1][0]:.2f} ×", "1 ×", store.verdict(min(worst)[0] >= 1)],
        ["W6", "products of 64 to 2,048 rows: one thread, two", f"{spans} ×", "1 ×", store.verdict(min(map(min, products)) >= 1)],
    ]
    store.save("arrays", rows=rows, summary=summary)


def arrays(options, *features):
    """W6: rows of `arrays`, whose columns have a width of their own."""
    text, best_peers = benchmark(options, "arrays", *features), {}
    for part in text.split("\n\n")[1:] if not text.startswith("\n") else text[1:].split("\n\n"):
        title, heading, *lines = part.strip("\n").split("\n")
        size, threads = re.search(r"^(?:(\d+) elements|products).* (\d+) thread", title).groups()
        saved = best_peers.setdefault((int(size) if size else "products", int(threads)), {})
        names = [heading[42 + 10 * at :][:10].strip() for at in range((len(heading) - 42) // 10)]
        rows = []
        for line in lines:
            ratios = [line[42 + 10 * at :][:10].strip() for at in range(len(names))]
            peers = [(float(ratio), name) for name, ratio in zip(names, ratios) if ratio != "-" and name not in NO_PEERS]
            ratio, best = min(peers)
            saved[line[:12].strip()] = ratio
            rows.append([line[:12].strip(), line[12:25].strip(), line[33:42].strip(), best, verdict(ratio)])
        print(f"### {title.split(';')[0]}\n")
        table(["", "ns", "of copy", "best peer", "its time over this library's"], rows)
    if options.save and not features:
        save_arrays(best_peers)


def double(options):
    arrays(options, "double")


def save_training(cases):
    """Saves this library's steps under Recycle beside PyTorch's."""
    store, rows, ratios = results(), [], []
    for (network, size), figures in cases.items():
        (peak, step), (torch_peak, torch_step) = figures["cachescope"], figures["torch"]
        ratios.append((torch_step / step, torch_peak / peak))
        rows.append([f"{network.upper()}, {size}", f"{step:.2f}", f"{ratios[-1][0]:.2f}", f"{peak / 1e6:.1f}", f"{ratios[-1][1]:.2f}"])
    spans = [f"{min(of):.2f} to {max(of):.2f}" for of in zip(*ratios)]
    is_met = min(map(min, ratios)) >= 1
    text = "a training step against PyTorch, on the host: time; peak"
    summary = [["W10", text, f"{spans[0]}; {spans[1]} ×", "1; 1 ×", store.verdict(is_met)]]
    store.save("training", rows=rows, note="Under Recycle.", summary=summary)


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
    if options.save:
        save_training(cases)


def server(options):
    """W16: medians of several runs, which differ by how threads are scheduled."""
    rates, refused = {}, 0
    for _ in range(options.rounds):
        for part in benchmark(options, "server", arguments=["40000"]).split("\n\n")[1:]:
            threads = int(part.split()[0])
            for name, rate, ratio, _, with_room, _ in SERVED.findall(part):
                row = next((row for row in SERVER_ROWS if name.startswith(row)), None)
                rates.setdefault(threads, {}).setdefault(row, []).append(float(ratio) if row else float(rate))
                refused += int(with_room) if row and "%" in name else 0
    rows = []
    for threads, of in rates.items():
        median = {row: statistics.median(values) for row, values in of.items()}
        rows.append([str(threads), f"{median[None]:,.0f}"] + [f"{median[row]:.2f}" for row in SERVER_ROWS])
    print("### A server under a limit\n")
    table(["threads", "requests a second, no limit", *SERVER_ROWS], rows)
    if options.save:
        tight = [row[2 + SERVER_ROWS.index("110 %")] for row in rows]
        texts = [f"refusals with room; the rate at 110 %: {', '.join(map(str, rates))} threads",
                 f"{refused}; {', '.join(tight)} ×"]
        store = results()
        is_met = refused == 0 and min(map(float, tight)) >= 0.8
        store.save("server", rows=rows, summary=[["W16", *texts, "0; 0.8 ×", store.verdict(is_met)]])


def main():
    parts = {"hit": hit, "arrays": arrays, "double": double, "training": training, "server": server}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--python")
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--save", action="store_true", help="replace the files of these parts in benches/results")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART")
    options = parser.parse_args()
    parts_run = options.parts or list(parts)
    if options.save and "training" in parts_run and not options.python:
        parser.error("--save of the training needs --python, for PyTorch")
    machine()
    for name in parts_run:
        parts[name](options)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
