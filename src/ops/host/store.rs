//! Evaluation of expressions into the memory of existing arrays.

use std::ops::Range;
use std::panic::Location;

use super::blocked::{BlockProgram, OperandBlocks};
use super::element_source::{ElementSource, Outputs};
use super::evaluate::write as write_new;
use super::fused::Fusing;
use super::fused_blocks::FusedBlocks;
use super::launch::{Work, launch_source};
use super::memory::Elements;
use crate::context::Timed;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::IndexSpace;
use crate::ops::expression::graph::{ExpressionGraph, MOST_RESULTS};
use crate::ops::expression::tree::{Tree, operands};
use crate::ops::order::aliasing::{Aliasing, Overwritable, Target};
use crate::ops::order::{HostOrder, ReadOperands, UpdateTargets};

/// Overwrites the elements of each target with a result of `graph`. The targets have one shape,
/// to which the results broadcast.
#[track_caller]
pub(in crate::ops) fn store(
    order: HostOrder<'_>,
    graph: &ExpressionGraph<'_>,
    targets: Overwritable<'_>,
) -> Result<()> {
    let targets = targets.targets();
    let layout = targets[0].layout();
    let mut program = BlockProgram::new(graph, &IndexSpace::row_major(layout.shape()));
    for target in targets {
        program.exclude_written(host_pointer(DevicePtr(target.buffer().address())));
    }
    let written: usize = targets
        .iter()
        .map(|target| target.dtype().size_bytes())
        .sum();
    let work = Work::of_elements(layout.len(), written + graph.bytes_read());
    // SAFETY: by the type `Overwritable`, each target can be overwritten. The stream is ordered
    // after the earlier uses of the memory.
    unsafe { write(&program, work, targets, order) };
    Ok(())
}

/// An expression that its compiled loop can write over a target.
///
/// Invariant: the target can be overwritten, according to [`Aliasing`]. The arrays are borrowed
/// exclusively, so the invariant stays true.
pub(in crate::ops) struct FusedStore<'a> {
    tree: &'a dyn Fusing,
    target: Target<'a>,
    aliasing: Aliasing,
}

impl<'a> FusedStore<'a> {
    /// Returns the store of `tree` to `target`, if the target can be overwritten. The loop does not
    /// read the expressions `held`. These expressions only hold memory.
    pub(in crate::ops) fn new(
        tree: &'a dyn Fusing,
        held: &[&dyn Tree],
        target: Target<'a>,
    ) -> Option<Self> {
        let aliasing = Aliasing::of(&target, &[tree], held);
        aliasing.allows_overwriting().then_some(Self {
            tree,
            target,
            aliasing,
        })
    }

    /// Returns whether the target and all operands are dense, of one shape, and on one device.
    pub(in crate::ops) fn is_dense(&self) -> bool {
        self.aliasing.is_dense
    }

    /// Overwrites the elements, unless the expression has no loop, or its operands have no blocks.
    /// Returns whether the elements were overwritten.
    #[track_caller]
    pub(in crate::ops) fn run(&self) -> Result<bool> {
        match self.is_dense() {
            true => self.run_over(None),
            false => self.run_over_blocks(),
        }
    }

    /// Like [`run`](Self::run), over gathered operands. This function is not inlined, because only
    /// gathered operands need its stack frame.
    #[inline(never)]
    #[track_caller]
    fn run_over_blocks(&self) -> Result<bool> {
        match blocks_of(self.tree, &self.target) {
            Some(blocks) => self.run_over(Some(&blocks)),
            None => Ok(false),
        }
    }

    /// Like [`run`](Self::run), over the operands themselves or over their blocks.
    #[track_caller]
    fn run_over(&self, blocks: Option<&OperandBlocks>) -> Result<bool> {
        let (target, device) = (self.target, self.target.device());
        let mut outcome = Ok(false);
        let call_site = Location::caller();
        self.tree.fused(target.layout().shape(), &mut |fused| {
            let by_blocks = blocks.map(|operands| FusedBlocks { fused, operands });
            let source: &dyn ElementSource = match &by_blocks {
                Some(by_blocks) => by_blocks,
                None => fused,
            };
            let _timed = Timed::begin_at(device, call_site);
            let updating = UpdateTargets {
                targets: &[target.buffer()],
                reading: ReadOperands(self.tree as &dyn Tree),
            };
            outcome = HostOrder::new(device, &updating).map(|order| {
                let element_bytes = target.dtype().size_bytes();
                let bytes_each = element_bytes + self.aliasing.bytes_read;
                let work = Work::of_elements(target.layout().len(), bytes_each);
                if self.aliasing.is_read {
                    // SAFETY: by the invariant, the target can be overwritten. The stream is
                    // ordered after the earlier uses of the memory. The loop has as many elements
                    // as the target.
                    unsafe { write(source, work, &[target], order) };
                } else {
                    let first = target.layout().offset() * element_bytes;
                    let base =
                        host_pointer(DevicePtr(target.buffer().address())).wrapping_add(first);
                    // SAFETY: by the invariant, the target can be overwritten. It is dense, and no
                    // operand is in its memory. The stream is ordered after the earlier uses of the
                    // memory.
                    unsafe { write_new(source, &Outputs::new([base]), work, order) };
                }
                true
            });
        });
        outcome
    }
}

fn blocks_of(tree: &dyn Tree, target: &Target<'_>) -> Option<OperandBlocks> {
    let mut are_there = target.layout().is_contiguous();
    operands(tree, &mut |operand| {
        are_there &= operand.buffer.device() == target.device();
    });
    if !are_there {
        return None;
    }
    // If an operand is in the target's memory, it has the target's layout, so it is not gathered.
    OperandBlocks::of(tree, target.layout().shape())
}

/// Overwrites the elements of the targets with the elements of `source`.
///
/// # Safety
///
/// While the source is read, each target must be and stay overwritable, according to [`Aliasing`].
/// The stream of `order` must be ordered after the earlier uses of the memory.
unsafe fn write(
    source: &dyn ElementSource,
    work: Work,
    targets: &[Target<'_>],
    order: HostOrder<'_>,
) {
    let mut writes = [None; MOST_RESULTS];
    for (write, target) in writes.iter_mut().zip(targets) {
        *write = Some(Elements::new(target));
    }
    let body = |source: &dyn ElementSource, writes: &[Option<Elements>; MOST_RESULTS], range| {
        let mut see = |range: Range<usize>, values: &[*const u8]| {
            for (target, &values) in writes.iter().flatten().zip(values) {
                // SAFETY: the memory is alive during a launch. The ranges of a launch do not
                // overlap. All operands of this block have been read. Other blocks read only their
                // own elements, according to `Aliasing`. `values` are on this thread's stack or in
                // its scratch memory.
                unsafe { target.write(range.start, values, range.len()) };
            }
        };
        // SAFETY: the range is in the index space. The stream is ordered after the work of other
        // streams on the operands. `see` writes elements only after they were read.
        unsafe { source.each_block(range, &mut see) };
    };
    launch_source(order, work, (source, &writes), body);
}
