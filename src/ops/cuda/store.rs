//! Evaluating an expression into the memory of an array.

use super::evaluate::{evaluate, write};
use super::memory::{Output, address_of};
use super::program::Program;
use crate::array::{Array, Element};
use crate::device::cuda::Cuda;
use crate::error::Result;
use crate::ops::aliasing::Aliasing;
use crate::ops::order::{Order, Reading, Updating};
use crate::ops::{Expr, IntoExpr};

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
    let updating = Updating {
        target: target.buffer(),
        reading: Reading(expr),
    };
    let order = Order::new(gpu, target.device(), &updating);
    let address = address_of(target);
    let program = if is_dense && address.0.is_multiple_of(16) {
        Program::row_major(expr, target.layout().shape())
    } else {
        Program::onto(expr, target)
    };
    write(order, &program, Output { address, count })
}
