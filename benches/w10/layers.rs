//! The layers around attention, and their gradients: layer norms, and linear layers with a bias.

use std::str::FromStr;
use std::time::Duration;

use cachescope::grad::value_and_grad;
use cachescope::half::{bf16, f16};
use cachescope::{Array, Device, Float, Result};
use serde_json::{Value, json};

use crate::attention::{Narrow, median};
use crate::{Attention, Outcome};

#[derive(Clone, Copy, Debug)]
enum Kind {
    LayerNorm,
    /// A linear layer with a bias, and equal numbers of inputs and outputs.
    Linear,
}

/// A layer, its numbers, and the rows and columns that it is applied to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    kind: Kind,
    numbers: Narrow,
    rows: usize,
    width: usize,
}

/// Parses a layer from `layer_norm|linear,TYPE,ROWS,WIDTH`.
impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let fields: Vec<_> = text.split(',').collect();
        let &[kind, numbers, rows, width] = fields.as_slice() else {
            return Err(format!("\"{text}\" does not have 4 fields"));
        };
        let number = |field: &str| field.parse().map_err(|error| format!("{text}: {error}"));
        Ok(Self {
            kind: match kind {
                "layer_norm" => Kind::LayerNorm,
                "linear" => Kind::Linear,
                _ => return Err(format!("{text}: no layer \"{kind}\"")),
            },
            numbers: numbers.parse()?,
            rows: number(rows)?,
            width: number(width)?,
        })
    }
}

/// Times the result of a layer, and the gradients of a sum of its squares.
pub(crate) fn timed(layer: Layer, options: &Attention) -> Outcome<Value> {
    match layer.numbers {
        Narrow::F32 => timed_as::<f32>(layer, options),
        Narrow::F16 => timed_as::<f16>(layer, options),
        Narrow::Bf16 => timed_as::<bf16>(layer, options),
    }
}

fn timed_as<T: Float>(layer: Layer, options: &Attention) -> Outcome<Value> {
    let Layer { rows, width, .. } = layer;
    let random = |shape: &[usize]| Array::<f32>::randn(shape)?.cast::<T>().eval();
    let weight = match layer.kind {
        Kind::LayerNorm => random(&[width])?,
        Kind::Linear => random(&[width, width])?,
    };
    let operands = [random(&[rows, width])?, weight, random(&[width])?];
    let epsilon = T::from_f64(1e-5);
    let applied = |[x, weight, bias]: &[Array<T>; 3]| match layer.kind {
        Kind::LayerNorm => x.layer_norm(weight, bias, epsilon),
        Kind::Linear => {
            let (weight, bias) = (weight.clone(), Some(bias.clone()));
            cachescope::grad::nn::Linear { weight, bias }.forward(x)
        }
    };
    let of_squares = |operands: &[Array<T>; 3]| -> Result<()> {
        value_and_grad(operands, |operands| applied(operands)?.square().sum()).map(drop)
    };
    let least = Duration::from_millis(options.round_ms);
    let forward = median(least, || applied(&operands).map(drop))?;
    Device::current().reset_peaks();
    let both = median(least, || of_squares(&operands))?;
    let peak_bytes = Device::current().memory_stats().peak_live_bytes;
    // The loss alone has a forward and a backward pass too.
    let result = applied(&operands)?;
    let loss = median(least, || {
        value_and_grad(&result, |result| result.square().sum()).map(drop)
    })?;
    Ok(json!({
        "forward_ms": forward * 1e3,
        "backward_ms": (both - forward - loss) * 1e3,
        "peak_bytes": peak_bytes,
    }))
}
