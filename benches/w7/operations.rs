//! Array operations on square matrices of `f32` (W6).

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cachescope::{Array, Device, Result, cache_scope};
use serde_json::{Value, json};

use crate::{Outcome, Work};

/// The number of printed elements of a result.
const SAMPLES: usize = 64;

/// A function that computes a result from the operands.
pub(crate) type Compute = fn(&Operands) -> Result<Array<f32>>;

pub(crate) const OPERATIONS: [(Compute, &str); 12] = [
    (|m| (&m.a + &m.b).eval(), "a+b"),
    (|m| (&m.a + &m.transposed).eval(), "a+b.T"),
    (|m| (&m.a + &m.row).eval(), "a+row"),
    (|m| (&m.a + &m.column).eval(), "a+column"),
    (
        |m| ((&m.a * &m.b + &m.c).sin() * 2.0 - &m.d).eval(),
        "fused",
    ),
    (|m| m.a.exp().eval(), "exp"),
    (|m| m.a.tanh().eval(), "tanh"),
    (|m| m.a.softmax(1), "softmax"),
    (|m| m.a.sum(), "sum"),
    (|m| m.a.sum_axis(0), "sum_axis0"),
    (|m| m.a.sum_axis(1), "sum_axis1"),
    (|m| m.a.matmul(&m.b), "matmul"),
];

/// Square matrices, and arrays that are broadcast to the shape of the matrices.
pub(crate) struct Operands {
    pub(crate) side: usize,
    a: Array<f32>,
    b: Array<f32>,
    c: Array<f32>,
    d: Array<f32>,
    row: Array<f32>,
    column: Array<f32>,
    transposed: Array<f32>,
}

impl Operands {
    pub(crate) fn new(side: usize) -> Result<Self> {
        let matrix = |which| Array::from_vec(elements(which, side * side), [side, side]);
        let (a, b) = (matrix(0)?, matrix(1)?);
        let edge = elements(2, side);
        Ok(Self {
            side,
            c: matrix(2)?,
            d: matrix(3)?,
            row: Array::from_slice(&edge, side)?,
            column: Array::from_slice(&edge, [side, 1])?,
            transposed: b.transpose()?,
            a,
            b,
        })
    }
}

/// Returns the elements of the operand with index `which`. They are from -1 to 3, so that no sum of
/// many elements is close to 0. `w7.py` computes the same numbers.
fn elements(which: u32, count: usize) -> Vec<f32> {
    let scrambled = |index: usize| {
        let hashed = (index as u32).wrapping_mul(2_654_435_761);
        hashed.wrapping_add(which.wrapping_mul(1_013_904_223))
    };
    let unit = 1.0 / (1 << 22) as f32;
    let element = |index| (scrambled(index) >> 8) as f32 * unit - 1.0;
    (0..count).map(element).collect()
}

/// An operation whose result is dropped immediately.
pub(crate) struct Operation {
    device: Device,
    compute: Compute,
    operands: Rc<Operands>,
}

impl Operation {
    pub(crate) fn new(device: &Device, compute: Compute, operands: Rc<Operands>) -> Self {
        Self {
            device: device.clone(),
            compute,
            operands,
        }
    }
}

impl Work for Operation {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        cache_scope!("w7-operation", {
            for _ in 0..times {
                drop(black_box((self.compute)(&self.operands)?));
            }
        });
        self.device.synchronize()?;
        Ok(start.elapsed())
    }

    fn check(&mut self) -> Outcome<Value> {
        let values = (self.compute)(&self.operands)?.to_vec()?;
        Ok(summary(&values))
    }
}

/// Returns samples of the values, and the mean of all values.
fn summary(values: &[f32]) -> Value {
    let count = values.len();
    let samples = SAMPLES.min(count);
    let sample: Vec<f32> = (0..samples).map(|n| values[n * count / samples]).collect();
    let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
    json!({ "count": count, "sample": sample, "mean": sum / count as f64 })
}

/// A copy of a matrix to an existing matrix.
pub(crate) struct Assigned {
    device: Device,
    target: Array<f32>,
    operands: Rc<Operands>,
}

impl Assigned {
    pub(crate) fn new(device: &Device, operands: Rc<Operands>) -> Result<Self> {
        let side = operands.side;
        Ok(Self {
            device: device.clone(),
            target: Array::zeros([side, side])?,
            operands,
        })
    }
}

impl Work for Assigned {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            self.target.assign(&self.operands.a)?;
        }
        self.device.synchronize()?;
        Ok(start.elapsed())
    }

    fn check(&mut self) -> Outcome<Value> {
        self.target.assign(&self.operands.a)?;
        Ok(summary(&self.target.to_vec()?))
    }
}
