"""What was measured, as tables of Markdown. A ratio is a contestant's time over that of the row's first one, so
above 1 this library is faster.

    python3 tests/gpu/tables.py target/gpu/out/w7.json

In the repository, writes the results of a run into benches/results, for docs/benchmarks.md."""

import json
import pathlib
import statistics
import sys

# What an operation has to read and write, in matrices; a row or a column is nothing beside them.
MATRICES = {
    "assign": 2,
    "a+b": 3,
    "a+b.T": 3,
    "a+row": 2,
    "a+column": 2,
    "fused": 5,
    "exp": 2,
    "tanh": 2,
    "softmax": 2,
    "sum": 1,
    "sum_axis0": 1,
    "sum_axis1": 1,
}
# Below this many elements, what is timed is the launch.
BOUND_BY_MEMORY = 1 << 22


def bytes_text(count):
    for unit, text in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {text}"
    return f"{count} B"


def nanos_text(nanos):
    if nanos < 1e4:
        return f"{nanos:.0f} ns" if nanos >= 100 else f"{nanos:.1f} ns"
    return f"{nanos / 1e3:.1f} µs" if nanos < 1e6 else f"{nanos / 1e6:.2f} ms"


def ratio_text(row, name):
    contestant = row["contestants"].get(name)
    return f"{contestant['ratio']:.2f}" if contestant else "-"


def of_copy(row):
    """An operation's rate, in bytes read and written, over that of a copy; None where there is none."""
    contestants = row["contestants"]
    matrices = MATRICES.get(row["task"])
    if matrices is None or "copy" not in contestants or row["task"] not in contestants:
        return None
    return contestants["copy"]["ratio"] * matrices / 2


def spread(contestant):
    """What was reserved at its peak, over what was live at its."""
    extra = contestant["extra"]
    if not extra.get("peak_live_bytes") or "peak_reserved_bytes" not in extra:
        return None
    return extra["peak_reserved_bytes"] / extra["peak_live_bytes"]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def others(rows, leave_out):
    """The contestants of the rows, in the order in which they come."""
    names = dict.fromkeys(name for row in rows for name in row["contestants"])
    return [name for name in names if name not in leave_out]


def hits(rows):
    rows = [row for row in rows if row["section"] == "W4"]
    if not rows:
        return []
    own = {"hit", "churn", "scope"}
    names = others(rows, own)
    titles = {"pool": "no scope ×", "driver": "cuMemAllocFromPoolAsync ×", "CuPy": "CuPy (from Python) ×"}
    body = []
    for row in rows:
        task = {"hit": bytes_text(row["size"]), "scope": "an empty scope"}.get(row["task"])
        task = task or f"64 live of {bytes_text(row['size'])}"
        first = row["contestants"].get(row["task"])
        body.append([task, nanos_text(first["nanos"]) if first else "-"] + [ratio_text(row, name) for name in names])
    header = ["allocated and freed", "this library"] + [titles.get(name, f"{name} ×") for name in names]
    return ["## The hit (W4)", ""] + table(header, body)


def random_rows(rows):
    rows = [row for row in rows if row["section"] == "W1"]
    if not rows:
        return []
    names = others(rows, {"random"})
    titles = {"driver-random": "cuMemAllocFromPoolAsync", "CuPy": "CuPy (from Python)"}
    header = ["sizes up to", "ns a step", "reserved / live"]
    for name in names:
        header += [f"{titles.get(name, name)} ×", "reserved / live"]
    body = []
    for row in rows:
        first = row["contestants"].get("random")
        cells = [bytes_text(row["size"]), f"{first['nanos']:.0f}" if first else "-"]
        for name in ["random"] + names:
            contestant = row["contestants"].get(name)
            wide = spread(contestant) if contestant else None
            cells += [] if name == "random" else [ratio_text(row, name)]
            cells.append(f"{wide:.3f}" if wide is not None else "-")
        body.append(cells)
    return ["## Random allocations (W1)", ""] + table(header, body)


def without_limit(row, name):
    """The time under a memory limit over that without, round by round; None where it has no limit."""
    limited, free = row["contestants"][name], row["contestants"].get(name.removesuffix("-limited"))
    if not name.endswith("-limited") or free is None:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(limited["rounds"], free["rounds"]))


