//! Reduction of the ranks' elements, in rank order.

use half::{bf16, f16};
use num_complex::Complex;

use super::call::Reduce;
use crate::array::DType;

/// Elements that are reduced at a time. Their accumulators stay in registers from the first row to
/// the last.
const BLOCK: usize = 64;

/// Reductions of an element type.
trait Summand: Copy {
    /// The type of the accumulator.
    type Wide: Copy;

    fn widened(self) -> Self::Wide;
    fn narrowed(wide: Self::Wide) -> Self;
    fn sum(one: Self::Wide, other: Self::Wide) -> Self::Wide;
    fn max(one: Self::Wide, other: Self::Wide) -> Self::Wide;
    fn min(one: Self::Wide, other: Self::Wide) -> Self::Wide;
    fn over(sum: Self::Wide, count: usize) -> Self::Wide;
}

/// Reduces `count` elements of each of `rows`, and writes the results to each of `targets`.
///
/// # Safety
///
/// `rows` point to `count` elements of `dtype`, and `targets` to memory for `count` elements; all
/// are aligned for `dtype`. Until this returns, nothing else writes to the rows or uses the
/// targets. A target may be a row; otherwise they do not overlap.
///
/// # Panics
///
/// If [`Reduce::check`] refuses the type, or if there is no row.
pub(super) unsafe fn fold(
    what: (Reduce, DType),
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: by this function's contract; the processor has AVX2.
        return unsafe { fold_with_avx2(what, rows, targets, count) };
    }
    // SAFETY: by this function's contract.
    unsafe { fold_any(what, rows, targets, count) }
}

/// Like [`fold`], compiled for AVX2. Each element is computed in the same order, so results are
/// equal.
///
/// # Safety
///
/// As for [`fold`], on a processor that has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_with_avx2(
    what: (Reduce, DType),
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    // SAFETY: by this function's contract.
    unsafe { fold_any(what, rows, targets, count) }
}

/// Like [`fold`], for any processor. Inlined, so that it is compiled for the features of its
/// caller.
///
/// # Safety
///
/// As for [`fold`].
#[inline(always)]
unsafe fn fold_any(
    (reduce, dtype): (Reduce, DType),
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    macro_rules! by_type {
        ($($dtype:ident $T:ty;)+) => {
            match dtype {
                // SAFETY: by this function's contract.
                $(DType::$dtype => unsafe { fold_as::<$T>(reduce, rows, targets, count) },)+
            }
        };
    }
    by_type! {
        F32 f32;
        F64 f64;
        F16 f16;
        Bf16 bf16;
        I8 i8;
        I16 i16;
        I32 i32;
        I64 i64;
        U8 u8;
        U16 u16;
        U32 u32;
        U64 u64;
        Bool bool;
        C32 Complex<f32>;
        C64 Complex<f64>;
    }
}

/// Like [`fold`], for the element type `T`.
///
/// # Safety
///
/// As for [`fold`].
#[inline(always)]
unsafe fn fold_as<T: Summand>(
    reduce: Reduce,
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    let ranks = rows.len();
    // SAFETY: by this function's contract.
    unsafe {
        match reduce {
            Reduce::Sum => fold_by::<T>(rows, targets, count, T::sum, |sum| sum),
            Reduce::Mean => fold_by::<T>(rows, targets, count, T::sum, |sum| T::over(sum, ranks)),
            Reduce::Max => fold_by::<T>(rows, targets, count, T::max, |max| max),
            Reduce::Min => fold_by::<T>(rows, targets, count, T::min, |min| min),
        }
    }
}

/// Like [`fold_as`], with `combine` applied to two elements, and `finish` to each result.
///
/// # Safety
///
/// As for [`fold`].
#[inline(always)]
unsafe fn fold_by<T: Summand>(
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
    combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    finish: impl Fn(T::Wide) -> T::Wide,
) {
    let blocks = count - count % BLOCK;
    for start in (0..blocks).step_by(BLOCK) {
        // SAFETY: by this function's contract; the `BLOCK` elements are among the `count`.
        unsafe { fold_block::<T, BLOCK>(rows, targets, start, &combine, &finish) };
    }
    for start in blocks..count {
        // SAFETY: by this function's contract; the element is among the `count`.
        unsafe { fold_block::<T, 1>(rows, targets, start, &combine, &finish) };
    }
}

/// Reduces `N` elements from `start` on.
///
/// # Safety
///
/// As for [`fold`], for the first `start + N` elements.
#[inline(always)]
unsafe fn fold_block<T: Summand, const N: usize>(
    rows: &[*const u8],
    targets: &[*mut u8],
    start: usize,
    combine: &impl Fn(T::Wide, T::Wide) -> T::Wide,
    finish: &impl Fn(T::Wide) -> T::Wide,
) {
    let row = |row: &*const u8| -> [T; N] {
        // SAFETY: the row has `N` aligned elements from `start` on, which nothing writes to
        // meanwhile.
        unsafe { row.cast::<T>().add(start).cast::<[T; N]>().read() }
    };
    let (first, others) = rows.split_first().expect("a group has a rank");
    let mut sums = row(first).map(T::widened);
    for other in others {
        let others = row(other);
        for (sum, own) in sums.iter_mut().zip(others) {
            *sum = combine(*sum, own.widened());
        }
    }
    let results = sums.map(|sum| T::narrowed(finish(sum)));
    for target in targets {
        // SAFETY: the target has memory for `N` elements from `start` on, which nothing else uses;
        // all rows have been read.
        unsafe {
            let place = target.cast::<T>().add(start).cast::<[T; N]>();
            place.write(results);
        }
    }
}

