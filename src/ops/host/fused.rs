//! The fused evaluator: one loop for an expression, over operands that are dense and of one shape.
//!
//! It is the only code of the library that is compiled for each expression. The loop is contiguous
//! and has no branch for each element, so that the compiler vectorises it.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::blocked::BlockProgram;
use super::element_source::{ElementSource, Outputs};
use super::index_space::IndexSpace;
use super::vector::{Loop, has_vectors, vectorised, vectorised_for_certain};
use crate::array::scalar::pass::{Careful, Fast, Pass};
use crate::array::{AnyElement, Array, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::node::{Apply, Function, Scalar};
use crate::ops::expression::tree::Tree;

/// The contiguous elements of operands, and the values computed from them.
pub trait Run: Copy + Send + Sync + 'static {
    /// The type of the values.
    type Item: AnyElement;

    /// `true` if the pass may record an element as rare; see [`Pass`].
    const RARE: bool = false;

    /// Returns the value at `index`.
    ///
    /// # Safety
    ///
    /// Each operand must have an element at `index`, which is alive and not written to.
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> Self::Item;
}

/// The runs of a function's operands, as a tuple; see [`Run`].
pub trait Runs: Copy + Send + Sync + 'static {
    /// The types of the values.
    type Items;

    /// See [`Run::RARE`].
    const RARE: bool;

    /// See [`Run::at`].
    ///
    /// # Safety
    ///
    /// As for [`Run::at`].
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> Self::Items;
}

macro_rules! runs {
    ($($operand:ident $index:tt),+) => {
        impl<$($operand: Run),+> Runs for ($($operand,)+) {
            type Items = ($($operand::Item,)+);

            const RARE: bool = $($operand::RARE)||+;

            #[inline(always)]
            unsafe fn at<Way: Pass>(self, pass: &mut Way, index: usize) -> Self::Items {
                // SAFETY: the caller keeps this contract.
                unsafe { ($(self.$index.at(pass, index),)+) }
            }
        }
    };
}

runs!(A 0);
runs!(A 0, B 1);
runs!(A 0, B 1, C 2);
runs!(A 0, B 1, C 2, D 3);

impl<F: Function<X::Items>, X: Runs<Items: super::Arguments>> Run for Apply<F, X> {
    type Item = F::Output;

    const RARE: bool = F::RARE || X::RARE;

    #[inline(always)]
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> F::Output {
        // SAFETY: the caller keeps this contract.
        let arguments = unsafe { self.operands.at(pass, index) };
        F::apply(pass, arguments)
    }
}

impl<T: AnyElement> Run for Scalar<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at<L: Pass>(self, _pass: &mut L, _index: usize) -> T {
        self.0
    }
}

/// The run of an expression that does not fuse. It has no values.
#[derive(Clone, Copy, Debug)]
pub enum Unfused<T> {
    #[doc(hidden)]
    Never(Infallible, PhantomData<fn() -> T>),
}

impl<T: AnyElement> Run for Unfused<T> {
    type Item = T;

    unsafe fn at<L: Pass>(self, _pass: &mut L, _index: usize) -> T {
        match self {
            Self::Never(never, _) => match never {},
        }
    }
}

/// Contiguous elements in memory.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<T>(*const T);

// SAFETY: a run is an address, which only `Run::at` reads from. By its contract, the elements exist
// and are not written to.
unsafe impl<T: Sync> Send for InMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for InMemory<T> {}

impl<T: AnyElement> InMemory<T> {
    /// Returns the run of the elements of `array`, which must be dense.
    #[inline(always)]
    pub(crate) fn new(array: &Array<T>) -> Self {
        let base: *const T = host_pointer(DevicePtr(array.buffer().address())).cast();
        Self(base.wrapping_add(array.layout().offset()))
    }

    /// Returns the run of the elements from `first` on.
    #[inline(always)]
    pub(super) fn at_address(first: *const T) -> Self {
        Self(first)
    }
}

impl<T: AnyElement> Run for InMemory<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at<L: Pass>(self, _pass: &mut L, index: usize) -> T {
        // SAFETY: there is an element, by this function's contract.
        unsafe { self.0.add(index).read() }
    }
}

/// The number of elements that are computed in a buffer before they overwrite others.
const STAGE: usize = 1024;