def loops(rows):
    lines = []
    for row in rows:
        if row["section"] != "W5":
            continue
        digits = f"the digits step with {row['size']} hidden units"
        task = digits if row["task"] == "digits" else f"`sin(rand({row['size']}))`"
        body = []
        for name, contestant in row["contestants"].items():
            reserved = contestant["extra"].get("peak_reserved_bytes")
            held = f"{reserved / 2**20:.2f}" if reserved is not None else "-"
            limit = contestant["extra"].get("memory_limit")
            # The program writes null where there is none, which is read as NaN.
            allowed = f"{limit / 2**20:.2f}" if limit is not None and limit == limit else "-"
            more = without_limit(row, name)
            name = name.removeprefix(row["task"] + "-").replace("-limited", ", limited")
            cells = [name, nanos_text(contestant["nanos"]), f"{contestant['ratio']:.2f} ×"]
            body.append(cells + [f"{more:.2f} ×" if more else "-", held, allowed])
        lines += [f"## The loop (W5): {task}", ""]
        header = ["", "a step", "against the pool", "against itself without a limit", "reserved, MiB", "limit, MiB"]
        lines += table(header, body)
    return lines


def operations(rows):
    lines = []
    rows = [row for row in rows if row["section"] == "W6"]
    for size in sorted({row["size"] for row in rows}):
        here = [row for row in rows if row["size"] == size]
        names = others(here, {"copy", *MATRICES, "matmul"})
        body = []
        for row in here:
            first = row["contestants"].get(row["task"])
            share = of_copy(row)
            cells = [row["task"], nanos_text(first["nanos"]) if first else "-"]
            cells.append(f"{share:.2f}" if share is not None else "-")
            body.append(cells + [ratio_text(row, name) for name in names])
        lines += [f"## Operations (W6): {size:,} elements of f32", ""]
        lines += table(["", "this library", "of copy"] + [f"{name} ×" for name in names], body)
    return lines


def verdicts(rows):
    """Each target, whether it is met, and the figure that says so."""
    found = []

    def add(text, figures, least):
        if figures:
            worst = min(figures, key=lambda figure: figure[0])
            met = "met" if worst[0] >= least else "**missed**"
            found.append([text, f"{worst[0]:.2f} ({worst[1]})", f"{least}", met])

    def ratios(task, wanted, size=lambda size: True):
        for row in rows:
            if row["task"] == task and size(row["size"]) and row["task"] in row["contestants"]:
                for name, contestant in row["contestants"].items():
                    if wanted(name):
                        yield contestant["ratio"], f"{name}, {bytes_text(row['size'])}"

    add("a hit against PyTorch's allocator", list(ratios("hit", lambda name: name.startswith("PyTorch"))), 10)
    add("a hit against CuPy's allocator", list(ratios("hit", lambda name: name == "CuPy")), 10)
    add("a hit against the driver's allocator", list(ratios("hit", lambda name: name == "driver")), 50)
    fused = [row for row in rows if row["task"] == "fused" and row["size"] >= BOUND_BY_MEMORY]
    shares = [(of_copy(row), f"{row['size']:,} elements") for row in fused if of_copy(row) is not None]
    add("the fused chain, of the copy's rate", shares, 0.9)
    slower = []
    for row in rows:
        if row["section"] == "W6" and row["task"] in row["contestants"] and "CuPy" in row["contestants"]:
            slower.append((row["contestants"]["CuPy"]["ratio"], f"{row['task']}, {row['size']:,} elements"))
    add("every operation against CuPy", slower, 1)
    limited = []
    for row in rows:
        found_here = {name: without_limit(row, name) for name in row["contestants"] if row["section"] == "W5"}
        limited += [(1 / more, f"{name}, {more:.2f} × the time") for name, more in found_here.items() if more]
    add("the loop in 1.05 × its working set, against itself without a limit", limited, 0.909)
    for row in rows:
        times = {name: contestant["nanos"] for name, contestant in row["contestants"].items()}
        if row["task"] == "digits" and "PyTorch, eager" in times:
            eager = times["PyTorch, eager"]
            scopes = ("digits-recycle", "digits-plan", "digits-bump", "digits-release", "digits-pool")
            own = [(eager / times[name], name) for name in scopes if name in times]
            add("the digits step against PyTorch eager", [max(own)] if own else [], 2)
            if "digits-graph" in times:
                add("the digits step as a graph against PyTorch eager", [(eager / times["digits-graph"], "graph")], 5)
    return found


