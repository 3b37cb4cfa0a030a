//! Loops over blocks of elements: a loop for each function and element type. All loops are compiled
//! with the library.
//!
//! Each loop is compiled for the baseline and for AVX2. Exponentials and functions of exponentials
//! are compiled a third time, for AVX-512 ([`Function::WIDE`]). These functions are bound by
//! arithmetic, so longer vectors are faster. Other loops are bound by memory, so longer vectors are
//! not faster.

#[cfg(target_arch = "x86_64")]
use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use super::run::Run;
use super::run::{InMemory, Runs, fill};
use super::widened::widened_loop;
#[cfg(target_arch = "x86_64")]
use crate::element::scalar::pass::Careful;
use crate::elementwise::call::MOST_OPERANDS;
use crate::elementwise::function::{Apply, Function};
use crate::vector::{has_vectors, has_wide_vectors};
use crate::{AnyElement, DType};

/// A loop that applies a function to consecutive elements of each operand. The arguments are the
/// addresses of the operands, the address of the results, and the number of elements.
pub type BlockLoop = unsafe fn(&[*const u8; MOST_OPERANDS], *mut u8, usize);

/// Expands to a table: the [`Calls`](super::call::Calls) of `Op::call::<T>()`. `T` is each type
/// that a kind of rows supports.
macro_rules! table {
    (@each $op:tt: $($of:tt)+) => {
        $crate::elementwise::call::Calls([$($crate::elementwise::loops::table!(@one $op $of)),+])
    };
    (@one $op:tt -) => { None };
    (@one ($op:ty) $of:tt) => { <$op>::call::<$crate::elementwise::loops::table!(@type $of)>() };
    (@one $op:ident $of:tt) => { $op::call::<$crate::elementwise::loops::table!(@type $of)>() };
    (@type f16) => { half::f16 };
    (@type bf16) => { half::bf16 };
    (@type c32) => { num_complex::Complex<f32> };
    (@type c64) => { num_complex::Complex<f64> };
    (@type $of:ident) => { $of };
    (number $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 - c32 c64)
    };
    (part $op:tt) => { $crate::elementwise::loops::table!(number $op) };
    (real $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 - - -)
    };
    (power $op:tt) => { $crate::elementwise::loops::table!(real $op) };
    (float $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 f16 bf16 - - - - - - - - - - -)
    };
    (test $op:tt) => { $crate::elementwise::loops::table!(float $op) };
    (integer $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: - - - - i8 i16 i32 i64 u8 u16 u32 u64 - - -)
    };
    (bits $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: - - - - i8 i16 i32 i64 u8 u16 u32 u64 bool - -)
    };
    (ordered $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool - -)
    };
    (compare $op:tt) => { $crate::elementwise::loops::table!(ordered $op) };
    (parts $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 - - - - - - - - - - - - -)
    };
    (element $op:tt) => {
        $crate::elementwise::loops::table!(@each $op: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool c32 c64)
    };
    (equality $op:tt) => { $crate::elementwise::loops::table!(element $op) };
}

pub(crate) use table;

/// One element of each operand.
pub trait Arguments: Copy + 'static {
    /// The runs of the operands' elements in memory.
    type InMemory: Runs<Items = Self>;

    /// The types of the elements.
    const DTYPES: &'static [DType];

    /// Returns the runs of the operands at the addresses `from`.
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

/// The loops of one function, one for each instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Loops {
    baseline: BlockLoop,
    avx2: BlockLoop,
    avx512: BlockLoop,
}

impl Loops {
    /// Returns the loops that apply `F`.
    #[must_use]
    #[cfg(target_arch = "x86_64")]
    pub const fn of<F: Function<Args>, Args: Arguments>() -> Self {
        Self {
            baseline: one_by_one::<F, Args>,
            avx2: with_avx2::<F, Args>,
            avx512: match F::WIDE {
                true => with_avx512::<F, Args>,
                false => with_avx2::<F, Args>,
            },
        }
    }

    /// Returns the loops that apply `F`.
    #[must_use]
    #[cfg(not(target_arch = "x86_64"))]
    pub const fn of<F: Function<Args>, Args: Arguments>() -> Self {
        Self::all(as_compiled::<F, Args>)
    }

    /// Returns the loops of `F` for elements of `T`, with arguments of types `Own`. If `T` is a
    /// narrow float, the loops compute with arguments of types `Wide`. In `Wide`, `f32` replaces
    /// `T`.
    pub(crate) const fn widening<F, T, Own, Wide>() -> Self
    where
        F: Function<Own> + Function<Wide>,
        T: AnyElement,
        Own: Arguments,
        Wide: Arguments,
    {
        match T::DTYPE {
            DType::F16 | DType::Bf16 => Self::all(widened_loop::<F, Own, Wide>),
            _ => Self::of::<F, Own>(),
        }
    }

    const fn all(run: BlockLoop) -> Self {
        Self {
            baseline: run,
            avx2: run,
            avx512: run,
        }
    }

    /// Returns the loop for the best instruction set that the processor supports.
    #[inline]
    pub fn best(&self) -> BlockLoop {
        match (has_vectors(), has_wide_vectors()) {
            (true, true) => self.avx512,
            (true, false) => self.avx2,
            (false, _) => self.baseline,
        }
    }
}

/// Applies `F` on processors without AVX2. Because these processors are rare, each element is
/// computed separately. Then the compiler neither vectorises nor unrolls the loop.
///
/// # Safety
///
/// For each operand, `count` elements must be readable, aligned and not written to meanwhile. `to`
/// must be aligned and writable for `count` results. No other code may access the results
/// meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn one_by_one<F: Function<Args>, Args: Arguments>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    let run = Apply::<F, Args::InMemory>::new(Args::runs(from));
    let mut pass = Careful::<{ cfg!(target_feature = "fma") }>;
    let to: *mut F::Output = to.cast();
    for index in 0..count {
        // SAFETY: the caller upholds this function's contract.
        unsafe { to.add(index).write(run.at(&mut pass, black_box(index))) };
    }
}

/// Applies `F` with vectors of 32 bytes.
///
/// # Safety
///
/// The contract of [`one_by_one`] must hold. In addition, the processor must have the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_avx2<F: Function<Args>, Args: Arguments>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { block_loop::<F, Args, true>(from, to, count) };
}

/// Applies `F` with vectors of 64 bytes.
///
/// # Safety
///
/// The contract of [`one_by_one`] must hold. In addition, the processor must have the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<F: Function<Args>, Args: Arguments>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { block_loop::<F, Args, true>(from, to, count) };
}

/// Applies `F` with the instruction set that the library is compiled for.
///
/// # Safety
///
/// For each operand, `count` elements must be readable, aligned and not written to meanwhile. `to`
/// must be aligned and writable for `count` results. No other code may access the results
/// meanwhile.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn as_compiled<F: Function<Args>, Args: Arguments>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { block_loop::<F, Args, { cfg!(target_arch = "aarch64") }>(from, to, count) };
}

/// Applies `F` to `count` elements of each operand, with vector code.
///
/// # Safety
///
/// The contract of the loop that inlines this function must hold.
#[inline(always)]
unsafe fn block_loop<F: Function<Args>, Args: Arguments, const FMA: bool>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    let run = Apply::<F, Args::InMemory>::new(Args::runs(from));
    // SAFETY: the caller upholds this function's contract.
    unsafe { fill::<_, FMA>(run, std::slice::from_raw_parts_mut(to.cast(), count)) };
}
