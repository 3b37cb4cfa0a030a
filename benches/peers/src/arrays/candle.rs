//! The tasks, implemented with candle on the CPU.

use std::hint::black_box;

use candle_core::{Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::{Op, Run, Task};

/// Returns a run of `task` in which each result is a new tensor.
pub fn run(task: Task) -> Run {
    let side = task.side;
    let matrix = |which| Tensor::from_vec(task.operand(which), (side, side), &Device::Cpu).unwrap();
    let (a, b, c, d) = (matrix(0), matrix(1), matrix(2), matrix(3));
    let edge = task.operand(2)[..side].to_vec();
    let row = Tensor::from_vec(edge.clone(), side, &Device::Cpu).unwrap();
    let column = Tensor::from_vec(edge, (side, 1), &Device::Cpu).unwrap();
    match task.op {
        Op::Add => repeat(move || &a + &b),
        Op::AddTransposed => repeat(move || &a + b.t()?),
        Op::AddRow => repeat(move || a.broadcast_add(&row)),
        Op::AddColumn => repeat(move || a.broadcast_add(&column)),
        Op::Chain => repeat(move || (((&a * &b)? + &c)?.sin()? * 2.0)? - &d),
        Op::Exp => repeat(move || a.exp()),
        Op::Tanh => repeat(move || a.tanh()),
        Op::Softmax => repeat(move || softmax_last_dim(&a)),
        Op::Sum => repeat(move || a.sum_all()),
        Op::SumAxis0 => repeat(move || a.sum(0)),
        Op::SumAxis1 => repeat(move || a.sum(1)),
        Op::Matmul => repeat(move || a.matmul(&b)),
    }
}

fn repeat(once: impl Fn() -> Result<Tensor> + 'static) -> Run {
    Box::new(move |n| {
        for _ in 0..n {
            drop(black_box(once().unwrap()));
        }
    })
}
