//! Benchmark W6: convolutions, with and without gradients, and pooling on the host, compared with
//! candle.
//!
//! `RAYON_NUM_THREADS=1 cargo bench --manifest-path benches/peers/Cargo.toml --bench convolution
//! [-- ROUNDS]`

use std::env;
use std::hint::black_box;

use cachescope::grad::value_and_grad;
use cachescope::{Array, ConvOptions, Result, cache_scope};
use cachescope_peers::race::{Race, print_table};
use candle_core::{Device, Tensor, Var};

/// The convolutions: images, channels, outputs, image side, kernel side, stride and groups.
const CONVOLUTIONS: [[usize; 7]; 7] = [
    [8, 64, 64, 56, 3, 1, 1],
    [8, 64, 64, 56, 3, 2, 1],
    [8, 256, 64, 56, 1, 1, 1],
    [8, 3, 64, 224, 7, 2, 1],
    [8, 256, 256, 14, 3, 1, 1],
    [8, 512, 512, 7, 3, 1, 1],
    [8, 64, 64, 56, 3, 1, 64],
];

/// The convolutions with 3 × 3 kernels and gradients: images, channels, outputs and image side.
const STEPS: [[usize; 4]; 4] = [
    [16, 16, 16, 32],
    [16, 48, 16, 32],
    [16, 96, 32, 16],
    [16, 32, 64, 8],
];

/// The pooling windows: side and stride.
const POOLS: [[usize; 2]; 4] = [[2, 2], [3, 2], [5, 1], [14, 14]];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let rounds = arguments.iter().find_map(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(9);
    for task in CONVOLUTIONS {
        convolve(task, rounds);
    }
    for task in STEPS {
        step(task, rounds);
    }
    for [side, stride] in POOLS {
        pool(side, stride, rounds);
    }
}

fn operand(shape: &[usize]) -> (Array<f32>, Tensor) {
    let ours = Array::<f32>::randn(shape).expect("there is room");
    let values = ours.to_vec().expect("it can be read");
    let theirs = Tensor::from_vec(values, shape, &Device::Cpu);
    (ours, theirs.expect("there is room"))
}

fn convolve([n, c, o, side, k, step, groups]: [usize; 7], rounds: usize) {
    let (x, their_x) = operand(&[n, c, side, side]);
    let (kernel, their_kernel) = operand(&[o, c / groups, k, k]);
    let options = ConvOptions {
        stride: [step; 2],
        padding: [k / 2; 2],
        groups,
        ..Default::default()
    };
    let title = format!(
        "[{n}, {c}, {side}, {side}] by [{o}, {}, {k}, {k}], step {step}, {groups} groups",
        c / groups
    );
    let theirs = move || their_x.conv2d(&their_kernel, k / 2, step, 1, groups);
    race(&title, rounds, move || x.conv2d(&kernel, options), theirs);
}

/// Computes a weighted sum of a convolution, and the gradients of the convolution's operands.
fn step([n, c, o, side]: [usize; 4], rounds: usize) {
    let (x, their_x) = operand(&[n, c, side, side]);
    let (kernel, their_kernel) = operand(&[o, c, 3, 3]);
    let (weights, their_weights) = operand(&[n, o, side, side]);
    let options = ConvOptions {
        padding: [1; 2],
        ..Default::default()
    };
    let title = format!("[{n}, {c}, {side}, {side}] by [{o}, {c}, 3, 3], with both gradients");
    let variable = |tensor: Tensor| Var::from_tensor(&tensor).expect("there is room");
    let (their_x, their_kernel) = (variable(their_x), variable(their_kernel));
    let operands = (x, kernel);
    let ours = move || {
        let (sum, gradients) = value_and_grad(&operands, |(x, kernel)| {
            (x.conv2d(kernel, options)? * &weights).sum()
        })?;
        drop(black_box(gradients));
        Ok(sum)
    };
    let theirs = move || {
        let result = their_x.conv2d(&their_kernel, 1, 1, 1, 1)?;
        let sum = (result * &their_weights)?.sum_all()?;
        drop(black_box(sum.backward()?));
        Ok(sum)
    };
    race(&title, rounds, ours, theirs);
}

fn pool(side: usize, step: usize, rounds: usize) {
    let (x, their_x) = operand(&[8, 64, 56, 56]);
    let title = format!("the largest of {side} × {side} of [8, 64, 56, 56], step {step}");
    let theirs = move || their_x.max_pool2d_with_stride(side, step);
    race(
        &title,
        rounds,
        move || x.max_pool2d([side; 2], [step; 2]),
        theirs,
    );
}

fn race(
    title: &str,
    rounds: usize,
    ours: impl Fn() -> Result<Array<f32>>,
    theirs: impl Fn() -> candle_core::Result<Tensor>,
) {
    let mut race = Race::default();
    race.add("cachescope", |n| {
        cache_scope!("convolution", {
            for _ in 0..n {
                drop(black_box(ours().expect("the shapes fit")));
            }
        });
    });
    race.add("candle", |n| {
        for _ in 0..n {
            drop(black_box(theirs().expect("the shapes fit")));
        }
    });
    print_table(title, &race.run(rounds));
}
