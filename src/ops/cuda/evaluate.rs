//! Evaluating expressions into new memory.

use std::panic::Location;

use super::launch::{grid_of, launch};
use super::memory::{Output, room_for};
use super::prelude::source;
use super::program::Program;
use crate::array::Layout;
use crate::context::Device;
use crate::device::cuda::{Arguments, Cuda, KernelKey};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::host::Results;
use crate::ops::order::{Order, Reading};

/// The kernels that write the elements of an expression.
struct Evaluate;

const TEXT: &str = include_str!("elementwise.cuh");

/// The elements of each result of `formula` over the shape of `layout`, which is dense from index 0, in one pass into
/// one allocation a result.
#[track_caller]
pub(in crate::ops) fn evaluate(
    gpu: &Cuda,
    formula: &Formula<'_>,
    device: &Device,
    layout: &Layout,
) -> Result<Results> {
    let call_site = Location::caller();
    let reading = Reading(formula);
    let order = Order::new(gpu, device, &reading);
    let element_bytes = formula.first().dtype.bytes();
    let (buffer, output) = room_for(device, layout, element_bytes, call_site)?;
    if output.count > 0 {
        write(order, &Program::row_major(formula, layout.shape()), output)?;
    }
    Ok(std::iter::once(buffer).collect())
}

/// Writes the elements to the program's target or else one after another to `output`, which begins at a whole
/// word of 16 bytes where the program reads such.
pub(super) fn write(order: Order<'_>, program: &Program<'_>, output: Output) -> Result<()> {
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
    let key = program.key(KernelKey::of::<Evaluate>);
    let grid = grid_of(order.gpu, output.count.div_ceil(program.width()));
    launch(order, key, &text, grid, &arguments)
}
