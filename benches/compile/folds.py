#!/usr/bin/env python3
"""What fused reductions cost to compile: a program of its own with some expressions, each folded in every way.

    python3 benches/compile/folds.py [--library PATH] [--target FOLDER]

Builds the program in release with one expression and with eight, twice each, the second time after a touch
of its one file, and prints the processor time of that and what one more reduction takes. `--library` is
a checkout of cachescope, this one by default. cargo has to be on the PATH; nothing else should be running.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import tempfile

EXPRESSIONS = [
    "&a * 2.0",
    "&a + &b",
    "(&a - &b).square()",
    "(&a * &b + 1.0).exp()",
    "(&a * 3.0 - &b).tanh()",
    "a.lazy().abs() + &b * 0.5",
    "(&a + &b) * (&a - &b)",
    "(&a / (&b + 4.0)).sqrt()",
]
WHOLE = ["sum", "mean", "max", "min", "prod", "var", "std", "norm", "logsumexp", "argmax"]
ALONG = ["sum_axis(0)", "sum_axis(1)", "max_axis(0)", "max_axis(1)"]
FOLDS = [f"{name}()" for name in WHOLE] + ALONG


def program(expressions):
    lines = [f"    ({one}).{fold}?;" for one in expressions for fold in FOLDS]
    return "\n".join(
        ["use cachescope::prelude::*;", "", "fn main() -> Result<()> {"]
        + ["    let a = Array::<f32>::rand([64, 64])?;", "    let b = Array::<f32>::rand([64, 64])?;", "    let _ = &b;"]
        + lines
        + ["    Ok(())", "}", ""]
    )


def build(folder, target):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = ["cargo", "build", "--release", "--quiet"]
    subprocess.run(command, cwd=folder, check=True, env=dict(os.environ, CARGO_TARGET_DIR=str(target)))
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=root)
    parser.add_argument("--target", type=pathlib.Path)
    arguments = parser.parse_args()
    library = arguments.library.resolve()
    seconds = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        target = arguments.target or folder / "target"
        manifest = f"""[package]
name = "folds"
version = "0.1.0"
edition = "2024"

[dependencies]
cachescope = {{ path = "{library}" }}

[workspace]
"""
        (folder / "src").mkdir()
        (folder / "Cargo.toml").write_text(manifest)
        (folder / "Cargo.lock").write_bytes((library / "Cargo.lock").read_bytes())
        source = folder / "src" / "main.rs"
        for count in (1, len(EXPRESSIONS)):
            source.write_text(program(EXPRESSIONS[:count]))
            build(folder, target)
            source.touch()
            seconds[count] = build(folder, target)
            reductions = count * len(FOLDS)
            print(f"{count} expressions, {reductions} reductions: {seconds[count]:.1f} s")
    least, most = min(seconds), max(seconds)
    more = (seconds[most] - seconds[least]) / ((most - least) * len(FOLDS))
    print(f"one more reduction: {more:.3f} s")


if __name__ == "__main__":
    main()
