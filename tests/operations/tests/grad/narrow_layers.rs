//! Layers, losses and reductions of `f16` and `bf16` against `f64`, at inputs up to 60 000.
//!
//! Values are computed in `f32` and rounded once, so a value is within 1 ulp of the narrow type. A
//! gradient may be computed from a rounded result, and is within 2 ulps. [`TABLE`] has exceptions
//! with larger bounds. Values beyond the range of the narrow type are infinite.

use cachescope::grad::nn::{self, PoolOptions};
use cachescope::grad::value_and_grad;
use cachescope::{Array, ConvOptions, Float, Result};
use half::{bf16, f16};

use super::narrow::number;

/// The functions, with bounds in ulps for values and for gradients.
const TABLE: &[(&str, f64, Option<f64>)] = &[
    ("sum", 1.0, Some(1.0)),
    ("sum of rows", 1.0, Some(1.0)),
    ("sum of columns", 1.0, Some(1.0)),
    ("mean", 1.0, Some(1.0)),
    ("mean of rows", 1.0, Some(1.0)),
    ("var", 1.0, Some(2.0)),
    ("var of rows", 1.0, Some(2.0)),
    ("std", 1.0, Some(2.0)),
    ("std of columns", 1.0, Some(2.0)),
    ("norm", 1.0, Some(2.0)),
    ("norm of rows", 1.0, Some(2.0)),
    ("prod of rows", 1.0, Some(2.0)),
    ("logsumexp", 1.0, Some(3.0)),
    ("logsumexp of rows", 1.0, Some(3.0)),
    ("max", 1.0, Some(1.0)),
    ("min of rows", 1.0, Some(1.0)),
    ("softmax", 1.0, Some(2.0)),
    ("log_softmax", 1.0, Some(2.0)),
    ("cross_entropy", 1.0, Some(2.0)),
    ("cumsum", 1.0, Some(1.0)),
    ("diff", 1.0, Some(1.0)),
    ("windows", 1.0, Some(1.0)),
    ("take", 1.0, Some(1.0)),
    ("scatter_add", 1.0, Some(1.0)),
    ("LayerNorm", 1.0, Some(2.0)),
    ("LayerNorm of a small epsilon", 1.0, Some(2.0)),
    ("RmsNorm", 1.0, Some(2.0)),
    ("RmsNorm of a small epsilon", 1.0, Some(2.0)),
    ("GroupNorm", 1.0, Some(2.0)),
    ("GroupNorm of a small epsilon", 1.0, Some(2.0)),
    ("BatchNorm", 1.0, Some(2.0)),
    ("BatchNorm of a small epsilon", 1.0, Some(2.0)),
    ("avg_pool2d", 1.0, Some(1.0)),
    ("avg_pool2d with padding", 1.0, Some(1.0)),
    ("avg_pool2d with padding that counts", 1.0, Some(1.0)),
    ("max_pool2d", 1.0, Some(1.0)),
    ("adaptive_avg_pool2d", 1.0, Some(1.0)),
    ("adaptive_max_pool2d", 1.0, Some(1.0)),
    ("Rotary", 1.0, Some(1.0)),
    ("Rotary of neighbours", 1.0, Some(1.0)),
    ("conv2d", 1.0, Some(1.0)),
    ("matmul", 1.0, Some(1.0)),
];

/// The magnitudes of the inputs. The first is near the largest `f16`, and the square of the second
/// overflows `f16`.
const SIZES: [f64; 5] = [6e4, 300.0, 1.0, 1e-3, 0.0];

/// Returns numbers that every type represents.
fn weights<T: Float>(count: usize) -> Array<T> {
    let of = |at: usize| number::<T>([1.0, -0.5, 0.25, 2.0, 0.5][at % 5]);
    Array::from_vec((0..count).map(of).collect(), count).unwrap()
}

fn pool(padding: usize, counts_padding: bool) -> PoolOptions {
    PoolOptions {
        padding: [padding, padding],
        counts_padding,
        stride: [1, 1],
        ..PoolOptions::of([2, 2])
    }
}

