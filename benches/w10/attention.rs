//! Attention and its gradients, by the public function alone.

use std::str::FromStr;
use std::time::{Duration, Instant};

use cachescope::grad::value_and_grad;
use cachescope::half::{bf16, f16};
use cachescope::{Array, Device, Float, Result, attention, cache_scope};
use serde_json::{Value, json};

use crate::values::Values;
use crate::{Attention, Outcome};

/// The bound of queries, keys and values of a check.
const BOUND: f32 = 2.0;
/// The rounds, of which the median is taken.
const ROUNDS: usize = 3;
/// The number of elements that a check prints of each array.
const SAMPLES: usize = 64;
/// The batches and heads of a check.
const CHECKED: [usize; 2] = [2, 3];

/// The numbers, the width of a head, the length, and the mask of an attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    numbers: Narrow,
    width: usize,
    length: usize,
    is_causal: bool,
}

/// The type of the operands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Narrow {
    F32,
    F16,
    Bf16,
}

impl FromStr for Narrow {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            _ => Err(format!("no type \"{text}\"")),
        }
    }
}

/// Parses a shape from `TYPE,WIDTH,LENGTH,causal|full`.
impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let fields: Vec<_> = text.split(',').collect();
        let &[numbers, width, length, mask] = fields.as_slice() else {
            return Err(format!("\"{text}\" does not have 4 fields"));
        };
        let number = |field: &str| field.parse().map_err(|error| format!("{text}: {error}"));
        Ok(Self {
            numbers: numbers.parse()?,
            width: number(width)?,
            length: number(length)?,
            is_causal: match mask {
                "causal" => true,
                "full" => false,
                _ => return Err(format!("{text}: the mask is not causal or full")),
            },
        })
    }
}

/// Times the attention of `shape`, and the gradients of a sum of its squares.
pub(crate) fn timed(shape: Shape, options: &Attention) -> Outcome<Value> {
    match shape.numbers {
        Narrow::F32 => timed_as::<f32>(shape, options),
        Narrow::F16 => timed_as::<f16>(shape, options),
        Narrow::Bf16 => timed_as::<bf16>(shape, options),
    }
}

/// Returns elements of the attention of a small batch, and of the gradients of a sum of its
/// squares.
pub(crate) fn checked(shape: Shape) -> Outcome<Value> {
    Ok(match shape.numbers {
        Narrow::F32 => checked_as::<f32>(shape)?,
        Narrow::F16 => checked_as::<f16>(shape)?,
        Narrow::Bf16 => checked_as::<bf16>(shape)?,
    })
}

/// Returns the operands of a check, which are equal in PyTorch.
fn operands<T: Float>(shape: Shape) -> Result<[Array<T>; 3]> {
    let mut values = Values::default();
    let mut operand = || {
        let whole = [CHECKED[0], CHECKED[1], shape.length, shape.width];
        let own = values.uniform(whole.iter().product(), BOUND);
        Array::<f32>::from_vec(own, whole)?.cast::<T>().eval()
    };
    Ok([operand()?, operand()?, operand()?])
}

fn of_squares<T: Float>(operands: &[Array<T>; 3], is_causal: bool) -> Result<[Array<T>; 3]> {
    let gradients = value_and_grad(operands, |[q, k, v]| {
        attention(q, k, v, is_causal)?.square().sum()
    });
    Ok(gradients?.1)
}

fn timed_as<T: Float>(shape: Shape, options: &Attention) -> Outcome<Value> {
    let batch = (options.tokens / shape.length).max(1);
    let heads = (options.features / shape.width).max(1);
    let is_causal = shape.is_causal;
    let random = || {
        Array::<f32>::randn([batch, heads, shape.length, shape.width])?
            .cast::<T>()
            .eval()
    };
    let operands: [Array<T>; 3] = [random()?, random()?, random()?];
    let [q, k, v] = &operands;
    let least = Duration::from_millis(options.round_ms);
    let forward = median(least, || attention(q, k, v, is_causal).map(drop))?;
    Device::current().reset_peaks();
    let both = median(least, || of_squares(&operands, is_causal).map(drop))?;
    let peak_bytes = Device::current().memory_stats().peak_live_bytes;
    // The loss alone has a forward and a backward pass too.
    let result = attention(q, k, v, is_causal)?;
    let loss = median(least, || {
        value_and_grad(&result, |result| result.square().sum()).map(drop)
    })?;
    let seen = if is_causal { 2 } else { 1 };
    Ok(json!({
        "batch": batch,
        "heads": heads,
        "forward_ms": forward * 1e3,
        "backward_ms": (both - forward - loss) * 1e3,
        "peak_bytes": peak_bytes,
        "operand_bytes": q.len() * size_of::<T>(),
        "flops": 4 * q.len() * shape.length / seen,
    }))
}

/// Returns the median time of `once` in seconds. A round takes at least `least`.
pub(crate) fn median(least: Duration, mut once: impl FnMut() -> Result<()>) -> Outcome<f64> {
    let device = Device::current();
    let mut round = |times: u32| -> Outcome<Duration> {
        let began = Instant::now();
        for _ in 0..times {
            cache_scope!("attention", { once()? });
        }
        device.synchronize()?;
        Ok(began.elapsed())
    };
    round(1)?;
    let mut times = 1;
    while round(times)? < least {
        times *= 2;
    }
    let mut seconds = [0.0; ROUNDS];
    for own in &mut seconds {
        *own = round(times)?.as_secs_f64() / f64::from(times);
    }
    seconds.sort_unstable_by(f64::total_cmp);
    Ok(seconds[ROUNDS / 2])
}

fn checked_as<T: Float>(shape: Shape) -> Result<Value> {
    let operands = operands::<T>(shape)?;
    let [q, k, v] = &operands;
    let result = attention(q, k, v, shape.is_causal)?;
    let gradients = of_squares(&operands, shape.is_causal)?;
    let again = of_squares(&operands, shape.is_causal)?;
    let mut are_equal = true;
    for (gradient, again) in gradients.iter().zip(&again) {
        are_equal &= bits(gradient)? == bits(again)?;
    }
    let [of_q, of_k, of_v] = &gradients;
    Ok(json!({
        "result": sample(&result)?,
        "q": sample(of_q)?,
        "k": sample(of_k)?,
        "v": sample(of_v)?,
        "are_equal_bits": are_equal,
    }))
}

fn bits<T: Float>(array: &Array<T>) -> Result<Vec<u32>> {
    let values = array.cast::<f32>().eval()?.to_vec()?;
    Ok(values.into_iter().map(f32::to_bits).collect())
}

fn sample<T: Float>(array: &Array<T>) -> Result<Vec<f32>> {
    let values = array.cast::<f32>().eval()?.to_vec()?;
    let count = SAMPLES.min(values.len());
    Ok((0..count)
        .map(|at| values[at * values.len() / count])
        .collect())
}
