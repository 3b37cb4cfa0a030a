#!/usr/bin/env python3
"""What a call on a small array costs, in instructions: a figure that nothing else on the machine disturbs.

    python3 benches/calls/count.py [--type f64] [--library CHECKOUT]... [--save]

Builds a program outside of the workspace against each checkout (this one by default), runs it under callgrind with 500
and with 1,500 calls of each operation, and prints the difference divided by 1,000. Needs cargo and valgrind on the PATH.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import results  # noqa: E402

# The operands have 2^e elements; `m` is a matrix of them, as square as it can be.
OPERATIONS = {
    "a + b": "black_box((&a + &b).eval().unwrap());",
    "chain": "black_box(((&a * &b + &c).sin() * 2.0 - &d).eval().unwrap());",
    "exp": "black_box(a.exp().eval().unwrap());",
    "w = a + b": "w.assign(&a + &b).unwrap();",
    "w -= r * g": "w.assign(&w - 0.1 * &a).unwrap();",
    "softmax": "black_box(m.softmax(-1).unwrap());",
    "sum": "black_box(a.sum().unwrap());",
    "sum along 0": "black_box(m.sum_axis(0).unwrap());",
    "sum along 1": "black_box(m.sum_axis(1).unwrap());",
    "(a * b).sum": "black_box((&a * &b).sum().unwrap());",
    "row": "black_box((&m + &row).eval().unwrap());",
    "column": "black_box((&m + &column).eval().unwrap());",
    "slice": "black_box(m.slice(s![.., ..columns.div_ceil(2)]).unwrap());",
    "slice, copied": "black_box(m.slice(s![.., ..columns.div_ceil(2)]).unwrap().lazy().eval().unwrap());",
    "zeros": "black_box(Array::<T>::zeros(n).unwrap());",
    "gradients": "black_box(value_and_grad(&w, |w| ((w * &a + &b).sin() * 2.0 - &d).square().mean()).unwrap());",
}
# Outside of every scope; the hit is inside of the scope of the others.
SCOPES = {
    "a hit": "drop(black_box(Buffer::new(&device, 4096)));",
    "a scope": 'cache_scope!("scope", { black_box(()) });',
    "its name computed": "cache_scope!(name.as_str(), { black_box(()) });",
    "by a handle": "let _scope = handle.enter();",
    "with one hit": 'cache_scope!("one hit", { drop(black_box(Buffer::new(&device, 4096))) });',
    "with one hit, by a handle": "let _scope = handle.enter(); drop(black_box(Buffer::new(&device, 4096)));",
}
EXPONENTS = (4, 10)
# The operations in docs/benchmarks.md.
SAVED = ("a + b", "chain", "zeros", "gradients")

MAIN = """
use cachescope::ndarray::s;
use cachescope::grad::value_and_grad;
use cachescope::{Array, Buffer, Device, cache_scope};
use std::hint::black_box;

type T = %s;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [operation, exponent, calls] = [1, 2, 3].map(|at| arguments[at].parse::<usize>().unwrap());
    let device = Device::host();
    let _guard = device.enter();
    let n = 1usize << exponent;
    let (rows, columns) = (1 << (exponent / 2), 1 << (exponent - exponent / 2));
    let [a, b, c, d, mut w] = [(); 5].map(|()| Array::<T>::ones(n).unwrap());
    let m = Array::<T>::ones([rows, columns]).unwrap();
    let row = Array::<T>::ones(columns).unwrap();
    let column = Array::<T>::ones([rows, 1]).unwrap();
    let (name, handle) = (format!("name {rows}"), device.scope("handle"));
    let _scope = (operation <= %d).then(|| device.scope("calls").enter());
    for _ in 0..calls {
        match operation {
%s
            _ => unreachable!(),
        }
    }
}
"""


def build(folder, library, element):
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "calls"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n'
        f'cachescope = {{ path = "{library}" }}\n[workspace]\n'
    )
    (folder / "Cargo.lock").write_bytes((library / "Cargo.lock").read_bytes())
    # A loop of its own, because what the others repeat is a tenth of an empty scope.
    calls = [*OPERATIONS.values(), *(f"for _ in 0..calls {{ {call} }} break;" for call in SCOPES.values())]
    arms = "\n".join(f"{number} => {{ {call} }}" for number, call in enumerate(calls))
    (folder / "src" / "main.rs").write_text(MAIN % (element, len(OPERATIONS), arms))
    subprocess.run(["cargo", "build", "--offline", "--quiet", "--release"], cwd=folder, check=True)
    return folder / "target" / "release" / "calls"


def instructions(program, *arguments):
    environment = dict(os.environ, RAYON_NUM_THREADS="1")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *map(str, arguments)]
    outcome = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(re.search(r"Collected : (\d+)", outcome.stderr)[1])


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, action="append")
    parser.add_argument("--type", choices=["f32", "f64"], default="f32")
    parser.add_argument("--save", action="store_true", help="replace benches/results/calls.json")
    options = parser.parse_args()
    if options.save and (options.library or options.type != "f32"):
        parser.error("--save is for this checkout and f32 alone")
    libraries = [library.resolve() for library in options.library or [root]]
    with tempfile.TemporaryDirectory() as temporary:
        programs = [build(pathlib.Path(temporary) / str(at), library, options.type) for at, library in enumerate(libraries)]
        print("elements of each column:", *(2**exponent for exponent in EXPONENTS for _ in programs))
        rows, scopes = [], []
        for number, name in enumerate([*OPERATIONS, *SCOPES]):
            counts = []
            for exponent in EXPONENTS if name in OPERATIONS else EXPONENTS[:1]:
                for program in programs:
                    few, many = (instructions(program, number, exponent, calls) for calls in (500, 1500))
                    counts.append((many - few) // 1000)
            print(f"{name:25}", *(f"{count:8,}" for count in counts), flush=True)
            label = f"`{name}`" if "+" in name else name
            (rows if name in OPERATIONS else scopes).append([label] + [f"{count:,}" for count in counts])
        if options.save:
            note = ", ".join(f"{name} {count}" for name, count in scopes).capitalize() + "."
            results.save("calls", rows=[row for row in rows if row[0].strip("`") in SAVED], note=note)


if __name__ == "__main__":
    main()
