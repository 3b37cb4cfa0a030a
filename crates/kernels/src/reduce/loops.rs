//! The table of loops over elements: all code that is compiled for each reducer and type of
//! elements.

use std::mem::MaybeUninit;

use super::leaves::{self, Columns, Rows};
use crate::element::plain::{Bits, bits_of};
use crate::reduce::{
    All, Any, Argmax, Argmin, CrossEntropy, Logsumexp, Max, Mean, Min, Norm, Prod, Reducer, Std,
    Sum, Var,
};
use crate::vector::has_vectors;
use crate::{AnyElement, DType};

/// Scratch memory for totals and for partial results of any type.
pub type Scratch = [MaybeUninit<u128>];

/// The largest size of a total and of a partial result, in elements of [`Scratch`].
pub const MOST_UNITS: usize = 2;

/// The loops of a reducer for elements of one type, and the sizes of what they read and write.
#[derive(Debug)]
pub struct ReductionLoops {
    pub element_bytes: usize,
    pub partial_bytes: usize,
    pub total_bytes: usize,
    pub output_bytes: usize,
    /// The type of the elements.
    pub element: DType,
    /// The type of the results.
    pub output: DType,
    /// Returns the result for no elements, if there is one.
    pub nothing: fn() -> Option<Bits>,
    /// Merges totals into as many others, whose elements precede theirs.
    pub merge: unsafe fn(&mut Scratch, &Scratch, usize),
    /// The loops for the baseline of the architecture, and for vectors.
    by_instructions: [LeafLoops; 2],
}

/// The loops of a [`ReductionLoops`] that are compiled for each set of instructions.
#[derive(Clone, Copy, Debug)]
pub struct LeafLoops {
    /// Reduces rows; see [`leaves`].
    pub rows: unsafe fn(&Rows, &mut Scratch),
    /// Reduces columns; see [`leaves`].
    pub columns: unsafe fn(&Columns, &mut Scratch, &mut Scratch),
    /// Writes the results of totals; see [`leaves`].
    pub finish: unsafe fn(&Scratch, usize, *mut u8, usize),
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
    pub fn leaves(&self) -> &LeafLoops {
        &self.by_instructions[usize::from(has_vectors())]
    }
}

/// The loops of a reducer for the types that most programs reduce, by the number of `DType`. The
/// others are compiled where they are used.
pub type ReductionTable = [ReductionLoops; 2];

/// A reducer with loops that are compiled with the library.
pub trait Compiled {
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

/// Returns the loops of `F` for elements of `T`. The result is a reference. If a constant contained
/// a function's address, the compiler would compile the function at the constant's use.
pub const fn reduction_loops_of<F: Reducer<T> + Compiled, T: AnyElement>() -> &'static ReductionLoops
{
    // A constant condition, so that no loop is compiled if the table has one.
    if const { (T::DTYPE as usize) < size_of::<ReductionTable>() / size_of::<ReductionLoops>() } {
        &F::LOOPS[T::DTYPE as usize]
    } else {
        const { &ReductionLoops::of::<F, T>() }
    }
}
