//! The tables of loops over elements. The tables refer to all code that is compiled for each
//! reducer and element type.

use std::mem::MaybeUninit;

use super::leaves::{self, Columns, Rows};
use crate::element::plain::{Bits, bits_of};
use crate::reduce::{
    All, Any, Argmax, Argmin, CrossEntropy, Logsumexp, Max, Mean, Min, Norm, Prod, Reducer, Std,
    Sum, Var,
};
use crate::vector::has_vectors;
use crate::{AnyElement, DType};

/// Scratch memory for totals and partial results of any type.
pub type Scratch = [MaybeUninit<u128>];

/// The maximum size of a total, and of a partial result, in elements of [`Scratch`].
pub const MOST_UNITS: usize = 2;

/// The loops of a reducer for elements of one type. Also has the sizes of the values that the loops
/// read and write.
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
    /// The function that returns the result of an empty reduction, or `None` if there is none.
    pub nothing: fn() -> Option<Bits>,
    /// The function that merges the totals of the second argument into the totals of the first
    /// argument. The elements of the first argument's totals precede the elements of the second's.
    pub merge: unsafe fn(&mut Scratch, &Scratch, usize),
    /// The loops for the baseline of the architecture, and the loops for AVX2, FMA and F16C.
    by_instructions: [LeafLoops; 2],
}

/// The loops of a reducer that are compiled for each instruction set.
#[derive(Clone, Copy, Debug)]
pub struct LeafLoops {
    /// The loop that reduces rows.
    pub rows: unsafe fn(&Rows, &mut Scratch),
    /// The loop that reduces columns.
    pub columns: unsafe fn(&Columns, &mut Scratch, &mut Scratch),
    /// The loop that writes the results of totals.
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

    /// Returns the loops for the best instruction set that the processor supports.
    #[inline(always)]
    pub fn leaves(&self) -> &LeafLoops {
        &self.by_instructions[usize::from(has_vectors())]
    }
}

/// The loops of a reducer for `f32` and `f64`, by `DType as usize`. The loops for other types are
/// compiled in the crate that uses them.
pub type ReductionTable = [ReductionLoops; 2];

/// A reducer whose loops are compiled with the library.
pub trait Compiled {
    /// The table of the loops.
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

/// Returns the loops of `F` for elements of `T`. The result is a reference. A constant with a
/// function's address would make the compiler compile the function wherever the constant is used.
pub const fn reduction_loops_of<F: Reducer<T> + Compiled, T: AnyElement>() -> &'static ReductionLoops
{
    // The condition is a constant, so that no loop is compiled if the table has an entry.
    if const { (T::DTYPE as usize) < size_of::<ReductionTable>() / size_of::<ReductionLoops>() } {
        &F::LOOPS[T::DTYPE as usize]
    } else {
        const { &ReductionLoops::of::<F, T>() }
    }
}
