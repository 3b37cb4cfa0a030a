#!/usr/bin/env python3
"""Writes docs/benchmarks.md and the figures of other pages from the results in benches/results/.

    python3 benches/results.py            writes the page, and each figure between its markers
    python3 benches/results.py --check    fails if the page or a figure differs from the results

A result is a file `NAME.json`: title, workload, machine, date, command, columns, rows and note. Its `summary` has rows of
workload, figure, measured, target and outcome. Its `figures` have names, for other pages: a page repeats a figure between
the markers `<!-- figure: NAME -->` and `<!-- /figure -->`. Scripts that measure call `save`. The text around the tables is
`page.md`, in which `{summary}`, a name of a result, or `{commands}` is replaced.
"""

import json
import os
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
LIMIT_BYTES = 15_000
FIGURE = re.compile(r"<!-- figure: (\w+) -->(.*?)<!-- /figure -->", re.S)
# The page has the command of these tables once.
RUN_ON_A_GPU = "tests/gpu/build; target/gpu/run target/gpu w7"
SLOT = re.compile(r"^\{([\w-]+)\}$", re.M)


def fail(message):
    sys.exit(f"error: {message}")


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(name, result):
    """Writes a result with one line for each row of a table."""

    def text(value):
        if isinstance(value, list) and value and isinstance(value[0], list):
            return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n ]"
        return json.dumps(value, ensure_ascii=False)

    lines = ",\n".join(f" {json.dumps(key)}: {text(value)}" for key, value in result.items())
    (RESULTS / f"{name}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def processor():
    """Returns the model of this machine's processor, as the system names it, and its cores."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = [re.search(rf"^{key}\s*: (.*)$", text, re.M) for key in ("model name", "cpu family", "model")]
    model, family, number = (match[1] if match else "unknown" for match in found)
    return f"{model}, family {family}, model {number}, {os.cpu_count()} cores"


def machine(hardware):
    """Returns the name of a machine in machines.json, where unknown hardware gets a row."""
    machines = load("machines")
    if hardware not in machines["hardware"]:
        machines["hardware"][hardware] = hardware
        machines["rows"].append([hardware, "seen by a script"])
        store("machines", machines)
    return machines["hardware"][hardware]


def verdict(is_met):
    return "met" if is_met else "**missed**"


def save(name, **changes):
    """Replaces parts of a result. The date is today's, and the machine this one, unless they are given."""
    result = load(name)
    if not result:
        fail(f"benches/results/{name}.json is missing: write its title, workload, command and columns first")
    if "machine" not in changes:
        changes["machine"] = machine(processor())
    store(name, result | {"date": time.strftime("%Y-%m-%d", time.gmtime())} | changes)
    print(f"saved benches/results/{name}.json: check its summary, then run benches/results.py")


def table(columns, rows):
    """Returns a Markdown table. Columns of figures, after the first, are aligned to the right."""

    def is_figure(cell):
        return not cell or re.match(r"(\*\*|≤ )?[\d–]", cell)

    align = ["---" if at == 0 or not all(is_figure(row[at]) for row in rows) else "---:" for at in range(len(columns))]
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|\n" for line in [columns, *rows]]
    return "".join([lines[0], f"|{'|'.join(align)}|\n", *lines[1:]])


def group(result):
    """Returns the section of one result."""
    heading = f"### {result['title']}" + (f" ({result['workload']})" if result["workload"] else "")
    where = f"{result['machine']}, {result['date']}"
    if result["command"] != RUN_ON_A_GPU:
        where += "".join(f"\n    {line}" for line in ["", *result["command"].split("; ")]).replace("\n    \n", ":\n\n", 1)
    note = f"\n{result['note']}\n" if result["note"] else ""
    return f"{heading}\n\n{where}\n\n{table(result['columns'], result['rows'])}{note}".rstrip("\n")


def page(results):
    """Returns the text of docs/benchmarks.md."""
    template = (RESULTS / "page.md").read_text(encoding="utf-8")
    order = [name for name in SLOT.findall(template) if name in results and name != "machines"]
    without_table = sorted((name for name in results if name not in order and name != "machines"))
    names = order + without_table
    summary = [row for name in names for row in results[name]["summary"]]
    summary.sort(key=lambda row: int(row[0][1:]) if row[0] else 99)
    sources = [results[name] for name in without_table]
    commands = [[of["title"], f"{of['machine']}, {of['date']}", f"`{of['command'].replace('; ', ' && ')}`"] for of in sources]

    def filling(match):
        name = match[1]
        if name == "summary":
            return table(["", "figure", "measured", "target", ""], summary).rstrip("\n")
        if name == "commands":
            return table(["rows", "machine and date", "command"], commands).rstrip("\n")
        if name == "machines":
            return table(results[name]["columns"], results[name]["rows"]).rstrip("\n")
        return group(results[name]) if name in results else fail(f"page.md: no result is called {name}")

    return SLOT.sub(filling, template)


def filled(path, figures):
    """Returns the text of a page with its figures; fails at an unknown name."""

    def value(match):
        if match[1] not in figures:
            fail(f"{path.relative_to(ROOT)}: no result has the figure {match[1]}")
        return f"<!-- figure: {match[1]} -->{figures[match[1]]}<!-- /figure -->"

    return FIGURE.sub(value, path.read_text(encoding="utf-8"))


def figures_of(results):
    """Returns the figures of all results by name; fails at a name that two results have."""
    figures = {}
    for name, result in results.items():
        for figure, value in result.get("figures", {}).items():
            if figure in figures:
                fail(f"benches/results/{name}.json: another result has the figure {figure}, too")
            figures[figure] = value
    return figures


def main():
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    figures = figures_of(results)
    texts = {PAGE: page(results)}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path != PAGE:
            texts[path] = filled(path, figures)
    size = len(texts[PAGE].encode())
    if size > LIMIT_BYTES:
        fail(f"docs/benchmarks.md would have {size:,} bytes, and may have {LIMIT_BYTES:,}")
    differs = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in differs:
            print(f"error: {path.relative_to(ROOT)} differs from benches/results: run benches/results.py")
        sys.exit(bool(differs))
    for path in differs:
        path.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
