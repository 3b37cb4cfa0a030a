//! Evaluating expressions into new memory.

use std::panic::Location;

use smallvec::SmallVec;

use super::launch::{grid_of, launch};
use super::memory::{Output, allocate_for};
use super::prelude::source;
use super::program::Program;
use crate::array::Layout;
use crate::device::cuda::{Arguments, KernelKey};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::host::{MOST_RESULTS, Results};
use crate::ops::order::CudaOrder;
use crate::ops::tree::Operand;

/// The kernels that write the elements of an expression.
struct Evaluate;

/// Those that write the elements of several.
struct EvaluateAll;

const TEXT: &str = include_str!("elementwise.cuh");
const TEXT_OF_ALL: &str = include_str!("several.cuh");

/// The elements of each result of `formula` over the shape of `layout`, which is dense from index 0, in one pass into
/// one allocation a result.
#[track_caller]
pub(in crate::ops) fn evaluate(
    order: CudaOrder<'_>,
    formula: &Formula<'_>,
    layout: &Layout,
) -> Result<Results> {
    let call_site = Location::caller();
    let mut results = Results::new();
    let mut first = None;
    for &result in formula.results() {
        let element_bytes = formula.terms()[result].dtype.bytes();
        let (buffer, output) = allocate_for(order.device, layout, element_bytes, call_site)?;
        results.push(buffer);
        first.get_or_insert(output);
    }
    let Some(output) = first.filter(|output| output.count > 0) else {
        return Ok(results);
    };
    if let [_] = formula.results() {
        write(order, &Program::row_major(formula, layout.shape()), output)?;
        return Ok(results);
    }
    let targets = formula.results().iter().zip(&results);
    let targets = targets.map(|(&result, buffer)| Operand {
        buffer,
        layout,
        dtype: formula.terms()[result].dtype,
    });
    let targets: SmallVec<[Operand<'_>; MOST_RESULTS]> = targets.collect();
    write_all(order, &Program::onto_all(formula, &targets), output.count)?;
    drop(targets);
    Ok(results)
}

/// Writes the `count` elements of every result to the program's targets.
#[track_caller]
pub(super) fn write_all(order: CudaOrder<'_>, program: &Program<'_>, count: usize) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push(count as u64);
    let text = || {
        let mut text = String::new();
        program.text_of_all(&mut text);
        text.push_str(TEXT_OF_ALL);
        source(program.name(), &text)
    };
    let key = program.key(KernelKey::of::<EvaluateAll>);
    launch(order, key, &text, grid_of(order.gpu, count), &arguments)
}

/// Writes the elements to the program's target or else one after another to `output`, which begins at a whole
/// word of 16 bytes where the program reads such.
#[track_caller]
pub(super) fn write(order: CudaOrder<'_>, program: &Program<'_>, output: Output) -> Result<()> {
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
