//! The table of loops over elements: all that is compiled for each reducer and type of elements.

use std::mem::MaybeUninit;

use super::leaves::{self, Columns, Rows};
use crate::array::{AnyElement, Bits, DType, bits_of};
use crate::ops::reducers::{
    All, Any, Argmax, Argmin, CrossEntropy, Logsumexp, Max, Mean, Min, Norm, Prod, Reducer, Std,
    Sum, Var,
};
use crate::ops::vector::has_vectors;

/// Scratch memory for totals and for partial results of any type.
pub(super) type Scratch = [MaybeUninit<u128>];

/// The largest size of a total and of a partial result, in elements of [`Scratch`].
pub(super) const MOST_UNITS: usize = 2;

/// The loops of a reducer for elements of one type, and the sizes of what they read and write.
pub(in crate::ops) struct ReductionLoops {
    pub(super) element_bytes: usize,
    pub(super) partial_bytes: usize,
    pub(super) total_bytes: usize,
    pub(super) output_bytes: usize,
    /// The type of the elements.
    pub(in crate::ops) element: DType,
    /// The type of the results.
    pub(in crate::ops) output: DType,
    /// Returns the result for no elements, if there is one.
    pub(in crate::ops) nothing: fn() -> Option<Bits>,
    /// Merges totals into as many others, whose elements precede theirs.
    pub(super) merge: unsafe fn(&mut Scratch, &Scratch, usize),
    /// The loops for the baseline of the architecture, and for vectors.
    by_instructions: [LeafLoops; 2],
}

/// The loops of a [`ReductionLoops`] that are compiled for each set of instructions.
#[derive(Clone, Copy)]
pub(super) struct LeafLoops {
    /// See [`leaves::rows`].
    pub(super) rows: unsafe fn(&Rows, &mut Scratch),
    /// See [`leaves::columns`].
    pub(super) columns: unsafe fn(&Columns, &mut Scratch, &mut Scratch),
    /// See [`leaves::finish`].
    pub(super) finish: unsafe fn(&Scratch, usize, *mut u8, usize),
}

impl ReductionLoops {
    const fn of<F: Reducer<T>, T: AnyElement>() -> Self {
        const {
            assert!(size_of::<F::Partial>() <= MOST_UNITS * size_of::<u128>());
            assert!(size_of::<F::Total>() <= MOST_UNITS * size_of::<u128>());
            assert!(align_of::<F::Partial>() <= align_of::<u128>());
            assert!(align_of::<F::Total>() <= align_of::<u128>());
        }
        Self {
            element_bytes: size_of::<T>(),
            partial_bytes: size_of::<F::Partial>(),
            total_bytes: size_of::<F::Total>(),
            output_bytes: size_of::<F::Output>(),
            element: T::DTYPE,
            output: <F::Output as AnyElement>::DTYPE,
            nothing: || F::nothing().map(bits_of),
            merge: leaves::merge::<F::Inner, T>,
            by_instructions: [leaves::baseline::<F, T>(), leaves::with_vectors::<F, T>()],
        }
    }

    /// Returns the loops for the best instructions that the processor has.
    #[inline(always)]
    pub(super) fn leaves(&self) -> &LeafLoops {
        &self.by_instructions[usize::from(has_vectors())]
    }
}

/// The loops of a reducer for the types that most programs reduce, by the number of `DType`. The
/// others are compiled where they are used.
pub(in crate::ops) type ReductionTable = [ReductionLoops; 2];

/// A reducer with loops that are compiled with the library.
pub(in crate::ops) trait Compiled {
    /// The loops.
    const LOOPS: &'static ReductionTable;
}

macro_rules! compiled {
    ($($reducer:ident)+) => {
        $(
            impl Compiled for $reducer {
                const LOOPS: &'static ReductionTable = {
                    static LOOPS: ReductionTable = [
                        ReductionLoops::of::<$reducer, f32>(),
                        ReductionLoops::of::<$reducer, f64>(),
                    ];
                    &LOOPS
                };
            }
        )+
    };
}

compiled!(Sum Mean Prod Max Min Argmax Argmin Var Std Norm All Any Logsumexp CrossEntropy);

/// Returns the loops of `F` for elements of `T`. They are a reference: if a constant has the
/// address of a function, the compiler compiles the function where the constant is.
pub(in crate::ops) const fn reduction_loops_of<F: Reducer<T> + Compiled, T: AnyElement>()
-> &'static ReductionLoops {
    // A constant, so that no loop is compiled where there is one in the table.
    if const { (T::DTYPE as usize) < size_of::<ReductionTable>() / size_of::<ReductionLoops>() } {
        &F::LOOPS[T::DTYPE as usize]
    } else {
        const { &ReductionLoops::of::<F, T>() }
    }
}
