#!/usr/bin/env python3
"""Writes docs/benchmarks.md and the figures of other pages from the results in benches/results/.

    python3 benches/results.py            writes the page, and each figure between its markers
    python3 benches/results.py --check    fails if the page or a figure differs from the results

A result is a file `NAME.json`: title, workload, machine, date, command, columns, rows, note; `figures`, by name, for other
pages; `summary`, rows of figure, target and outcome. A page repeats a figure between the markers
`<!-- figure: NAME -->` and `<!-- /figure -->`. Scripts that measure call `save`.
"""

import json
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = re.compile(r"<!-- figure: (\w+) -->(.*?)<!-- /figure -->", re.S)

HEAD = """\
# Benchmarks

<!-- Written by benches/results.py from benches/results/. -->

These are the current figures, those that miss their target included. The machines are shared, so contestants run in
turns in one process, and a figure is the median of several rounds. A ratio above 1 is a peer's time over this library's,
unless its row says otherwise. Peers are built in `benches/peers`, outside of the workspace.
"""
SECTIONS = {
    "On a GPU": ["gpu-hit", "gpu-random", "gpu-step", "gpu-operations", "gpu-training"],
    "Memory": ["hit", "scopes", "random", "plans", "fit"],
    "Arrays and training": ["arrays", "calls", "training", "ranks"],
    "Under NumPy, and first contact": ["numpy", "first-contact"],
}
TAIL = """\
## Reproduce

```sh
cargo bench --manifest-path benches/peers/Cargo.toml            # the allocator and arrays beside their peers
python3 benches/compile/first_contact.py --ci                   # builds and tests of a newcomer
tests/gpu/build && target/gpu/run target/gpu w7                 # on a machine with a GPU
```
"""


def save(name, **changes):
    """Replaces parts of a result: columns, rows, figures, summary. The date is today's."""
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    result |= {"date": time.strftime("%Y-%m-%d", time.gmtime())} | changes
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def table(columns, rows):
    """Returns a Markdown table; all columns but the first are aligned to the right."""
    align = ["---"] + ["---:"] * (len(columns) - 1)
    lines = [columns, align] + rows
    return "".join("| " + " | ".join(line) + " |\n" for line in lines).replace("|  |", "| |")


def part(result):
    command = "".join(f"    {line}\n" for line in result["command"].split("; "))
    note = f"\n{result['note']}\n" if result["note"] else ""
    where = f"Machine {result['machine']}, {result['date']}."
    return f"### {result['title']} ({result['workload']})\n\n{command}\n{where}\n\n{table(result['columns'], result['rows'])}{note}\n"


def page(results):
    machines = results["machines"]
    summary = [row for names in SECTIONS.values() for name in names for row in results[name]["summary"]]
    text = HEAD + "\n" + table(machines["columns"], machines["rows"]) + "\n## Summary\n\n"
    text += table(["workload", "figure", "measured", "target", "outcome"], summary)
    for section, names in SECTIONS.items():
        text += f"\n## {section}\n\n" + "\n".join(part(results[name]).rstrip("\n") + "\n" for name in names if results[name]["rows"])
    return text + "\n" + TAIL


def filled(path, figures):
    """Returns the text of a page with its figures; fails at an unknown name."""

    def value(match):
        if match[1] not in figures:
            sys.exit(f"error: {path.relative_to(ROOT)}: no result has the figure {match[1]}")
        return f"<!-- figure: {match[1]} -->{figures[match[1]]}<!-- /figure -->"

    return FIGURE.sub(value, path.read_text())


def main():
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    figures = {}
    for result in results.values():
        figures |= result.get("figures", {})
    texts = {PAGE: page(results)}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path != PAGE:
            texts[path] = filled(path, figures)
    differs = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in differs:
            print(f"error: {path.relative_to(ROOT)} differs from benches/results: run benches/results.py")
        sys.exit(bool(differs))
    for path in differs:
        path.write_text(texts[path])
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
