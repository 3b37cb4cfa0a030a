//! The values of an expression as a loop body. The compiler makes the body from the expression's
//! static type.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::Iter;

use super::function::{Apply, Function, Scalar};
use super::loops::Arguments;
use crate::AnyElement;
use crate::element::scalar::pass::{Careful, Fast, Pass};

/// The contiguous elements of operands, and the values that are computed from them.
pub trait Run: Copy + Send + Sync + 'static {
    /// The type of the values.
    type Item: AnyElement;

    /// `true` if the pass may flag an element as rare; see [`Pass`].
    const RARE: bool = false;

    /// `true` if the library has an AVX-512 loop for one of the expression's functions.
    const WIDE: bool = false;

    /// Returns the run with the next addresses of `firsts` as its operands. The addresses must be
    /// in the order in which the expression names its arrays.
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self;

    /// Returns the value at index `index`.
    ///
    /// # Safety
    ///
    /// Each operand must have an element at `index`. The element must be alive and not written to.
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> Self::Item;
}

/// The runs of a function's operands, as a tuple; see [`Run`].
pub trait Runs: Copy + Send + Sync + 'static {
    /// The types of the values.
    type Items;

    /// `true` if [`Run::RARE`] is `true` for one of the runs.
    const RARE: bool;

    /// `true` if [`Run::WIDE`] is `true` for one of the runs.
    const WIDE: bool;

    /// Returns the runs like [`Run::placed`].
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self;

    /// Returns the values of all runs, like [`Run::at`].
    ///
    /// # Safety
    ///
    /// The contract of [`Run::at`] must hold.
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> Self::Items;
}

macro_rules! runs {
    ($($operand:ident $index:tt),+) => {
        impl<$($operand: Run),+> Runs for ($($operand,)+) {
            type Items = ($($operand::Item,)+);

            const RARE: bool = $($operand::RARE)||+;

            const WIDE: bool = $($operand::WIDE)||+;

            #[inline(always)]
            fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self {
                ($(self.$index.placed(firsts),)+)
            }

            #[inline(always)]
            unsafe fn at<Way: Pass>(self, pass: &mut Way, index: usize) -> Self::Items {
                // SAFETY: the caller upholds this function's contract.
                unsafe { ($(self.$index.at(pass, index),)+) }
            }
        }
    };
}

runs!(A 0);
runs!(A 0, B 1);
runs!(A 0, B 1, C 2);
runs!(A 0, B 1, C 2, D 3);

impl<F: Function<X::Items>, X: Runs<Items: Arguments>> Run for Apply<F, X> {
    type Item = F::Output;

    const RARE: bool = F::RARE || X::RARE;

    const WIDE: bool = F::WIDE || X::WIDE;

    #[inline(always)]
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self {
        Self::new(self.operands.placed(firsts))
    }

    #[inline(always)]
    unsafe fn at<L: Pass>(self, pass: &mut L, index: usize) -> F::Output {
        // SAFETY: the caller upholds this function's contract.
        let arguments = unsafe { self.operands.at(pass, index) };
        F::apply(pass, arguments)
    }
}

impl<T: AnyElement> Run for Scalar<T> {
    type Item = T;

    #[inline(always)]
    fn placed(self, _firsts: &mut Iter<'_, *const u8>) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn at<L: Pass>(self, _pass: &mut L, _index: usize) -> T {
        self.0
    }
}

/// The run of an expression that is not fused. This type has no values.
#[derive(Clone, Copy, Debug)]
pub enum Unfused<T> {
    #[doc(hidden)]
    Never(Infallible, PhantomData<fn() -> T>),
}

impl<T: AnyElement> Run for Unfused<T> {
    type Item = T;

    fn placed(self, _firsts: &mut Iter<'_, *const u8>) -> Self {
        self
    }

    unsafe fn at<L: Pass>(self, _pass: &mut L, _index: usize) -> T {
        match self {
            Self::Never(never, _) => match never {},
        }
    }
}

/// Contiguous elements in memory.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<T>(*const T);

// SAFETY: a run is an address that only `Run::at` reads from. By the contract of `Run::at`, the
// elements exist and are not written to.
unsafe impl<T: Sync> Send for InMemory<T> {}
// SAFETY: a run is an address that only `Run::at` reads from, and the elements are not written to.
unsafe impl<T: Sync> Sync for InMemory<T> {}

impl<T: AnyElement> InMemory<T> {
    /// Returns the run of the elements from address `first` on.
    #[inline(always)]
    pub fn at_address(first: *const T) -> Self {
        Self(first)
    }
}

impl<T: AnyElement> Run for InMemory<T> {
    type Item = T;

    #[inline(always)]
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self {
        Self(firsts.next().expect("each array has an address").cast())
    }

    #[inline(always)]
    unsafe fn at<L: Pass>(self, _pass: &mut L, index: usize) -> T {
        // SAFETY: by this function's contract, there is an element at `index`.
        unsafe { self.0.add(index).read() }
    }
}

/// The number of elements of a block. If an element of a block is rare, the whole block is computed
/// again.
pub const BLOCK: usize = 1024;

/// Writes the elements of `run` to `out`.
///
/// # Safety
///
/// The run must have an element for each slot of `out`. For each of these elements, the contract of
/// [`Run::at`] must hold.
#[inline(always)]
pub(super) unsafe fn fill<R: Run, const FMA: bool>(run: R, out: &mut [MaybeUninit<R::Item>]) {
    let length = if R::RARE { BLOCK } else { out.len().max(1) };
    for (number, block) in out.chunks_mut(length).enumerate() {
        let start = number * length;
        let mut pass = Fast::<FMA>::default();
        // SAFETY: the caller upholds this function's contract.
        unsafe { fill_block(run, start, &mut pass, block) };
        if R::RARE && pass.met_rare() {
            // SAFETY: the caller upholds this function's contract.
            unsafe { fill_block_carefully::<R, FMA>(run, start, block) };
        }
    }
}

/// Writes the elements of `run` from index `start` on to `out`.
///
/// # Safety
///
/// The run must have an element for each slot of `out`. For each of these elements, the contract of
/// [`Run::at`] must hold.
#[inline(always)]
pub unsafe fn fill_block<R: Run, L: Pass>(
    run: R,
    start: usize,
    pass: &mut L,
    out: &mut [MaybeUninit<R::Item>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        // SAFETY: the caller upholds this function's contract.
        slot.write(unsafe { run.at(pass, start + index) });
    }
}

/// Writes the elements like [`fill_block`], but in the careful pass. The function is not inlined,
/// because it is seldom called. If the processor supports FMA, both passes use it. Therefore only
/// the values of rare elements change.
///
/// # Safety
///
/// The contract of [`fill_block`] must hold.
#[cold]
#[inline(never)]
unsafe fn fill_block_carefully<R: Run, const FMA: bool>(
    run: R,
    start: usize,
    out: &mut [MaybeUninit<R::Item>],
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { fill_block(run, start, &mut Careful::<FMA>, out) };
}
