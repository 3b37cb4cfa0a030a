//! The fused evaluator: one loop for an expression, over operands that are dense and of one shape.
//!
//! The loop is the only code of the library that is compiled for each expression. It runs over
//! contiguous elements, and has no branch for each element, so the compiler vectorises it.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::blocked::BlockProgram;
use super::element_source::{ElementSource, Outputs};
use crate::array::Shape;
use crate::ops::descriptors::IndexSpace;
use crate::ops::expression::expr::Expr;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Node, Operand, Tree};
use cachescope_kernels::element::scalar::pass::Fast;
use cachescope_kernels::elementwise::run::{BLOCK, Run, fill_block};
use cachescope_kernels::vector::{Loop, has_vectors, has_wide_vectors, vectorised_for_certain};

/// An expression that may have a fused loop. Code that only reads expressions takes a [`Tree`], so
/// that it instantiates no loop.
pub(crate) trait Fusing: Tree {
    /// Calls `see` with the loop that the expression was compiled to, over results of this `shape`.
    /// If the expression has no loop, does nothing. The operands are dense and of this shape, or
    /// [`fill_at`](FusedLoop::fill_at) receives their addresses.
    fn fused(&self, shape: &Shape, see: &mut dyn FnMut(&dyn FusedLoop));
}

impl<E: Expr> Fusing for E {
    fn fused(&self, shape: &Shape, see: &mut dyn FnMut(&dyn FusedLoop)) {
        if Self::FUSES
            && let Some(fused) = Fused::new(self.dense(), self, shape)
        {
            see(&fused);
        }
    }
}

/// An expression without a loop of its own: the library's loops evaluate it.
pub(crate) struct Unfused<'a>(pub(crate) &'a dyn Tree);

impl Tree for Unfused<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        self.0.walk(see);
    }

    fn as_operand(&self) -> Option<Operand<'_>> {
        self.0.as_operand()
    }
}

impl Fusing for Unfused<'_> {
    fn fused(&self, _shape: &Shape, _see: &mut dyn FnMut(&dyn FusedLoop)) {}
}

/// Type-erased loop of an expression.
pub(crate) trait FusedLoop: ElementSource {
    fn element_bytes(&self) -> usize;

    /// Computes the elements of `numbers`, at most [`STAGE`], and writes them to `to`. `firsts` has
    /// the address of each operand's element for the first of `numbers`.
    ///
    /// # Safety
    ///
    /// From `firsts` on, each operand must have contiguous, readable elements for all of `numbers`.
    /// `firsts` must be in the order of the expression. `to` must have space for the results, and
    /// must not overlap the operands.
    unsafe fn fill_at(&self, firsts: &[*const u8], numbers: Range<usize>, to: *mut u8);

    /// Returns the program that computes the expression without its loop.
    fn program(&self) -> BlockProgram;
}

/// The number of elements that are computed in a buffer before they overwrite other elements.
const STAGE: usize = 1024;

/// A [`Run`] as the source of a launch. Its loop is compiled only for processors with AVX2, FMA and
/// F16C, and skips rare elements. The library's loops compute the blocks with rare elements. These
/// two limits halve or quarter the compile time of the loop.
#[derive(Clone, Debug)]
pub(crate) struct Fused<'a, R> {
    run: R,
    rest: Rest<'a>,
}

/// The library's evaluator of a block that has rare elements.
#[derive(Clone, Debug)]
enum Rest<'a> {
    /// The expression, and the shape over which it is computed.
    Tree(&'a dyn Tree, &'a Shape),
    Program(Box<BlockProgram>),
}

impl<'a, R: Run> Fused<'a, R> {
    /// Returns the run of `tree` over `shape`, the shape of its operands. Returns `None` if the
    /// processor lacks the instructions of the run's loop, or has better instructions for the
    /// library's loops.
    #[inline]
    pub(crate) fn new(run: R, tree: &'a dyn Tree, shape: &'a Shape) -> Option<Self> {
        let rest = Rest::Tree(tree, shape);
        // For more than `STAGE` elements, the library's AVX-512 loops are faster.
        let is_for_blocks =
            R::WIDE && has_wide_vectors() && shape.checked_len().is_ok_and(|count| count > STAGE);
        (has_vectors() && !is_for_blocks).then_some(Self { run, rest })
    }

    /// Writes the elements from the element `start` on to all of `out`. If an element is rare, the
    /// library's loops compute all elements again.
    ///
    /// # Safety
    ///
    /// The run must have these elements, and `out` must not overlap its operands.
    unsafe fn fill(&self, start: usize, out: &mut [MaybeUninit<R::Item>]) {
        // SAFETY: by this function's contract.
        if unsafe { Self::fill_fast(self.run, start, out) } {
            // SAFETY: by this function's contract.
            unsafe { self.compute_again(start, out) };
        }
    }

