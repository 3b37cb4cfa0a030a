//! The fused evaluator over operands that are not consecutive in memory, such as broadcast rows and
//! columns. The elements of these operands are gathered block by block. The expression's loop runs
//! over each block.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::blocked::{BLOCK, OperandBlocks};
use super::element_source::{ElementSource, Outputs};
use super::fused::FusedLoop;

/// A fused loop over blocks, as the source of a launch.
pub(super) struct FusedBlocks<'a> {
    pub(super) fused: &'a dyn FusedLoop,
    /// The operands of the loop's expression.
    pub(super) operands: &'a OperandBlocks,
}

impl ElementSource for FusedBlocks<'_> {
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs) {
        let base = outputs.all()[0];
        let mut fill = |numbers: Range<usize>, firsts: &[*const u8]| {
            let to = base.wrapping_add(numbers.start * self.fused.element_bytes());
            // SAFETY: by this function's contract, there is space for the elements. Each operand
            // has elements for all of `numbers`, from its address on.
            unsafe { self.fused.fill_at(firsts, numbers, to) };
        };
        // SAFETY: by this function's contract.
        unsafe { self.operands.each(range, &mut fill) };
    }

    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    ) {
        // Elements have at most 16 bytes.
        let mut stage = [const { MaybeUninit::<u128>::uninit() }; BLOCK];
        let mut fill = |numbers: Range<usize>, firsts: &[*const u8]| {
            // SAFETY: each operand has elements for all of `numbers`, from its address on. The
            // stage has space for a block, and is on this thread's stack.
            unsafe { (self.fused).fill_at(firsts, numbers.clone(), stage.as_mut_ptr().cast()) };
            see(numbers, &[stage.as_ptr().cast()]);
        };
        // SAFETY: by this function's contract.
        unsafe { self.operands.each(range, &mut fill) };
    }

    fn boxed(&self) -> Box<dyn ElementSource> {
        Box::new(self.fused.program())
    }
}
