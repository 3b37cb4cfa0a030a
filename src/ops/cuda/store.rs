//! Evaluating an expression into the memory of an array.

use super::evaluate::{evaluate, write};
use super::launch::{grid_of, launch};
use super::memory::{Output, address_of};
use super::prelude::source;
use super::program::Program;
use crate::array::{Array, Element};
use crate::device::StreamId;
use crate::device::cuda::{Arguments, Cuda};
use crate::error::Result;
use crate::ops::aliasing::Aliasing;
use crate::ops::order::ordered_update;
use crate::ops::{Expr, IntoExpr};

/// The kernels that write the elements of an expression where those of another array stand.
struct Store;

const TEXT: &str = include_str!("stored.cuh");

/// Sets the elements of `target` to those of `expr`, which is of the same device and broadcasts to
/// it: in place, where nothing outside `expr` shares the memory, and in new memory otherwise.
#[track_caller]
pub(in crate::ops) fn store<T: Element, E: Expr<Item = T>>(
    gpu: &Cuda,
    expr: &E,
    target: &mut Array<T>,
) -> Result<()> {
    let aliasing = Aliasing::of(target, expr);
    if aliasing.is_exclusive && !aliasing.is_crosswise {
        return overwrite(gpu, expr, target, aliasing.is_dense);
    }
    let fresh = evaluate(gpu, expr, target.device(), target.layout().shape())?;
    if !aliasing.is_exclusive {
        *target = fresh;
        return Ok(());
    }
    let is_dense = target.layout().is_contiguous();
    overwrite(gpu, &fresh.into_lazy().expr, target, is_dense)
}

/// Writes the elements of `expr` over those of `target`, which nothing outside `expr` holds and whose
/// elements do not overlap; `expr` reads it only as `target` itself stands, so that each thread reads an
/// element before it writes it.
fn overwrite<T: Element, E: Expr<Item = T>>(
    gpu: &Cuda,
    expr: &E,
    target: &mut Array<T>,
    is_dense: bool,
) -> Result<()> {
    let count = target.layout().len();
    if count == 0 {
        return Ok(());
    }
    let stream = ordered_update(expr, target.buffer(), target.device())?;
    let address = address_of(target);
    if is_dense && address.0.is_multiple_of(16) {
        let program = Program::row_major(expr, target.layout().shape());
        return write(gpu, stream, &program, Output { address, count });
    }
    write_onto(gpu, stream, &Program::onto(expr, target), count)
}

/// Writes the `count` elements to the program's own target.
fn write_onto(gpu: &Cuda, stream: StreamId, program: &Program, count: usize) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push(count as u64);
    let text = || {
        let mut text = String::new();
        program.text(&mut text);
        text.push_str(TEXT);
        source(program.name(), &text)
    };
    let key = program.key::<Store>();
    let grid = grid_of(gpu, count.div_ceil(program.width()));
    launch(gpu, stream, key, &text, grid, &arguments)
}