/// A run as the source of a launch. Its loop is compiled for processors with AVX2, FMA and F16C
/// only, and skips rare elements. The library's loops compute the rest. This halves or quarters the
/// time to compile it.
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
    /// Returns the run of `tree` over `shape`, the shape of its operands, if the processor has the
    /// instructions of its loop.
    #[inline]
    pub(crate) fn new(run: R, tree: &'a dyn Tree, shape: &'a Shape) -> Option<Self> {
        let rest = Rest::Tree(tree, shape);
        has_vectors().then_some(Self { run, rest })
    }

    /// Writes the elements from number `start` on to all of `out`. If one of them is rare, all of
    /// them are computed again.
    ///
    /// # Safety
    ///
    /// The run must have these elements, and `out` must be no part of its operands.
    unsafe fn fill(&self, start: usize, out: &mut [MaybeUninit<R::Item>]) {
        // SAFETY: by this function's contract.
        if unsafe { self.fill_fast(start, out) } {
            let count = out.len();
            let base = out.as_mut_ptr().wrapping_sub(start).cast();
            // SAFETY: as above; counted from the run's first element, `out` has room for these.
            unsafe { self.rest.write(start..start + count, base) };
        }
    }

    /// Like [`fill`](Self::fill), but writes wrong values for rare elements, and returns whether
    /// there are some. It has the only copy of the loop.
    ///
    /// # Safety
    ///
    /// As for [`fill`](Self::fill).
    #[inline(never)]
    unsafe fn fill_fast(&self, start: usize, out: &mut [MaybeUninit<R::Item>]) -> bool {
        let run = self.run;
        // SAFETY: the processor has the features, as `new` has checked; the rest is this function's
        // contract.
        unsafe { vectorised_for_certain(FillFast { run, start }, out) }
    }
}

impl Rest<'_> {
    /// Writes the elements of `range`, counted from `base` on.
    ///
    /// # Safety
    ///
    /// As for [`ElementSource::write`].
    #[cold]
    unsafe fn write(&self, range: Range<usize>, base: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { self.program().write(range, &Outputs::new([base])) };
    }

    fn program(&self) -> BlockProgram {
        match self {
            Self::Program(program) => BlockProgram::clone(program),
            // Not over the expression graph's own shape: if all operands are single values, it has
            // only one element.
            Self::Tree(tree, shape) => match ExpressionGraph::of(*tree) {
                Ok(graph) => BlockProgram::new(&graph, &IndexSpace::row_major(shape)),
                Err(error) => unreachable!("operands of one shape: {error}"),
            },
        }
    }
}

impl<R: Run> ElementSource for Fused<'_, R> {
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs) {
        let base: *mut MaybeUninit<R::Item> = outputs.all()[0].cast();
        // SAFETY: by this function's contract there is room for the elements of the range, which
        // nobody else reads or writes, and the operands are readable.
        let out = unsafe { std::slice::from_raw_parts_mut(base.add(range.start), range.len()) };
        let length = if R::RARE { BLOCK } else { range.len().max(1) };
        for (number, block) in out.chunks_mut(length).enumerate() {
            // SAFETY: as above.
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
            // SAFETY: by this function's contract the run has the elements, and only `see` writes
            // to them, later. The stage is on this thread's stack.
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

/// The loop of [`Fused::fill_fast`], which alone makes one.
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

/// Writes the elements of `run` from `start` on to `out`.
///
/// # Safety
///
/// The run must have an element for each of `out`, and the contract of [`Run::at`] must hold for
/// them.
#[inline(always)]
pub(super) unsafe fn fill<R: Run>(run: R, start: usize, out: &mut [MaybeUninit<R::Item>]) {
    vectorised(Fill { run, start }, out);
}

/// The loop of [`fill`](fn@fill), which alone makes one.
struct Fill<R> {
    run: R,
    start: usize,
}

/// The number of elements that are computed again if one of them is rare.
const BLOCK: usize = 1024;

impl<R: Run> Loop<[MaybeUninit<R::Item>]> for Fill<R> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<R::Item>]) {
        let length = if R::RARE { BLOCK } else { out.len().max(1) };
        for (number, block) in out.chunks_mut(length).enumerate() {
            let start = self.start + number * length;
            let mut pass = Fast::<FMA>::default();
            // SAFETY: the run has as many elements as `out` from its start on, by the contract of
            // `fill`; these are part of them.
            unsafe { fill_block(self.run, start, &mut pass, block) };
            if R::RARE && pass.met_rare() {
                // SAFETY: as above.
                unsafe { fill_block_carefully::<R, FMA>(self.run, start, block) };
            }
        }
    }
}

/// Writes the elements of `run` from `start` on to `out`.
///
/// # Safety
///
/// The run must have an element for each of `out`.
#[inline(always)]
unsafe fn fill_block<R: Run, L: Pass>(
    run: R,
    start: usize,
    pass: &mut L,
    out: &mut [MaybeUninit<R::Item>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        slot.write(unsafe { run.at(pass, start + index) });
    }
}

/// Like [`fill_block`], with correct values for rare elements, and out of line. Each pass uses FMA
/// if the processor has it, so that every element except the rare ones is equal to the one of the
/// fast pass.
///
/// # Safety
///
/// As for [`fill_block`].
#[cold]
#[inline(never)]
unsafe fn fill_block_carefully<R: Run, const FMA: bool>(
    run: R,
    start: usize,
    out: &mut [MaybeUninit<R::Item>],
) {
    // SAFETY: by this function's contract.
    unsafe { fill_block(run, start, &mut Careful::<FMA>, out) };
}
