#!/usr/bin/env python3
"""The lines of Rust that users' builds compile, by crate: without tests, benchmarks and examples.

    python3 benches/compile/lines.py

Counts what git tracks. `all` has comments and blank lines, `code` has not.
"""

import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
ELSEWHERE = re.compile(r"(^|/)(tests|benches|examples)/|tests\.rs$")
TESTS = re.compile(r"^#\[cfg\(test\)\]\n(pub )?mod \w+ \{", re.MULTILINE)


def main():
    files = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    total, code = collections.Counter(), collections.Counter()
    for name in files.split():
        if ELSEWHERE.search(name):
            continue
        text = (ROOT / name).read_text()
        begin = TESTS.search(text)
        lines = (text[: begin.start()] if begin else text).splitlines()
        for crate in (name.removeprefix("crates/").split("/")[0], "together"):
            total[crate] += len(lines)
            code[crate] += sum(1 for line in lines if line.strip() and not line.strip().startswith("//"))
    print("| | all | code |\n|---|---:|---:|")
    for crate in sorted(total, key=lambda crate: (crate == "together", -total[crate])):
        print(f"| {crate} | {total[crate]:,} | {code[crate]:,} |")


if __name__ == "__main__":
    main()