fn applied<T: Float>(name: &str, x: &Array<T>) -> Result<Array<T>> {
    let rows = x.reshape([4, 6])?;
    let images = x.reshape([1, 1, 4, 6])?;
    let channels = x.reshape([3, 4, 2])?;
    let epsilon = if name.ends_with("epsilon") {
        1e-12
    } else {
        1e-5
    };
    let result = match name {
        "sum" => x.sum()?,
        "sum of rows" => rows.sum_axis(1)?,
        "sum of columns" => rows.sum_axis(0)?,
        "mean" => x.mean()?,
        "mean of rows" => rows.mean_axis(1)?,
        "var" => x.var()?,
        "var of rows" => rows.var_axis(1)?,
        "std" => x.std()?,
        "std of columns" => rows.std_axis(0)?,
        "norm" => x.norm()?,
        "norm of rows" => rows.norm_axis(1)?,
        "prod of rows" => x.reshape([12, 2])?.prod_axis(1)?,
        "logsumexp" => x.logsumexp()?,
        "logsumexp of rows" => rows.logsumexp_axis(1)?,
        "max" => x.max()?,
        "min of rows" => rows.min_axis(1)?,
        "softmax" => rows.softmax(1)?,
        "log_softmax" => rows.log_softmax(1)?,
        "cross_entropy" => rows.cross_entropy(&Array::from_slice(&[0_i64, 5, 2, 3], 4)?)?,
        "cumsum" => x.cumsum(0)?,
        "diff" => x.diff(0)?,
        "windows" => x.windows(&[5])?.mean_axis(1)?,
        "take" => x.take(&Array::from_slice(&[3_i64, 3, 7, 3, 0, 3], 6)?, 0)?,
        "scatter_add" => {
            let mut sums = Array::<T>::zeros(3)?;
            let places: Vec<i64> = (0..24).map(|at| at % 3).collect();
            sums.scatter_add(&Array::from_vec(places, 24)?, x, 0)?;
            sums
        }
        name if name.starts_with("LayerNorm") => nn::LayerNorm {
            weight: weights(6),
            bias: weights(6),
            epsilon,
        }
        .forward(&rows)?,
        name if name.starts_with("RmsNorm") => nn::RmsNorm {
            weight: weights(6),
            epsilon,
        }
        .forward(&rows)?,
        name if name.starts_with("GroupNorm") => nn::GroupNorm {
            weight: weights(4),
            bias: weights(4),
            groups: 2,
            epsilon,
        }
        .forward(&channels)?,
        name if name.starts_with("BatchNorm") => {
            let mut layer = nn::BatchNorm::<T>::new(4)?;
            (layer.weight, layer.bias, layer.epsilon) = (weights(4), weights(4), epsilon);
            layer.forward(&channels)?
        }
        "avg_pool2d" => nn::avg_pool2d(&images, pool(0, true))?,
        "avg_pool2d with padding" => nn::avg_pool2d(&images, pool(1, false))?,
        "avg_pool2d with padding that counts" => nn::avg_pool2d(&images, pool(1, true))?,
        "max_pool2d" => nn::max_pool2d(&images, pool(0, true))?,
        "adaptive_avg_pool2d" => nn::adaptive_avg_pool2d(&images, [3, 4])?,
        "adaptive_max_pool2d" => nn::adaptive_max_pool2d(&images, [3, 4])?,
        "Rotary" => nn::Rotary::default().forward(&rows, 3)?,
        "Rotary of neighbours" => nn::Rotary {
            pairs_neighbours: true,
            ..nn::Rotary::default()
        }
        .forward(&rows, 1000)?,
        "conv2d" => images.conv2d(&weights(4).reshape([1, 1, 2, 2])?, ConvOptions::default())?,
        "matmul" => rows.matmul(&weights(18).reshape([6, 3])?)?,
        _ => unreachable!("{name} has no program"),
    };
    Ok(result)
}

fn read<T: Float>(array: &Array<T>) -> Vec<f64> {
    array.cast::<f64>().eval().unwrap().to_vec().unwrap()
}

/// Returns the value, and the gradient of a weighted sum of the value's elements.
fn both<T: Float>(name: &str, x: &Array<T>) -> [Vec<f64>; 2] {
    let value = applied(name, x).unwrap();
    let weights = weights::<T>(value.len()).reshape(value.shape()).unwrap();
    let (_, gradient) = value_and_grad(x, |x| (applied(name, x)? * &weights).sum()).unwrap();
    [read(&value), read(&gradient)]
}

/// The limits and the precision of a floating-point format.
struct Format {
    largest: f64,
    smallest: f64,
    epsilon: f64,
}

/// Returns descriptions of the elements whose errors exceed the bound.
fn far(own: &[f64], exact: &[f64], ulps: f64, format: &Format) -> Vec<String> {
    let scale = exact.iter().fold(0.0_f64, |most, own| most.max(own.abs()));
    let mut far = Vec::new();
    for (own, exact) in own.iter().zip(exact) {
        // A sum in `f32` loses digits that are far below its largest terms.
        let bound = ulps * format.epsilon * exact.abs().max(format.smallest) + scale * 1e-6;
        let is_near = (own - exact).abs() <= bound;
        let is_beyond = exact.abs() + bound >= format.largest && own.is_infinite();
        if !(is_near || is_beyond && own.signum() == exact.signum()) {
            far.push(format!(
                "{own} is not {exact}, to {ulps} ulps of {}",
                format.epsilon
            ));
        }
    }
    far
}

fn table<T: Float>(format: &Format) {
    let mut wrong = Vec::new();
    for &(name, of_value, of_gradient) in TABLE {
        for size in SIZES {
            let shares = (0..24).map(|at| f64::from((at * 7 + 3) % 24) / 23.0 - 0.45);
            let exact: Vec<f64> = shares.map(|share| size * share / 0.55).collect();
            let x = Array::from_vec(exact, 24)
                .unwrap()
                .cast::<T>()
                .eval()
                .unwrap();
            let [value, gradient] = both(name, &x);
            let [exact, of_exact] = both(name, &x.cast::<f64>().eval().unwrap());
            let what = format!("{name} of {} up to {size}", T::NAME);
            if let Some(own) = far(&value, &exact, of_value, format).first() {
                wrong.push(format!("{what}: {own}"));
            }
            let Some(of_gradient) = of_gradient else {
                continue;
            };
            if let Some(own) = far(&gradient, &of_exact, of_gradient, format).first() {
                wrong.push(format!("the gradient of {what}: {own}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_of_f16_round_once() {
    table::<f16>(&Format {
        largest: 65_504.0,
        smallest: 6.103_515_625e-5,
        epsilon: f16::EPSILON.to_f64(),
    });
}

#[test]
fn functions_of_bf16_round_once() {
    table::<bf16>(&Format {
        largest: bf16::MAX.to_f64(),
        smallest: bf16::MIN_POSITIVE.to_f64(),
        epsilon: bf16::EPSILON.to_f64(),
    });
}
