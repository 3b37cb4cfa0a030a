#!/usr/bin/env python3
"""What the library weighs, beside the committed figures of `budget.csv`.

    python3 benches/compile/budget.py code [--target FOLDER] [--write REASON] [--save]
    python3 benches/compile/budget.py time

`code` prints the machine code of the workspace's crates that a release build of the main job (`train_digits`) has
linked, and the bytes of copies: of functions of the library that are compiled several times, for several types, all
but the largest. Loops over elements, which are compiled for each type on purpose, do not count. The command fails if
one of these has grown by more than 3 % over its committed figure. `--write` commits the figures of this build with a
reason, and `--save` replaces benches/results/code.json. Code size predicts compile time: a second of a processor makes 31 to 35 KB.

`time` prints the processor time by crate of a user's first build from nothing, in release and in debug with README's
profile: the program of `edit.py`. It downloads first; nothing else should be running.
"""

import argparse
import collections
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
import edit  # noqa: E402
import results  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "benches" / "compile" / "budget.csv"
CRATES = ("cachescope", "cachescope_kernels", "cachescope_macros", "cachescope_memory", "cachescope_reports")
COPIES = "copies in cachescope"
GROWTH = 1.03
# Loops over elements, which a table lists for each type or instruction set.
LOOPS = re.compile(
    r"cachescope_kernels::(?:compare|convolution|counts|elementwise|moves|products|random|reduce|registers|scan|search|softmax|sort|vector)::"
)
# The symbols of one function for several types differ in these, and in the hash at their end.
TYPES = re.compile(r"\b(?:b?f16|f32|f64|[iu](?:8|16|32|64|128)|bool)\b")
HASH = re.compile(r"(?:::h[0-9a-f]{16})?(?:\.llvm\.\d+)?$")
# The crates that take less are printed as one row.
LEAST_SECONDS = 2.0


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def code_bytes(target):
    """The bytes of machine code by crate: the sections `.text*` of its newest archive; and those of copies."""
    found = {}
    for crate in CRATES:
        archives = sorted((target / "release" / "deps").glob(f"lib{crate}-*.rlib"), key=lambda path: path.stat().st_mtime)
        if archives:
            rows = (line.split() for line in output_of("size", "--format=sysv", archives[-1]))
            found[crate] = sum(int(row[1]) for row in rows if len(row) > 1 and row[0].startswith(".text"))
            if crate == "cachescope":
                found[COPIES] = copied_bytes(archives[-1])
    return found


def copied_bytes(archive):
    """The bytes of functions that an archive has several times, all but the largest of each; without loops."""
    sizes = collections.defaultdict(list)
    for line in output_of("nm", "--print-size", "--defined-only", "--demangle", archive):
        row = re.match(r"[0-9a-f]+ ([0-9a-f]+) [tTwW] (.*cachescope.*)", line)
        if row and not LOOPS.search(row[2]):
            sizes[TYPES.sub("T", HASH.sub("", row[2]))].append(int(row[1], 16))
    return sum(sum(same) - max(same) for same in sizes.values())


def committed():
    if not COMMITTED.exists():
        return {}
    with open(COMMITTED, newline="", encoding="utf-8") as file:
        return {row["crate"]: row for row in csv.DictReader(file)}


def save(sizes):
    """Writes the summary of benches/results/code.json. Targets are of workload W12."""
    megabytes = [(sizes["cachescope"] + sizes["cachescope_kernels"]) / 1e6, sizes[COPIES] / 1e6]
    is_met = megabytes[0] <= 4.0 and megabytes[1] <= 0.3
    text = "code of `cachescope` and `cachescope-kernels`; copies without loops"
    measured = f"{megabytes[0]:.2f}; {megabytes[1]:.2f} MB"
    row = ["W12", text, measured, "4.0; 0.3 MB", results.verdict(is_met)]
    results.save("code", machine="any machine", summary=[row])


def code(target, reason, is_saved):
    now, before = code_bytes(target), committed()
    if "cachescope" not in now:
        sys.exit(f"error: no release build of the library in {target}")
    if is_saved:
        save(now)
    grown = []
    for crate, size in now.items():
        limit = int(before[crate]["bytes"]) if crate in before else 0
        print(f"{crate:<20} {size:>10,} bytes of code, {limit:>10,} committed")
        if size > limit * GROWTH:
            grown.append(crate)
    if reason:
        with open(COMMITTED, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["crate", "bytes", "reason"])
            for crate, size in now.items():
                kept = before.get(crate)
                is_kept = kept and abs(size / int(kept["bytes"]) - 1) <= GROWTH - 1
                rows.writerow([crate, kept["bytes"], kept["reason"]] if is_kept else [crate, size, reason])
    elif grown:
        sys.exit(f"error: grown by more than 3 %: {', '.join(grown)}; make it smaller, or commit `--write REASON`")


def time():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        (folder / "user").mkdir()
        program = edit.Program(folder / "user", clone, folder / "target", f'git = "file://{clone}"')
        for release in (True, False):
            times = folder / f"times-{release}"
            os.environ["RUSTC_TIMES"] = str(times)
            os.environ["RUSTC_WRAPPER"] = str(ROOT / "benches" / "compile" / "rustc_times.py")
            program.build(release, 0.1)
            seconds = collections.Counter()
            for line in times.read_text().splitlines():
                crate, used = line.split()
                seconds[crate] += float(used)
            print(f"{'release' if release else 'debug'}: {sum(seconds.values()):.0f} s of processor time")
            others = 0.0
            for crate, used in seconds.most_common():
                if used >= LEAST_SECONDS:
                    print(f"  {crate:<28} {used:6.1f}")
                else:
                    others += used
            print(f"  {'others':<28} {others:6.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_code = commands.add_parser("code")
    of_code.add_argument("--target", type=pathlib.Path, default=pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")))
    of_code.add_argument("--write", metavar="REASON")
    of_code.add_argument("--save", action="store_true", help="replace benches/results/code.json")
    commands.add_parser("time")
    arguments = parser.parse_args()
    if arguments.command == "code":
        code(arguments.target, arguments.write, arguments.save)
    else:
        time()


if __name__ == "__main__":
    main()