    /// Writes the elements from the element `start` on to all of `out` by the library's loops.
    ///
    /// # Safety
    ///
    /// The contract of [`fill`](Self::fill) applies.
    #[cold]
    unsafe fn compute_again(&self, start: usize, out: &mut [MaybeUninit<R::Item>]) {
        let base = out.as_mut_ptr().wrapping_sub(start).cast();
        // SAFETY: `base` is the address of element 0. From the element `start` on, `out` has space
        // for the range.
        unsafe { self.rest.write(start..start + out.len(), base) };
    }

    /// Like [`fill`](Self::fill), but writes wrong values for rare elements. Returns whether any
    /// element is rare. This function has the only copy of the loop.
    ///
    /// # Safety
    ///
    /// The contract of [`fill`](Self::fill) applies.
    #[inline(never)]
    unsafe fn fill_fast(run: R, start: usize, out: &mut [MaybeUninit<R::Item>]) -> bool {
        // SAFETY: `new` has checked that the processor has the features. This function's contract
        // covers the elements.
        unsafe { vectorised_for_certain(FillFast { run, start }, out) }
    }
}

impl Rest<'_> {
    /// Writes the elements of `range`. `base` is the address of element 0.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::write`] applies.
    #[cold]
    unsafe fn write(&self, range: Range<usize>, base: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { self.program().write(range, &Outputs::new([base])) };
    }

    fn program(&self) -> BlockProgram {
        match self {
            Self::Program(program) => BlockProgram::clone(program),
            // The program is over `shape`, because the graph's own shape may be smaller. If all
            // operands are single values, the graph's shape has only one element.
            Self::Tree(tree, shape) => match ExpressionGraph::of(*tree) {
                Ok(graph) => BlockProgram::new(&graph, &IndexSpace::row_major(shape)),
                Err(error) => unreachable!("the operands do not broadcast to {shape}: {error}"),
            },
        }
    }
}

impl<R: Run> ElementSource for Fused<'_, R> {
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs) {
        let base: *mut MaybeUninit<R::Item> = outputs.all()[0].cast();
        // SAFETY: by this function's contract, the outputs have memory for the elements of the
        // range. Nothing else accesses this memory. The operands are readable.
        let out = unsafe { std::slice::from_raw_parts_mut(base.add(range.start), range.len()) };
        let length = if R::RARE { BLOCK } else { range.len().max(1) };
        for (number, block) in out.chunks_mut(length).enumerate() {
            // SAFETY: by this function's contract. The block is in `out`.
            unsafe { self.fill(range.start + number * length, block) };
        }
    }

    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    ) {
        let mut stage = [const { MaybeUninit::uninit() }; STAGE];
        for start in range.clone().step_by(STAGE) {
            let count = STAGE.min(range.end - start);
            // SAFETY: by this function's contract, the run has the elements. Only `see` writes to
            // them, after they were read. The stage is on this thread's stack.
            unsafe { self.fill(start, &mut stage[..count]) };
            see(start..start + count, &[stage.as_ptr().cast()]);
        }
    }

    fn boxed(&self) -> Box<dyn ElementSource> {
        let rest = Rest::Program(Box::new(self.rest.program()));
        Box::new(Fused {
            run: self.run,
            rest,
        })
    }
}

impl<R: Run> FusedLoop for Fused<'_, R> {
    fn element_bytes(&self) -> usize {
        size_of::<R::Item>()
    }

    unsafe fn fill_at(&self, firsts: &[*const u8], numbers: Range<usize>, to: *mut u8) {
        let run = self.run.placed(&mut firsts.iter());
        // SAFETY: by this function's contract.
        unsafe {
            let out = std::slice::from_raw_parts_mut(to.cast(), numbers.len());
            if Self::fill_fast(run, 0, out) {
                self.compute_again(numbers.start, out);
            }
        }
    }

    fn program(&self) -> BlockProgram {
        self.rest.program()
    }
}

/// The loop of [`Fused::fill_fast`]. Only `fill_fast` constructs a `FillFast`.
struct FillFast<R> {
    run: R,
    start: usize,
}

impl<R: Run> Loop<[MaybeUninit<R::Item>]> for FillFast<R> {
    type Result = bool;

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<R::Item>]) -> bool {
        let mut pass = Fast::<FMA>::default();
        // SAFETY: by the contract of `fill_fast`.
        unsafe { fill_block(self.run, self.start, &mut pass, out) };
        pass.met_rare()
    }
}