def markdown(facts, rows, problems):
    lines = [
        "# W7",
        "",
        f"Device: {facts.get('name', '?')} ({facts.get('device', '?')}); driver: {facts.get('driver', '?')}. "
        f"Beside: {', '.join(facts.get('peers', [])) or 'nobody'}. Revision {facts.get('revision', '?')}, "
        f"{facts.get('date', '?')}, medians of {facts.get('rounds', '?')} rounds. × is a contestant's time over "
        "this library's, round by round: above 1 this library is faster.",
        "",
    ]
    lines += [f"- {note}" for note in facts.get("notes", [])]
    lines += [""] if facts.get("notes") else []
    # The targets are a GPU's.
    judged = verdicts(rows) if facts.get("device") != "host" else []
    if judged:
        lines += ["## Targets", ""] + table(["", "figure (the worst)", "at least", ""], judged)
    for section in (hits, random_rows, loops, operations):
        lines += section(rows)
    if problems:
        lines += ["## Problems", ""] + [f"- {problem}" for problem in problems] + [""]
    return "\n".join(lines)


def self_check():
    """Sees that made-up figures come out as they should."""

    def contestants(**nanos):
        first = next(iter(nanos.values()))
        return {
            name.replace("_", "-"): {"nanos": own, "ratio": own / first, "extra": {}} for name, own in nanos.items()
        }

    fused = {"section": "W6", "task": "fused", "size": 1 << 26, "contestants": contestants(fused=500.0, copy=184.0)}
    assert abs(of_copy(fused) - 0.92) < 1e-12, of_copy(fused)
    product = {"section": "W6", "task": "matmul", "size": 1 << 26, "contestants": contestants(matmul=5.0, copy=2.0)}
    assert of_copy(product) is None
    summed = {"section": "W6", "task": "sum", "size": 1 << 10, "contestants": contestants(sum=10.0, copy=20.0, CuPy=9.0)}
    assert of_copy(summed) == 1.0
    hit = {"section": "W4", "task": "hit", "size": 256, "contestants": contestants(hit=4.0, driver=200.0, CuPy=39.0)}
    allocated = {"peak_reserved_bytes": 300, "peak_live_bytes": 200}
    assert spread({"extra": allocated}) == 1.5 and spread({"extra": {}}) is None
    steps = contestants(digits_pool=100.0, digits_graph=21.0)
    steps["PyTorch, eager"] = {"nanos": 100.0, "ratio": 1.0, "extra": {}}
    digits = {"section": "W5", "task": "digits", "size": 0, "contestants": steps}
    loop = contestants(chain_pool=100.0, chain_bump=90.0, chain_bump_limited=99.0, chain_pool_limited=150.0)
    for contestant in loop.values():
        contestant["rounds"] = [contestant["nanos"]] * 3
    loop["chain-bump-limited"]["rounds"][0] = 900.0
    loop["chain-bump-limited"]["extra"] = {"memory_limit": 3 << 20, "peak_reserved_bytes": 2 << 20}
    loop["chain-bump"]["extra"] = {"memory_limit": float("nan")}
    chain = {"section": "W5", "task": "chain", "size": 1 << 20, "contestants": loop}
    assert abs(without_limit(chain, "chain-bump-limited") - 1.1) < 1e-12
    assert without_limit(chain, "chain-bump") is None
    within = "the loop in 1.05 × its working set, against itself without a limit"
    assert [row[1:] for row in verdicts([chain]) if row[0] == within] == [
        ["0.67 (chain-pool-limited, 1.50 × the time)", "0.909", "**missed**"]
    ]
    del loop["chain-pool-limited"]
    rows = [fused, product, summed, hit, digits, chain]
    assert [row[3] for row in verdicts(rows) if row[0] == within] == ["met"]
    judged = {row[0]: row[3] for row in verdicts(rows)}
    assert judged["the fused chain, of the copy's rate"] == "met", judged
    assert judged["a hit against the driver's allocator"] == "met", judged
    assert judged["a hit against CuPy's allocator"] == "**missed**", judged
    assert judged["every operation against CuPy"] == "**missed**", judged
    assert judged["the digits step against PyTorch eager"] == "**missed**", judged
    assert judged["the digits step as a graph against PyTorch eager"] == "**missed**", judged
    text = markdown({"name": "none"}, rows, ["one"])
    assert "| bump | 90.0 ns | 0.90 × | - | - | - |" in text, text
    assert "| bump, limited | 99.0 ns | 0.99 × | 1.10 × | 2.00 | 3.00 |" in text, text
    assert "| fused | 500 ns | 0.92 |" in text, text
    assert "| sum | 10.0 ns | 1.00 | 0.90 |" in text, text
    assert "| 256 B | 4.0 ns | 50.00 | 9.75 |" in text, text
    assert [bytes_text(count) for count in (256, 65536, 1 << 30, 1500)] == ["256 B", "64 KiB", "1 GiB", "1500 B"]
    assert [nanos_text(n) for n in (3.25, 250, 25e3, 25e6)] == ["3.2 ns", "250 ns", "25.0 µs", "25.00 ms"]
    print("the tables add up")
    return 0


