//! The tasks, implemented with ndarray: with operators and methods, and with zips.

use std::hint::black_box;

use ndarray::linalg::general_mat_mul;
use ndarray::parallel::par_azip;
use ndarray::{Array1, Array2, Axis, Zip, azip};

use super::{Number, Op, Run, Task};

struct Operands {
    a: Array2<Number>,
    b: Array2<Number>,
    c: Array2<Number>,
    d: Array2<Number>,
    row: Array1<Number>,
    column: Array2<Number>,
}

impl Operands {
    fn new(task: Task) -> Self {
        let side = task.side;
        let matrix = |which| Array2::from_shape_vec([side, side], task.operand(which)).unwrap();
        let edge = task.operand(2)[..side].to_vec();
        Self {
            a: matrix(0),
            b: matrix(1),
            c: matrix(2),
            d: matrix(3),
            column: Array2::from_shape_vec([side, 1], edge.clone()).unwrap(),
            row: Array1::from_vec(edge),
        }
    }
}

/// Returns a run of `task` with operators and methods. Each operator and method returns a new
/// array.
pub fn operators(task: Task) -> Run {
    let Operands {
        a,
        b,
        c,
        d,
        row,
        column,
    } = Operands::new(task);
    match task.op {
        Op::Add => repeat(move || &a + &b),
        Op::AddTransposed => repeat(move || &a + &b.t()),
        Op::AddRow => repeat(move || &a + &row),
        Op::AddColumn => repeat(move || &a + &column),
        Op::Chain => repeat(move || (&a * &b + &c).mapv_into(Number::sin) * 2.0 - &d),
        Op::Exp => repeat(move || a.mapv(Number::exp)),
        Op::Tanh => repeat(move || a.mapv(Number::tanh)),
        Op::Softmax => repeat(move || {
            let highest = a.map_axis(Axis(1), |row| row.fold(Number::MIN, |a, &b| a.max(b)));
            let shifted = (&a - &highest.insert_axis(Axis(1))).mapv_into(Number::exp);
            let totals = shifted.sum_axis(Axis(1)).insert_axis(Axis(1));
            shifted / totals
        }),
        Op::Sum => repeat(move || a.sum()),
        Op::SumAxis0 => repeat(move || a.sum_axis(Axis(0))),
        Op::SumAxis1 => repeat(move || a.sum_axis(Axis(1))),
        Op::Matmul => repeat(move || a.dot(&b)),
    }
}

/// Returns a run of `task` that zips into an existing array, in parallel if `threads` exceeds 1.
/// Returns `None` if no zip can compute the task.
pub fn zips(task: Task, threads: usize) -> Option<Run> {
    let Operands {
        a,
        b,
        c,
        d,
        row,
        column,
    } = Operands::new(task);
    let mut out = Array2::<Number>::zeros(a.raw_dim());
    // Returns a run of a zip, in its parallel form if `threads` exceeds 1.
    macro_rules! zip {
        (($($operands:tt)+) $value:expr) => {
            repeat(move || {
                if threads == 1 {
                    azip!((out in &mut out, $($operands)+) *out = $value);
                } else {
                    par_azip!((out in &mut out, $($operands)+) *out = $value);
                }
                black_box(&mut out);
            })
        };
    }
    Some(match task.op {
        Op::Add => zip!((&a in &a, &b in &b) a + b),
        Op::AddTransposed => zip!((&a in &a, &b in b.t()) a + b),
        Op::AddRow => zip!((&a in &a, &b in row.broadcast(a.raw_dim()).unwrap()) a + b),
        Op::AddColumn => zip!((&a in &a, &b in column.broadcast(a.raw_dim()).unwrap()) a + b),
        Op::Chain => zip!((&a in &a, &b in &b, &c in &c, &d in &d) (a * b + c).sin() * 2.0 - d),
        Op::Exp => zip!((&a in &a) a.exp()),
        Op::Tanh => zip!((&a in &a) a.tanh()),
        Op::Softmax => repeat(move || {
            let rows = Zip::from(out.rows_mut()).and(a.rows());
            let softmax = |mut out: ndarray::ArrayViewMut1<'_, Number>,
                           row: ndarray::ArrayView1<'_, Number>| {
                let highest = row.fold(Number::MIN, |a, &b| a.max(b));
                azip!((out in &mut out, &x in &row) *out = (x - highest).exp());
                let total = out.sum();
                out.mapv_inplace(|x| x / total);
            };
            if threads == 1 {
                rows.for_each(softmax);
            } else {
                rows.par_for_each(softmax);
            }
            black_box(&mut out);
        }),
        Op::Matmul => repeat(move || {
            general_mat_mul(1.0, &a, &b, 0.0, &mut out);
            black_box(&mut out);
        }),
        Op::Sum | Op::SumAxis0 | Op::SumAxis1 => return None,
    })
}

fn repeat<T>(mut once: impl FnMut() -> T + 'static) -> Run {
    Box::new(move |n| {
        for _ in 0..n {
            drop(black_box(once()));
        }
    })
}
