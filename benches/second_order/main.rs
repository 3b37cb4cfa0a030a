//! Times second-order gradients, for a script that compares them with JAX. Each input line is `NAME
//! TIMES`: a step and the number of runs. The output line is the total time of the runs in
//! nanoseconds, and the loss.
//!
//! ```text
//! $ echo penalty 10 | RAYON_NUM_THREADS=1 cargo bench --bench second_order
//! ```

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use cachescope::grad::Parameters;
use cachescope::grad::value_and_grad;
use cachescope::{Array, Policy, Result, cache_scope};

/// A layer with a weight of shape `[inputs, outputs]`.
#[derive(Parameters)]
struct Layer {
    weight: Array<f32>,
    bias: Array<f32>,
}

/// Returns deterministic numbers from −`bound` to `bound`. The script with JAX computes the same
/// numbers.
fn numbers(shape: [usize; 2], bound: f64) -> Result<Array<f32>> {
    let count = shape[0] * shape[1];
    let number = |index: usize| ((index as f64 * 0.7391 + 0.3).sin() * bound) as f32;
    Array::from_vec((0..count).map(number).collect(), shape)
}

fn layers(widths: &[usize]) -> Result<Vec<Layer>> {
    let layer = |pair: &[usize]| {
        Ok(Layer {
            weight: numbers([pair[0], pair[1]], (3.0 / pair[0] as f64).sqrt())?,
            bias: Array::zeros(pair[1])?,
        })
    };
    widths.windows(2).map(layer).collect()
}

/// Applies the layers, with tanh between consecutive layers.
fn forward(layers: &[Layer], x: &Array<f32>) -> Result<Array<f32>> {
    let mut x = x.clone();
    for (index, layer) in layers.iter().enumerate() {
        let y = x.matmul(&layer.weight)? + &layer.bias;
        x = match index + 1 < layers.len() {
            true => y.tanh().eval()?,
            false => y.eval()?,
        };
    }
    Ok(x)
}

/// Returns the mean squared deviation of the gradient norms at `x` from 1. Source: Gulrajani et
/// al., "Improved Training of Wasserstein GANs", 2017.
fn penalty(critic: &[Layer], x: &Array<f32>) -> Result<Array<f32>> {
    let (_, slopes) = value_and_grad(x, |x| forward(critic, x)?.sum())?;
    (slopes.square().sum_axis(1)?.sqrt() - 1.0).square().mean()
}

/// Returns the residual of a solution of u'' = −sin x (Raissi et al., "Physics-informed neural
/// networks", 2019).
fn residual(solution: &[Layer], x: &Array<f32>) -> Result<Array<f32>> {
    let (_, second) = value_and_grad(x, |x| {
        let (_, first) = value_and_grad(x, |x| forward(solution, x)?.sum())?;
        first.sum()
    })?;
    (second + x.sin()).square().mean()
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let critic = (layers(&[256, 256, 1])?, numbers([256, 256], 1.0)?);
    let solution = (layers(&[1, 64, 64, 64, 64, 1])?, numbers([1024, 1], 3.0)?);
    let step = |name: &str| {
        cache_scope!(name, policy = Policy::Plan, {
            let (loss, _gradients) = match name {
                "penalty" => value_and_grad(&critic.0, |own| penalty(own, &critic.1))?,
                _ => value_and_grad(&solution.0, |own| residual(own, &solution.1))?,
            };
            loss.item()
        })
    };
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (name, times) = line.split_once(' ').ok_or("expected NAME TIMES")?;
        let start = Instant::now();
        let mut loss = 0.0;
        for _ in 0..times.parse()? {
            loss = step(name)?;
        }
        writeln!(out, "{} {loss}", start.elapsed().as_nanos())?;
        out.flush()?;
    }
    Ok(())
}
