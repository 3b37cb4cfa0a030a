//! The inner nodes of kernels: each passes a run of its operands through its function.

use crate::array::Element;
use crate::array::scalar::lane::Lane;
use crate::ops::node::{Apply, Function, Operands, Scalar};

use super::kernel::{Kernel, Run};
use super::tile::{Part, Rows};

/// The kernels of a function's operands, as a tuple; see [`Kernel`].
pub trait Kernels: Copy + Send + Sync + 'static {
    /// The types of the values.
    type Items;

    /// Where operands are gathered.
    type Scratch;

    /// One run of each.
    type Runs: Runs<Items = Self::Items>;

    /// See [`Kernel::is_flat`].
    fn is_flat(&self) -> bool;

    /// See [`Kernel::prepare`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn prepare(&self, scratch: *mut Self::Scratch);

    /// See [`Kernel::crosswise`].
    fn crosswise(&self) -> Option<Rows>;

    /// See [`Kernel::open`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn open(&self, start: usize, part: Part, scratch: *mut Self::Scratch);

    /// See [`Kernel::run`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut Self::Scratch) -> Self::Runs;
}

/// The elements of one run of each operand; see [`Run`].
pub trait Runs: Copy + Send + Sync + 'static {
    /// The types of the values.
    type Items;

    /// See [`Run::RARE`].
    const RARE: bool;

    /// See [`Run::at`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn at<L: Lane>(self, lane: &mut L, index: usize) -> Self::Items;
}

macro_rules! kernels {
    ($($operand:ident $index:tt),+) => {
        impl<$($operand: Kernel),+> Kernels for ($($operand,)+) {
            type Items = ($($operand::Item,)+);
            type Scratch = ($($operand::Scratch,)+);
            type Runs = ($($operand::Run,)+);

            #[inline(always)]
            fn is_flat(&self) -> bool {
                $(self.$index.is_flat())&&+
            }

            #[inline(always)]
            unsafe fn prepare(&self, scratch: *mut Self::Scratch) {
                $(
                    // SAFETY: the caller keeps this contract; each operand has a part of its own.
                    unsafe { self.$index.prepare(&raw mut (*scratch).$index) };
                )+
            }

            #[inline(always)]
            fn crosswise(&self) -> Option<Rows> {
                None$(.or_else(|| self.$index.crosswise()))+
            }

            #[inline(always)]
            unsafe fn open(&self, start: usize, part: Part, scratch: *mut Self::Scratch) {
                $(
                    // SAFETY: as above.
                    unsafe { self.$index.open(start, part, &raw mut (*scratch).$index) };
                )+
            }

            #[inline(always)]
            unsafe fn run(
                &self,
                start: usize,
                count: usize,
                scratch: *mut Self::Scratch,
            ) -> Self::Runs {
                // SAFETY: as above.
                unsafe { ($(self.$index.run(start, count, &raw mut (*scratch).$index),)+) }
            }
        }

        impl<$($operand: Run),+> Runs for ($($operand,)+) {
            type Items = ($($operand::Item,)+);

            const RARE: bool = $($operand::RARE)||+;

            #[inline(always)]
            unsafe fn at<Way: Lane>(self, lane: &mut Way, index: usize) -> Self::Items {
                // SAFETY: the caller keeps this contract.
                unsafe { ($(self.$index.at(lane, index),)+) }
            }
        }
    };
}

kernels!(A 0);
kernels!(A 0, B 1);
kernels!(A 0, B 1, C 2);
kernels!(A 0, B 1, C 2, D 3);

/// The runs of the operands `X`.
pub(crate) type RunsOf<X> = <<X as Operands>::Kernels as Kernels>::Runs;

impl<F: Function<X::Items>, X: Kernels> Kernel for Apply<F, X> {
    type Item = F::Output;
    type Scratch = X::Scratch;
    type Run = Apply<F, X::Runs>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.operands.is_flat()
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut X::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe { self.operands.prepare(scratch) };
    }

    #[inline(always)]
    fn crosswise(&self) -> Option<Rows> {
        self.operands.crosswise()
    }

    #[inline(always)]
    unsafe fn open(&self, start: usize, part: Part, scratch: *mut X::Scratch) {
        // SAFETY: the caller keeps this contract.
        unsafe { self.operands.open(start, part, scratch) };
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut X::Scratch) -> Self::Run {
        // SAFETY: the caller keeps this contract.
        Apply::new(unsafe { self.operands.run(start, count, scratch) })
    }
}

impl<F: Function<X::Items>, X: Runs> Run for Apply<F, X> {
    type Item = F::Output;

    const RARE: bool = F::RARE || X::RARE;

    #[inline(always)]
    unsafe fn at<L: Lane>(self, lane: &mut L, index: usize) -> F::Output {
        // SAFETY: the caller keeps this contract.
        let arguments = unsafe { self.operands.at(lane, index) };
        F::apply(lane, arguments)
    }
}

impl<T: Element> Kernel for Scalar<T> {
    type Item = T;
    type Scratch = ();
    type Run = Self;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn prepare(&self, _scratch: *mut ()) {}

    #[inline(always)]
    fn crosswise(&self) -> Option<Rows> {
        None
    }

    #[inline(always)]
    unsafe fn open(&self, _start: usize, _part: Part, _scratch: *mut ()) {}

    #[inline(always)]
    unsafe fn run(&self, _start: usize, _count: usize, _scratch: *mut ()) -> Self {
        *self
    }
}

impl<T: Element> Run for Scalar<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at<L: Lane>(self, _lane: &mut L, _index: usize) -> T {
        self.0
    }
}
