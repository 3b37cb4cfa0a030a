//! The tasks for the comparison of array libraries, implemented with this library and its peers.

pub mod candle;
pub mod limit;
pub mod nd;
pub mod ours;

use std::fmt;
use std::str::FromStr;

/// The element type of all arrays.
#[cfg(not(feature = "double"))]
pub type Number = f32;
#[cfg(feature = "double")]
pub type Number = f64;

/// An operation on arrays of [`Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The sum `a + b`.
    Add,
    /// The sum `a + b`, with `b` transposed.
    AddTransposed,
    /// The sum of a matrix and a row, broadcast to all rows.
    AddRow,
    /// The sum of a matrix and a column, broadcast to all columns.
    AddColumn,
    /// The expression `(a * b + c).sin() * 2 - d`.
    Chain,
    Exp,
    Tanh,
    /// The softmax over the last axis.
    Softmax,
    Sum,
    SumAxis0,
    SumAxis1,
    /// The product of two square matrices.
    Matmul,
}

/// The operations with their names.
pub const OPS: [(Op, &str); 12] = [
    (Op::Add, "a+b"),
    (Op::AddTransposed, "a+b.T"),
    (Op::AddRow, "a+row"),
    (Op::AddColumn, "a+column"),
    (Op::Chain, "chain"),
    (Op::Exp, "exp"),
    (Op::Tanh, "tanh"),
    (Op::Softmax, "softmax"),
    (Op::Sum, "sum"),
    (Op::SumAxis0, "sum_axis0"),
    (Op::SumAxis1, "sum_axis1"),
    (Op::Matmul, "matmul"),
];

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OPS.iter().find(|(op, _)| op == self).map(|(_, name)| *name);
        f.write_str(name.expect("every operation has a name"))
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = OPS.iter().find(|(_, name)| *name == text);
        found
            .map(|(op, _)| *op)
            .ok_or_else(|| format!("no operation \"{text}\""))
    }
}

/// An operation on square matrices of `side` rows.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub op: Op,
    pub side: usize,
}

impl Task {
    /// Returns the minimum number of bytes that a task must read and write.
    pub fn bytes(self) -> usize {
        let (one, side) = (self.side * self.side, self.side);
        let elements = match self.op {
            Op::Add | Op::AddTransposed | Op::Matmul => 3 * one,
            Op::AddRow | Op::AddColumn => 2 * one + side,
            Op::Chain => 5 * one,
            Op::Exp | Op::Tanh | Op::Softmax => 2 * one,
            Op::Sum => one,
            Op::SumAxis0 | Op::SumAxis1 => one + side,
        };
        elements * size_of::<Number>()
    }

    /// Returns the operand with index `which`. Its elements are from -2 to 2.
    pub fn operand(self, which: usize) -> Vec<Number> {
        let mut generator = fastrand::Rng::with_seed(which as u64 + 1);
        let count = self.side * self.side;
        let moderate = || Number::from(generator.f32()) * 4.0 - 2.0;
        std::iter::repeat_with(moderate).take(count).collect()
    }
}

/// A function that executes a task `n` times.
pub type Run = Box<dyn FnMut(u64)>;