/// Implements [`Summand`] for floats, with `$Wide` as the accumulator.
macro_rules! floats {
    ($($T:ty: $Wide:ty, $widened:expr, $narrowed:expr;)+) => {
        $(
            impl Summand for $T {
                type Wide = $Wide;

                #[inline]
                fn widened(self) -> $Wide {
                    $widened(self)
                }

                #[inline]
                fn narrowed(wide: $Wide) -> Self {
                    $narrowed(wide)
                }

                #[inline]
                fn sum(one: $Wide, other: $Wide) -> $Wide {
                    one + other
                }

                #[inline]
                fn max(one: $Wide, other: $Wide) -> $Wide {
                    if other > one || other.is_nan() { other } else { one }
                }

                #[inline]
                fn min(one: $Wide, other: $Wide) -> $Wide {
                    if other < one || other.is_nan() { other } else { one }
                }

                #[inline]
                fn over(sum: $Wide, count: usize) -> $Wide {
                    sum / count as $Wide
                }
            }
        )+
    };
}

floats! {
    f32: f32, |own| own, |wide| wide;
    f64: f64, |own| own, |wide| wide;
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
}

const CHECKED: &str = "the call checked that there is such a reduction of the type";

macro_rules! integers {
    ($($T:ty)+) => {
        $(
            impl Summand for $T {
                type Wide = Self;

                #[inline]
                fn widened(self) -> Self {
                    self
                }

                #[inline]
                fn narrowed(wide: Self) -> Self {
                    wide
                }

                #[inline]
                fn sum(one: Self, other: Self) -> Self {
                    one.wrapping_add(other)
                }

                #[inline]
                fn max(one: Self, other: Self) -> Self {
                    Ord::max(one, other)
                }

                #[inline]
                fn min(one: Self, other: Self) -> Self {
                    Ord::min(one, other)
                }

                fn over(_: Self, _: usize) -> Self {
                    unreachable!("{CHECKED}")
                }
            }
        )+
    };
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Summand for bool {
    type Wide = Self;

    fn widened(self) -> Self {
        self
    }

    fn narrowed(wide: Self) -> Self {
        wide
    }

    fn sum(_: Self, _: Self) -> Self {
        unreachable!("{CHECKED}")
    }

    fn max(one: Self, other: Self) -> Self {
        one | other
    }

    fn min(one: Self, other: Self) -> Self {
        one & other
    }

    fn over(_: Self, _: usize) -> Self {
        unreachable!("{CHECKED}")
    }
}

macro_rules! complex {
    ($($T:ty)+) => {
        $(
            impl Summand for Complex<$T> {
                type Wide = Self;

                fn widened(self) -> Self {
                    self
                }

                fn narrowed(wide: Self) -> Self {
                    wide
                }

                fn sum(one: Self, other: Self) -> Self {
                    one + other
                }

                fn max(_: Self, _: Self) -> Self {
                    unreachable!("{CHECKED}")
                }

                fn min(_: Self, _: Self) -> Self {
                    unreachable!("{CHECKED}")
                }

                fn over(sum: Self, count: usize) -> Self {
                    sum / count as $T
                }
            }
        )+
    };
}

complex!(f32 f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn folded<T: Copy + Default>(reduce: Reduce, dtype: DType, rows: &[Vec<T>]) -> Vec<T> {
        let mut result = vec![T::default(); rows[0].len()];
        let pointers: Vec<*const u8> = rows.iter().map(|row| row.as_ptr().cast()).collect();
        let target = result.as_mut_ptr().cast();
        // SAFETY: rows and result are separate vectors of one length, whose elements are of the
        // type.
        unsafe { fold((reduce, dtype), &pointers, &[target], result.len()) };
        result
    }

    #[test]
    fn sums_are_in_the_order_of_the_ranks() {
        // The sum is 2 only if computed from left to right.
        let rows: Vec<Vec<f32>> = [1e8, -1e8, 1.0, 1.0].map(|own| vec![own; 3000]).into();
        assert_eq!(folded(Reduce::Sum, DType::F32, &rows), vec![2.0; 3000]);
        assert_eq!(folded(Reduce::Mean, DType::F32, &rows), vec![0.5; 3000]);
    }

    #[test]
    fn narrow_floats_are_rounded_once() {
        let rows: Vec<Vec<f16>> = [2048.0, 1.0, 1.0]
            .map(|own| vec![f16::from_f32(own)])
            .into();
        let sum = folded(Reduce::Sum, DType::F16, &rows);
        assert_eq!(
            sum,
            [f16::from_f32(2050.0)],
            "one after the other, it were 2048"
        );
    }

    #[test]
    fn the_largest_and_the_smallest() {
        let rows = [vec![1.0_f64, f64::NAN, 3.0], vec![2.0, 0.0, f64::NAN]];
        let max = folded(Reduce::Max, DType::F64, &rows);
        assert_eq!(max[0], 2.0);
        assert!(max[1].is_nan() && max[2].is_nan());
        let rows = [vec![-3_i8, 7], vec![5, -128]];
        assert_eq!(folded(Reduce::Min, DType::I8, &rows), [-3, -128]);
        assert_eq!(folded(Reduce::Sum, DType::I8, &rows), [2, -121]);
        let rows = [vec![true, false], vec![true, true]];
        assert_eq!(folded(Reduce::Max, DType::Bool, &rows), [true, true]);
        assert_eq!(folded(Reduce::Min, DType::Bool, &rows), [true, false]);
    }
}
