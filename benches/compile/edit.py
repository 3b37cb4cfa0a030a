#!/usr/bin/env python3
"""The edit-run loop of a user (workload W8): what a program of thirty kernels costs to build, to edit and to run.

    python3 benches/compile/edit.py [--library PATH] [--target FOLDER] [--skip-first]

Writes a program outside of the workspace with the profile that README gives, and prints, as processor time of all
that cargo starts: the first build; a build after a change of one line; what one fused assignment and one fused
reduction more take; each in release and in debug; then how long a step runs in either, and their ratio. `--library` is a
checkout of cachescope, this one by default; `--target` keeps what was built. cargo has to be on the PATH; nothing
else should be running.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

PROFILE = """
[profile.dev.package]
"*" = { debug = false }
cachescope = { opt-level = 1 }
cachescope-kernels = { opt-level = 3 }
cachescope-memory = { opt-level = 3 }
gemm-common = { opt-level = 3 }
gemm-f32 = { opt-level = 3 }
gemm-f64 = { opt-level = 3 }
libm = { opt-level = 3 }
rayon-core = { opt-level = 3 }
"""

# A step of a network with one hidden layer, by hand: thirty kernels.
STEP = """
use cachescope::prelude::*;

struct Net { w1: Array<f32>, b1: Array<f32>, w2: Array<f32>, b2: Array<f32>, m: Array<f32>, v: Array<f32> }

