#!/usr/bin/env python3
"""What a first contact with the project costs (workload W12), measured on a fresh clone.

    python3 benches/compile/first_contact.py [--ci] [--save] [--folder FOLDER] [--log FILE]

Clones the committed state of this checkout to a folder, builds everything from nothing, and prints a table: the main
job (`train_digits`) from nothing, as wall time; the library alone once its dependencies are built, and when it begins
in a build from nothing; a user's first build in release and debug with the profile that README gives, as processor
time, an edit of one line of it, and a debug step over a release step; `cargo test` from nothing, compiling and running,
and the size of what it leaves; the same of the tests that `.ci/run` adds. `--ci` times `.ci/run`, too. Downloads happen before anything is timed.
Nothing else should be running. `--save` replaces benches/results/first-contact.json; `--log` measures nothing, and reads
the rows that an earlier run printed to a file.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
import edit  # noqa: E402
import results  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Timed:
    """Wall and processor seconds of a command and of all that it starts."""

    def __init__(self, command, folder, target, **environment):
        environment = dict(os.environ, CARGO_TARGET_DIR=str(target), CARGO_INCREMENTAL="0", **environment)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.wall = time.monotonic() - start
        self.processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


ROWS = {}


def row(name, value):
    print(f"{name:<64} {value}", flush=True)
    ROWS[name] = value


def logged(path):
    """Returns the rows that an earlier run printed, between the lines of cargo."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line[:64].strip(): line[65:] for line in lines if len(line) > 65 and line[0] != " " and "  " in line[:65]}


def save(rows):
    """Writes the rows that were measured, with the targets of W8 and W12, and the figures of other pages."""
    # Workload, names in `rows`, their targets, text and unit. `.ci/run` is optional.
    targets = [
        ("W12", ["main job from nothing"], [100], "main job from nothing, wall time", "s"),
        ("W12", ["a user's first build, release", "a user's first build, debug"], [200, 180],
         "a user's first build, processor time: release, debug", "s"),
        ("W12", ["the library, its dependencies built"], [60], "the library's crates alone, wall time", "s"),
        ("W8", ["an edit of one line, release", "an edit of one line, debug"], [5, 3], "an edit of one line: release, debug", "s"),
        ("W8", ["a debug step over a release step"], [3], "a debug step over a release step", ""),
        ("W12", [".ci/run"], [30], "`.ci/run` on a fresh clone", "min"),
    ]
    summary = []
    for workload, names, limits, text, unit in targets:
        missing = [name for name in names if name not in rows]
        if missing and missing != [".ci/run"]:
            sys.exit(f"error: the run did not measure {', '.join(missing)}: nothing is saved")
        if not missing:
            values = [rows[name].split()[0] for name in names]
            is_met = all(float(value) <= limit for value, limit in zip(values, limits))
            cells = [f"{', '.join(map(str, figures))} {unit}".strip() for figures in (values, limits)]
            summary.append([workload, text, *cells, results.verdict(is_met)])
    figures = {
        "main_job": ("main job from nothing", " s"),
        "first_build_release": ("a user's first build, release", " s"),
        "first_build_debug": ("a user's first build, debug", " s"),
        "edit_release": ("an edit of one line, release", " s"),
        "edit_debug": ("an edit of one line, debug", " s"),
        "debug_step": ("a debug step over a release step", ""),
    }
    texts = {figure: rows[name].split()[0] + unit for figure, (name, unit) in figures.items()}
    results.save("first-contact", summary=summary, figures=texts)


def units(target):
    """The units of the last `cargo build --timings`: name, begin and duration in seconds."""
    reports = sorted((target / "cargo-timings").glob("cargo-timing-*.html"), key=lambda path: path.stat().st_mtime)
    text = re.search(r"const UNIT_DATA = (\[.*?\]);", reports[-1].read_text(), re.S).group(1)
    return [(unit["name"], unit["start"], unit["duration"]) for unit in json.loads(text)]


def main_job(clone, target):
    run = Timed(["cargo", "run", "--locked", "--release", "--example", "train_digits"], clone, target)
    row("main job from nothing", f"{run.wall:.0f} s, {run.processor:.0f} s of processor time")


def library(clone, target):
    build = ["cargo", "build", "--locked", "--release", "--package", "cachescope"]
    Timed(build + ["--timings"], clone, target)
    begins = min(start for name, start, _ in units(target) if name in ("cachescope-memory", "cachescope"))
    row("the library begins, in a build from nothing", f"second {begins:.0f}")
    for name in ("cachescope", "cachescope-memory", "cachescope-reports", "cachescope-macros"):
        subprocess.run(["cargo", "clean", "--locked", "--release", "--package", name], cwd=clone, check=True,
                       env=dict(os.environ, CARGO_TARGET_DIR=str(target)), stderr=subprocess.DEVNULL)
    alone = Timed(build, clone, target)
    row("the library, its dependencies built", f"{alone.wall:.0f} s, {alone.processor:.0f} s of processor time")


def user(clone, folder):
    (folder / "user").mkdir()
    program = edit.Program(folder / "user", clone, folder / "user-target", f'git = "file://{clone}"')
    steps = {}
    for release in (True, False):
        name = "release" if release else "debug"
        row(f"a user's first build, {name}", f"{program.build(release, 0.1):.0f} s of processor time")
        row(f"an edit of one line, {name}", f"{program.edit(release):.1f} s of processor time")
        steps[release] = program.run(release)
    row("a debug step over a release step", f"{steps[False] / steps[True]:.1f}")


def tests(clone, target):
    readme = ["cargo", "test", "--locked"]
    everything = ["--workspace", "--features", "suites/all,operations/all", "--tests"]
    for name, test in (("cargo test", readme), ("all tests, after cargo test", readme + everything)):
        environment = {"CACHESCOPE_EMULATOR_ALL": "1"} if test is not readme else {}
        compiling = Timed(test + ["--no-run"], clone, target, **environment)
        running = Timed(test, clone, target, **environment)
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file() and not path.is_symlink())
        times = f"{compiling.wall:.0f} + {running.wall:.0f} s"
        row(f"{name}, compiling and running", f"{times}, {size / 2**30:.1f} GiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--save", action="store_true", help="replace benches/results/first-contact.json")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path, help="of a run of today, on this machine")
    arguments = parser.parse_args()
    if arguments.log:
        ROWS.update(logged(arguments.log))
        for name, value in ROWS.items():
            print(f"{name:<64} {value}")
        return save(ROWS) if arguments.save else None
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="first-contact-"))
    folder.mkdir(parents=True, exist_ok=True)
    clone = folder / "clone"
    try:
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        subprocess.run(["cargo", "fetch", "--locked"], cwd=clone, check=True)
        main_job(clone, folder / "main-job")
        shutil.rmtree(folder / "main-job")
        library(clone, folder / "library")
        shutil.rmtree(folder / "library")
        user(clone, folder)
        shutil.rmtree(folder / "user-target")
        tests(clone, folder / "tests")
        shutil.rmtree(folder / "tests")
        if arguments.ci:
            row(".ci/run", f"{Timed(['.ci/run'], clone, folder / 'ci').wall / 60:.0f} min")
        if arguments.save:
            save(ROWS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
