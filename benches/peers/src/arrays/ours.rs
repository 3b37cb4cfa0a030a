//! The tasks, implemented with this library.

use std::hint::black_box;

use cachescope::{Array, Result, cache_scope};

use super::{Number, Op, Run, Task};

/// Returns a run of `task` in which results are new arrays from a scope's cache.
pub fn run(task: Task) -> Run {
    let operands = Operands::new(task).expect("the operands fit into memory");
    Box::new(move |n| {
        cache_scope!("arrays", {
            for _ in 0..n {
                let result = operands.compute(task.op);
                drop(black_box(result.expect("the shapes fit")));
            }
        });
    })
}

/// Returns a run of `task` that writes to an existing array. Returns `None` if the task has no such
/// implementation.
pub fn run_in_place(task: Task) -> Option<Run> {
    let Operands { a, b, c, d, .. } = Operands::new(task).expect("the operands fit into memory");
    let mut out = a.to_uncached().expect("the result fits into memory");
    let mut assign: Box<dyn FnMut() -> Result<()>> = match task.op {
        Op::Add => Box::new(move || out.assign(&a + &b)),
        Op::Chain => Box::new(move || out.assign((&a * &b + &c).sin() * 2.0 - &d)),
        Op::Exp => Box::new(move || out.assign(a.exp())),
        Op::Tanh => Box::new(move || out.assign(a.tanh())),
        _ => return None,
    };
    Some(Box::new(move |n| {
        for _ in 0..n {
            black_box(assign()).expect("the shapes fit");
        }
    }))
}

struct Operands {
    a: Array<Number>,
    b: Array<Number>,
    c: Array<Number>,
    d: Array<Number>,
    row: Array<Number>,
    column: Array<Number>,
    transposed: Array<Number>,
}

impl Operands {
    fn new(task: Task) -> Result<Self> {
        let side = task.side;
        let matrix = |which| Array::from_vec(task.operand(which), [side, side]);
        let (a, b) = (matrix(0)?, matrix(1)?);
        let edge = &task.operand(2)[..side];
        Ok(Self {
            c: matrix(2)?,
            d: matrix(3)?,
            row: Array::from_slice(edge, side)?,
            column: Array::from_slice(edge, [side, 1])?,
            transposed: b.transpose()?,
            a,
            b,
        })
    }

    fn compute(&self, op: Op) -> Result<Array<Number>> {
        let Self { a, b, c, d, .. } = self;
        match op {
            Op::Add => (a + b).eval(),
            Op::AddTransposed => (a + &self.transposed).eval(),
            Op::AddRow => (a + &self.row).eval(),
            Op::AddColumn => (a + &self.column).eval(),
            Op::Chain => ((a * b + c).sin() * 2.0 - d).eval(),
            Op::Exp => a.exp().eval(),
            Op::Tanh => a.tanh().eval(),
            Op::Softmax => a.softmax(1),
            Op::Sum => a.sum(),
            Op::SumAxis0 => a.sum_axis(0),
            Op::SumAxis1 => a.sum_axis(1),
            Op::Matmul => a.matmul(b),
        }
    }
}
