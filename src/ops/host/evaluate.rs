//! Evaluation of expressions into new memory.

use super::blocked::{BlockProgram, OperandBlocks};
use super::element_source::{ElementSource, Outputs};
use super::fused::Fusing;
use super::fused_blocks::FusedBlocks;
use super::launch::{Work, launch_source};
use crate::array::{Buffer, Shape};
use crate::context::{Device, Timed};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::IndexSpace;
use crate::ops::expression::graph::{ExpressionGraph, Results};
use crate::ops::expression::tree::Tree;
use crate::ops::order::{HostOrder, ReadOperands};

/// Returns a new buffer for each result of `graph`, with its elements over `shape`. One pass
/// computes all results. The caller has checked the length of `shape`.
#[track_caller]
pub(in crate::ops) fn evaluate(
    order: HostOrder<'_>,
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
) -> Result<Results> {
    let program = BlockProgram::new(graph, &IndexSpace::row_major(shape));
    let mut results = Results::new();
    let mut bytes_each = graph.bytes_read();
    for &result in graph.results() {
        let element_bytes = graph.nodes()[result].dtype.size_bytes();
        bytes_each += element_bytes;
        results.push(allocate_for(order.device, shape, element_bytes)?);
    }
    // SAFETY: the results are new, and have space for the elements.
    unsafe {
        let outputs = outputs_of(&results);
        write(&program, &outputs, program.work(bytes_each), order);
    };
    Ok(results)
}

/// Computes the elements of `tree` by `fused`, the loop that the expression was compiled to. The
/// operands of `tree` are dense and of `shape`. Each element has `element_bytes` bytes, and its
/// computation reads `bytes_read` bytes.
#[track_caller]
pub(in crate::ops) fn evaluate_fused(
    fused: &dyn ElementSource,
    tree: &dyn Tree,
    (element_bytes, bytes_read): (usize, usize),
    device: &Device,
    shape: &Shape,
) -> Result<Buffer> {
    let _timed = Timed::begin(device);
    let order = HostOrder::new(device, &ReadOperands(tree))?;
    let buffer = allocate_for(device, shape, element_bytes)?;
    let count = buffer.size_bytes() / element_bytes;
    let work = Work::of_elements(count, element_bytes + bytes_read);
    let outputs = outputs_of(std::slice::from_ref(&buffer));
    // SAFETY: the result is new, and has space for the elements.
    unsafe { write(fused, &outputs, work, order) };
    Ok(buffer)
}

/// Computes the elements of `value` by its loop, like [`evaluate_fused`], but over blocks of its
/// operands. Returns `None` if `value` has no loop.
#[track_caller]
pub(in crate::ops) fn evaluate_blocks(
    value: &dyn Fusing,
    operands: &OperandBlocks,
    (element_bytes, bytes_read): (usize, usize),
    device: &Device,
    shape: &Shape,
) -> Result<Option<Buffer>> {
    let mut has_loop = false;
    value.fused(shape, &mut |_| has_loop = true);
    if !has_loop {
        return Ok(None);
    }
    let _timed = Timed::begin(device);
    let order = HostOrder::new(device, &ReadOperands(value as &dyn Tree))?;
    // The allocation is outside the closure, where an error would report the closure as the call
    // site.
    let buffer = allocate_for(device, shape, element_bytes)?;
    let count = buffer.size_bytes() / element_bytes;
    let work = Work::of_elements(count, element_bytes + bytes_read);
    let outputs = outputs_of(std::slice::from_ref(&buffer));
    value.fused(shape, &mut |fused| {
        // SAFETY: the result is new, and has space for the elements.
        unsafe { write(&FusedBlocks { fused, operands }, &outputs, work, order) };
    });
    Ok(Some(buffer))
}

/// Allocates memory for the elements of `shape`. The caller has checked the length of `shape`.
#[inline]
#[track_caller]
pub(super) fn allocate_for(device: &Device, shape: &Shape, element_bytes: usize) -> Result<Buffer> {
    let count: usize = shape.dims().iter().product();
    match count.checked_mul(element_bytes) {
        Some(bytes) => Buffer::new(device, bytes),
        None => Err(shape.overflow(element_bytes)),
    }
}

#[inline]
fn outputs_of(results: &[Buffer]) -> Outputs {
    let bases = results
        .iter()
        .map(|buffer| host_pointer(DevicePtr(buffer.address())));
    Outputs::new(bases)
}

/// Writes all elements of `source` to `outputs`.
///
/// # Safety
///
/// There must be an output for each result of the source, with space for its elements. Nothing else
/// may read or write the outputs, and they must not overlap the operands. The stream of `order`
/// must be ordered after the earlier uses of the memory.
#[inline]
pub(super) unsafe fn write(
    source: &dyn ElementSource,
    outputs: &Outputs,
    work: Work,
    order: HostOrder<'_>,
) {
    launch_source(order, work, (source, outputs), |source, outputs, range| {
        // SAFETY: the memory is alive during a launch. The ranges of a launch are in the index
        // space and do not overlap. The stream is ordered after the work of other streams on the
        // memory. By this function's contract, the outputs do not overlap the operands, and have
        // space for all elements.
        unsafe { source.write(range, outputs) };
    });
}