# Contestants in docs/benchmarks.md, and the operations.
SAVED_PEERS = ("CuPy", "PyTorch (C++)")
SAVED_STEPS = {
    "digits-direct": "no pool",
    "digits-pool": "a pool",
    "digits-recycle": "Recycle",
    "digits-plan": "Plan",
    "digits-graph": "as a graph",
    "CuPy": "CuPy",
    "PyTorch, eager": "PyTorch, eager",
    "PyTorch, graph": "PyTorch, graph",
}
SAVED_OPERATIONS = {"a+b": "`a + b`", "fused": "fused chain", "softmax": "softmax", "sum": "sum", "matmul": "matmul"}


def times_text(row, name):
    contestant = row["contestants"].get(name)
    return f"{contestant['ratio']:.0f} ×" if contestant else "–"


def saved_hit(rows):
    """The rows and figures of gpu-hit."""
    hits_of = [row for row in rows if row["task"] == "hit"]
    body = []
    for row in hits_of:
        ratios = [times_text(row, name) for name in ("pool", "driver", *SAVED_PEERS)]
        body.append([bytes_text(row["size"]), nanos_text(row["contestants"]["hit"]["nanos"]), *ratios])
    small = next(row for row in hits_of if row["size"] == 4 << 10)
    pytorch = small["contestants"]["PyTorch (C++)"]["ratio"]
    return body, {"gpu_hit": nanos_text(small["contestants"]["hit"]["nanos"]), "gpu_hit_pytorch": f"{pytorch:.0f}"}


def saved_random(rows):
    """The rows of gpu-random."""
    body = []
    for row in (row for row in rows if row["section"] == "W1"):
        of = row["contestants"]
        cells = [bytes_text(row["size"]), f"{of['random']['nanos']:.0f}", f"{spread(of['random']):.3f}"]
        body.append(cells + [f"{of[name]['ratio']:.2f} ×, {spread(of[name]):.3f}" for name in ("driver-random", *SAVED_PEERS)])
    return body


def saved_step(rows):
    """The rows and figures of gpu-step: the smallest digits step."""
    row = min((row for row in rows if row["task"] == "digits"), key=lambda row: row["size"])
    of = row["contestants"]
    body = [[text, nanos_text(of[name]["nanos"]), f"{of[name]['ratio']:.2f} ×"] for name, text in SAVED_STEPS.items()]
    figures = {"gpu_digits": f"{of['digits-recycle']['nanos'] / 1e3:.0f} µs"}
    return body, figures | {"gpu_digits_pytorch": nanos_text(of["PyTorch, eager"]["nanos"])}


def saved_operations(rows):
    """The rows of gpu-operations: each operation at 2^22 and 2^26 elements."""
    body = []
    for task, text in SAVED_OPERATIONS.items():
        cells = [text]
        for row in sorted((row for row in rows if row["task"] == task), key=lambda row: row["size"]):
            if row["size"] >= BOUND_BY_MEMORY:
                share = of_copy(row)
                cells += [nanos_text(row["contestants"][task]["nanos"]), f"{share:.2f}" if share is not None else "–"]
                cells += [ratio_text(row, name) for name in ("CuPy", "PyTorch")]
        body.append(cells)
    return body


def save(path):
    """Writes the results gpu-hit, gpu-random, gpu-step and gpu-operations of a run that w7.py stored."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benches"))
    import results

    stored = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    facts, rows = stored["facts"], stored["rows"]
    if stored["problems"]:
        sys.exit(f"error: {path}: {len(stored['problems'])} problems, so nothing is saved: {stored['problems'][0]}")
    named = {"machine": results.machine(f"{facts['name']}, {facts['driver']}"), "date": facts["date"]}
    words = {"W4": ("a hit",), "W5": ("the loop", "the digits step"), "W6": ("the fused chain", "every operation")}
    summary = {
        workload: [[workload, f"on a GPU: {row[0]}", *row[1:]] for row in verdicts(rows) if row[0].startswith(of)]
        for workload, of in words.items()
    }
    body, figures = saved_hit(rows)
    results.save("gpu-hit", **named, rows=body, figures=figures | {"gpu_date": facts["date"]}, summary=summary["W4"])
    results.save("gpu-random", **named, rows=saved_random(rows))
    body, figures = saved_step(rows)
    results.save("gpu-step", **named, rows=body, figures=figures, summary=summary["W5"])
    results.save("gpu-operations", **named, rows=saved_operations(rows), summary=summary["W6"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    save(sys.argv[1])