fn step(net: &mut Net, x: &Array<f32>, y: &Array<f32>, rate: f32) -> Result<f32> {
    let mean = x.mean_axis(0)?;
    let deviation = x.std_axis(0)?;
    let x = ((x - &mean) / (&deviation + 1e-5)).eval()?;
    let z1 = (x.matmul(&net.w1)? + &net.b1).eval()?;
    let h = z1.gelu().eval()?;
    let z2 = (h.matmul(&net.w2)? + &net.b2).eval()?;
    let log_p = z2.log_softmax(-1)?;
    let loss = (&log_p * y).sum_axis(-1)?.mean()?;
    let accuracy = z2.argmax_axis(-1)?.lazy().eq(y.argmax_axis(-1)?).cast::<f32>().mean()?;
    let n = x.shape()[0] as f32;
    let dz2 = ((log_p.exp() - y) / n).eval()?;
    let dw2 = h.transpose()?.matmul(&dz2)?;
    let db2 = dz2.sum_axis(0)?;
    let dh = dz2.matmul(&net.w2.transpose()?)?;
    let cube = z1.lazy() * &z1 * &z1;
    let t = ((&z1 + cube * 0.044715) * 0.797_884_6).tanh().eval()?;
    let slope = ((&t + 1.0) * 0.5 + (1.0 - t.square()) * &z1 * 0.398_942_3).eval()?;
    let dz1 = (&dh * &slope).eval()?;
    let dw1 = x.transpose()?.matmul(&dz1)?;
    let db1 = dz1.sum_axis(0)?;
    net.m.assign(&net.m * 0.9 + &dw1 * 0.1)?;
    net.v.assign(&net.v * 0.999 + dw1.square() * 0.001)?;
    net.w1.assign(&net.w1 - rate * &net.m / (net.v.sqrt() + 1e-8))?;
    net.w2.assign(&net.w2 - rate * &dw2)?;
    net.b1.assign(&net.b1 - rate * &db1)?;
    net.b2.assign(&net.b2 - rate * &db2)?;
    let norm = (dw2.square().sum()?.item()? + db2.square().sum()?.item()?).sqrt();
    let largest = (&dw1 / &net.w1).abs().max()?.item()?;
    let clipped = net.w2.clamp(-3.0, 3.0).eval()?;
    net.w2.assign(clipped)?;
    let spread = (&z2 - &z2.mean_axis(-1)?.unsqueeze(-1)?).square().mean()?.item()?;
    Ok(-loss.item()? + 0.0 * (norm + largest + spread + accuracy.item()?))
}
"""

MAIN = """
fn main() -> Result<()> {
    let device = Device::host();
    let _guard = device.enter();
    manual_seed(1);
    let (n, d, k, c) = (256, 256, 512, 10);
    let mut net = Net {
        w1: (Array::<f32>::randn([d, k])? * 0.05).eval()?, b1: Array::zeros(k)?,
        w2: (Array::<f32>::randn([k, c])? * 0.05).eval()?, b2: Array::zeros(c)?,
        m: Array::zeros([d, k])?, v: Array::zeros([d, k])?,
    };
    let x = Array::<f32>::randn([n, d])?;
    let y = Array::<i64>::from_vec((0..n as i64).map(|i| i % c as i64).collect(), n)?.one_hot::<f32>(c)?;
    let more = std::env::args().nth(1).is_some();
    if more { extra(&x, &y)?; }
    let mut seconds = Vec::new();
    for _ in 0..30 {
        let start = std::time::Instant::now();
        cache_scope!("step", { step(&mut net, &x, &y, RATE)?; });
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    println!("{}", seconds[seconds.len() / 2]);
    Ok(())
}
"""

# Expressions of which none is in the step.
EXPRESSIONS = [
    "x * {c} + 1.0",
    "(x - {c}).square() * 0.5",
    "(x * {c} + x).tanh() - 1.0",
    "(x / {c}).abs() + x.lazy() * 3.0",
    "(1.0 - x) * (x + {c})",
    "(x * {c}).maximum(0.0) + x",
    "(x * {c} - 2.0).sigmoid()",
    "x.lazy() * x.lazy() - {c} * x.lazy()",
]


def extra(assigns, folds):
    lines = ["fn extra(x: &Array<f32>, _y: &Array<f32>) -> Result<()> {", "    let mut out = x.lazy().eval()?;"]
    for expression in EXPRESSIONS[:assigns]:
        lines.append(f"    out.assign({expression.format(c='4.5')})?;")
    for expression in EXPRESSIONS[:folds]:
        lines.append(f"    ({expression.format(c='7.5')}).sum()?;")
    return "\n".join(lines + ["    let _ = &out;", "    Ok(())", "}", ""])


class Program:
    """A user's program. `dependency` is the line of its manifest, by default the path of `library`, whose edits it sees.

    Cargo compiles a path like a package that is being edited, incrementally and in 256 parts; users' dependencies are
    not paths.
    """

    def __init__(self, folder, library, target, dependency=None):
        self.folder, self.target = folder, target
        dependency = dependency or f'path = "{library}"'
        (folder / "src").mkdir()
        manifest = f"""[package]
name = "edit"
version = "0.1.0"
edition = "2024"

[dependencies]
cachescope = {{ {dependency} }}

[workspace]
"""
        (folder / "Cargo.toml").write_text(manifest + PROFILE)
        (folder / "Cargo.lock").write_bytes((library / "Cargo.lock").read_bytes())

    def build(self, release, rate, assigns=0, folds=0):
        source = STEP + f"\nconst RATE: f32 = {rate};\n" + MAIN + extra(assigns, folds)
        (self.folder / "src" / "main.rs").write_text(source)
        environment = dict(os.environ, CARGO_TARGET_DIR=str(self.target), RUSTFLAGS="-Awarnings")
        subprocess.run(["cargo", "fetch", "--quiet"], cwd=self.folder, check=True, env=environment)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["cargo", "build", "--offline", "--quiet"] + ["--release"] * release
        subprocess.run(command, cwd=self.folder, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime

    def edit(self, release, **more):
        """The median of three builds after a change of one line of the step."""
        times = []
        for rate in (0.01, 0.02, 0.03):
            changed = STEP.replace("0.5 +", f"{0.5 + rate} +")
            global_step, globals()["STEP"] = STEP, changed
            times.append(self.build(release, rate, **more))
            globals()["STEP"] = global_step
        return statistics.median(times)

    def run(self, release):
        binary = self.target / ("release" if release else "debug") / "edit"
        environment = dict(os.environ, RAYON_NUM_THREADS="1")
        times = [subprocess.run([binary], check=True, capture_output=True, env=environment) for _ in range(5)]
        return statistics.median(float(one.stdout) for one in times)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=root)
    parser.add_argument("--target", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        target = (arguments.target or folder / "target").resolve()
        program = Program(folder, arguments.library.resolve(), target)
        steps = {}
        count = len(EXPRESSIONS)
        for release in (True, False):
            name = "release" if release else "debug"
            print(f"{name}: first build {program.build(release, 0.1):.1f} s", flush=True)
            plain = program.edit(release)
            steps[release] = program.run(release)
            assigns = (program.edit(release, assigns=count) - plain) / count
            folds = (program.edit(release, folds=count) - plain) / count
            print(f"{name}: an edit {plain:.2f} s, one more assignment {assigns:.3f} s, one more reduction {folds:.3f} s")
            print(f"{name}: a step {steps[release] * 1e3:.2f} ms", flush=True)
        print(f"debug over release: {steps[False] / steps[True]:.2f}")


if __name__ == "__main__":
    main()
