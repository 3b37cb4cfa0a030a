//! Loops over blocks of elements: one for each function and element type, compiled with the
//! library.

use super::run::{InMemory, Runs, fill};
use super::widened::widened_loop;
use crate::array::{AnyElement, DType};
use crate::ops::expression::node::{Apply, Function};
use crate::ops::expression::tree::MOST_OPERANDS;

/// A loop that applies a function to a number of elements. The elements of each operand are
/// consecutive from an address on; the results are written to another address.
pub type BlockLoop = unsafe fn(&[*const u8; MOST_OPERANDS], *mut u8, usize);

/// Makes the [`Calls`](super::tree::Calls) of `Op::call::<T>()` for each `T` of a kind of rows.
macro_rules! table {
    (@each $op:tt: $($of:tt)+) => {
        $crate::ops::expression::tree::Calls([$($crate::ops::expression::loops::table!(@one $op $of)),+])
    };
    (@one $op:tt -) => { None };
    (@one ($op:ty) $of:tt) => { <$op>::call::<$crate::ops::expression::loops::table!(@type $of)>() };
    (@one $op:ident $of:tt) => { $op::call::<$crate::ops::expression::loops::table!(@type $of)>() };
    (@type f16) => { half::f16 };
    (@type bf16) => { half::bf16 };
    (@type c32) => { num_complex::Complex<f32> };
    (@type c64) => { num_complex::Complex<f64> };
    (@type $of:ident) => { $of };
    (number $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 - c32 c64)
    };
    (part $op:tt) => { $crate::ops::expression::loops::table!(number $op) };
    (real $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 - - -)
    };
    (power $op:tt) => { $crate::ops::expression::loops::table!(real $op) };
    (float $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 f16 bf16 - - - - - - - - - - -)
    };
    (test $op:tt) => { $crate::ops::expression::loops::table!(float $op) };
    (integer $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: - - - - i8 i16 i32 i64 u8 u16 u32 u64 - - -)
    };
    (bits $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: - - - - i8 i16 i32 i64 u8 u16 u32 u64 bool - -)
    };
    (ordered $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool - -)
    };
    (compare $op:tt) => { $crate::ops::expression::loops::table!(ordered $op) };
    (parts $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 - - - - - - - - - - - - -)
    };
    (element $op:tt) => {
        $crate::ops::expression::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool c32 c64)
    };
    (equality $op:tt) => { $crate::ops::expression::loops::table!(element $op) };
}

pub(crate) use table;

/// One element of each of several types.
pub trait Arguments: Copy + 'static {
    /// The runs of such elements in memory.
    type InMemory: Runs<Items = Self>;

    /// The types of the elements.
    const DTYPES: &'static [DType];

    /// Returns the runs at these addresses.
    fn runs(from: &[*const u8; MOST_OPERANDS]) -> Self::InMemory;
}

macro_rules! arguments {
    ($($operand:ident $index:tt),+) => {
        impl<$($operand: AnyElement),+> Arguments for ($($operand,)+) {
            type InMemory = ($(InMemory<$operand>,)+);

            const DTYPES: &'static [DType] = &[$($operand::DTYPE),+];

            #[inline(always)]
            fn runs(from: &[*const u8; MOST_OPERANDS]) -> Self::InMemory {
                ($(InMemory::at_address(from[$index].cast()),)+)
            }
        }
    };
}

arguments!(A 0);
arguments!(A 0, B 1);
arguments!(A 0, B 1, C 2);
arguments!(A 0, B 1, C 2, D 3);

/// Returns the loop of `F` for elements of `T`, whose arguments are `Own`. `Wide` are the arguments
/// for `f32`, which computes for the narrower floats.
pub(crate) const fn loop_of<F, T, Own, Wide>() -> BlockLoop
where
    F: Function<Own> + Function<Wide>,
    T: AnyElement,
    Own: Arguments,
    Wide: Arguments,
{
    match T::DTYPE {
        DType::F16 | DType::Bf16 => widened_loop::<F, Own, Wide>,
        _ => block_loop::<F, Own>,
    }
}

/// Applies the function `F` to `count` elements of each operand.
///
/// # Safety
///
/// For each of the types of `Args`, `count` elements must be readable at its address, aligned and
/// not written to meanwhile. `to` must have room for `count` results, aligned, that nobody reads
/// meanwhile.
pub unsafe fn block_loop<F: Function<Args>, Args: Arguments>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    let run = Apply::<F, Args::InMemory>::new(Args::runs(from));
    // SAFETY: by this function's contract.
    unsafe { fill(run, 0, std::slice::from_raw_parts_mut(to.cast(), count)) };
}
