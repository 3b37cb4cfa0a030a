//! Evaluation of expressions into new memory.

#[cfg(test)]
mod tests;

use std::panic::Location;

use smallvec::SmallVec;

use super::launch::{grid_of, launch};
use super::memory::{Output, allocate_for};
use super::prelude::source;
use super::program::{Crossed, Program};
use super::walk::blocks_of;
use crate::array::{Layout, Shape};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::expression::graph::{ExpressionGraph, MOST_RESULTS, Results};
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

/// The kernels that write the elements of an expression.
struct Evaluate;

/// The kernels that write the elements of an expression by tiles.
struct EvaluateCrossed;

/// The kernels that write the elements of several results.
struct EvaluateAll;

const TEXT: &str = include_str!("../elementwise.cuh");
const TEXT_OF_CROSSED: &str = include_str!("../crossed.cuh");
const TEXT_OF_ALL: &str = include_str!("../several.cuh");

/// Returns a new buffer for each result of `graph`, with its elements over `shape`. One kernel
/// computes all results. The caller has checked the length of `shape`.
#[track_caller]
pub(in crate::ops) fn evaluate(
    order: CudaOrder<'_>,
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
) -> Result<Results> {
    let layout = &Layout::row_major(shape);
    let call_site = Location::caller();
    let mut results = Results::new();
    let mut first = None;
    for &result in graph.results() {
        let element_bytes = graph.nodes()[result].dtype.size_bytes();
        let (buffer, output) = allocate_for(order.device, layout, element_bytes, call_site)?;
        results.push(buffer);
        first.get_or_insert(output);
    }
    let Some(output) = first.filter(|output| output.count > 0) else {
        return Ok(results);
    };
    if let [_] = graph.results() {
        let program = Program::row_major(graph, shape);
        let target = Operand {
            buffer: &results[0],
            layout,
            dtype: graph.first().dtype,
        };
        let onto = || Program::onto(graph, target).crossed();
        match program.has_steps().then(onto).flatten() {
            Some(crossed) => write_crossed(order, &crossed)?,
            None => write(order, &program, output)?,
        }
        return Ok(results);
    }
    let targets = graph.results().iter().zip(&results);
    let targets = targets.map(|(&result, buffer)| Operand {
        buffer,
        layout,
        dtype: graph.nodes()[result].dtype,
    });
    let targets: SmallVec<[Operand<'_>; MOST_RESULTS]> = targets.collect();
    write_all(order, &Program::onto_all(graph, &targets), output.count)?;
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
    launch(order, key, &text, grid_of(count), &arguments)
}

/// Writes all elements to the target, tile by tile.
#[track_caller]
fn write_crossed(order: CudaOrder<'_>, crossed: &Crossed<'_>) -> Result<()> {
    let mut arguments = Arguments::default();
    crossed.arguments(&mut arguments);
    let text = || crossed_source(crossed);
    let key = crossed.key(KernelKey::of::<EvaluateCrossed>);
    let grid = blocks_of(crossed.tiles());
    launch(order, key, &text, grid, &arguments)
}

fn crossed_source(crossed: &Crossed<'_>) -> KernelSource {
    let mut text = String::new();
    crossed.text(&mut text);
    text.push_str(TEXT_OF_CROSSED);
    source(crossed.name(), &text)
}

/// Writes the elements of `program` to its target. If the program has no target, writes the
/// elements contiguously to `output`. If the program reads packs, the address of `output` must be a
/// multiple of 16.
#[track_caller]
pub(super) fn write(order: CudaOrder<'_>, program: &Program<'_>, output: Output) -> Result<()> {
    if let Some(crossed) = program.crossed() {
        return write_crossed(order, &crossed);
    }
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
    let grid = grid_of(output.count.div_ceil(program.width()));
    launch(order, key, &text, grid, &arguments)
}
