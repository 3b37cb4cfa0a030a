//! The run of an expression: the loop body that the compiler makes from the expression's static
//! type.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::Iter;

use super::function::{Apply, Function, Scalar};
use super::loops::Arguments;
use crate::AnyElement;
use crate::element::scalar::pass::{Careful, Fast, Pass};

/// The contiguous elements of operands, and the values computed from them.
pub trait Run: Copy + Send + Sync + 'static {
    /// The type of the values.
    type Item: AnyElement;

    /// `true` if the pass may record an element as rare; see [`Pass`].
    const RARE: bool = false;

    /// `true` if the library has an AVX-512 loop for one of the functions.
    const WIDE: bool = false;

    /// Returns the run with its operands at the next addresses of `firsts`. The addresses are in
    /// the order in which the expression names its arrays.
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self;

    /// Returns the value at index `index`.
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

    /// See [`Run::WIDE`].
    const WIDE: bool;

    /// See [`Run::placed`].
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self;

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

            const WIDE: bool = $($operand::WIDE)||+;

            #[inline(always)]
            fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self {
                ($(self.$index.placed(firsts),)+)
            }

            #[inline(always)]
            unsafe fn at<Way: Pass>(self, pass: &mut Way, index: usize) -> Self::Items {
                // SAFETY: by this function's contract.
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
        // SAFETY: by this function's contract.
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

/// The run of an expression that is not fused. It has no values.
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

// SAFETY: a run is an address, which only `Run::at` reads from. By its contract, the elements exist
// and are not written to.
unsafe impl<T: Sync> Send for InMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for InMemory<T> {}

impl<T: AnyElement> InMemory<T> {
    /// Returns the run of the elements from this address on.
    #[inline(always)]
    pub fn at_address(first: *const T) -> Self {
        Self(first)
    }
}

impl<T: AnyElement> Run for InMemory<T> {
    type Item = T;

    #[inline(always)]
    fn placed(self, firsts: &mut Iter<'_, *const u8>) -> Self {
        Self(firsts.next().expect("one for each array").cast())
    }

    #[inline(always)]
    unsafe fn at<L: Pass>(self, _pass: &mut L, index: usize) -> T {
        // SAFETY: there is an element, by this function's contract.
        unsafe { self.0.add(index).read() }
    }
}

/// The number of elements that are computed again if one of them is rare.
pub const BLOCK: usize = 1024;

/// Writes the elements of `run` to `out`.
///
/// # Safety
///
/// The run must have an element for each of `out`, and the contract of [`Run::at`] must hold for
/// them.
#[inline(always)]
pub(super) unsafe fn fill<R: Run, const FMA: bool>(run: R, out: &mut [MaybeUninit<R::Item>]) {
    let length = if R::RARE { BLOCK } else { out.len().max(1) };
    for (number, block) in out.chunks_mut(length).enumerate() {
        let start = number * length;
        let mut pass = Fast::<FMA>::default();
        // SAFETY: by this function's contract.
        unsafe { fill_block(run, start, &mut pass, block) };
        if R::RARE && pass.met_rare() {
            // SAFETY: as above.
            unsafe { fill_block_carefully::<R, FMA>(run, start, block) };
        }
    }
}

/// Writes the elements of `run`, from index `start` on, to `out`.
///
/// # Safety
///
/// The run must have an element for each of `out`.
#[inline(always)]
pub unsafe fn fill_block<R: Run, L: Pass>(
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

/// Writes the elements like [`fill_block`], with correct values for rare elements. Not inlined.
/// Both passes use FMA if the processor supports it, so that the values are equal except for rare
/// elements.
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
