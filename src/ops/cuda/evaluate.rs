//! Evaluating an expression into new memory.

use super::launch::{grid_of, launch};
use super::memory::{Output, computed, laid_out};
use super::prelude::source;
use super::program::Program;
use crate::array::{Array, Layout, Shape};
use crate::context::Device;
use crate::device::cuda::{Arguments, Cuda};
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::order::{Order, Reading};

/// The kernels that write the elements of an expression.
struct Evaluate;

const TEXT: &str = include_str!("elementwise.cuh");

/// The elements of `expr` over `shape`, in one pass into one allocation.
#[track_caller]
pub(in crate::ops) fn evaluate<E: Expr>(
    gpu: &Cuda,
    expr: &E,
    device: &Device,
    shape: &Shape,
) -> Result<Array<E::Item>> {
    let reading = Reading(expr);
    let order = Order::new(gpu, device, &reading);
    let program = Program::row_major(expr, shape);
    computed(device, shape, |output| write(order, &program, output))
}

/// The same where every operand is dense and of the shape of `layout`, which is dense from index 0.
#[track_caller]
pub(in crate::ops) fn evaluate_dense<E: Expr>(
    gpu: &Cuda,
    expr: &E,
    device: &Device,
    layout: Layout,
) -> Result<Array<E::Item>> {
    let reading = Reading(expr);
    let order = Order::new(gpu, device, &reading);
    let program = Program::row_major(expr, layout.shape());
    laid_out(device, layout, |output| write(order, &program, output))
}

/// Writes the elements to the program's target or else one after another to `output`, which begins at a whole
/// word of 16 bytes where the program reads such.
pub(super) fn write(order: Order<'_>, program: &Program, output: Output) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push(output.address.0);
    arguments.push(output.count as u64);
    let text = || {
        let mut text = String::new();
        program.text(&mut text);
        program.write_place(&mut text);
        text.push_str(TEXT);
        source(program.name(), &text)
    };
    let key = program.key::<Evaluate>();
    let grid = grid_of(order.gpu, output.count.div_ceil(program.width()));
    launch(order, key, &text, grid, &arguments)
}
