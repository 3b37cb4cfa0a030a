//! Many products of small matrices, computed one after another. The overhead of each product takes
//! as long as its multiplications.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::matrix::{Matrix, Pairs};
use crate::element::scalar::convert;
use crate::vector::{Loop, vectorised};
use crate::{DType, Number};

/// The maximum number of multiplications in one product.
pub const MOST: usize = 100;

/// Writes the products of index `range` to all of `out`, one after another. The sums are in `A`.
///
/// # Safety
///
/// The elements must be of `T`. The memory of all matrices must be alive and not written to.
pub unsafe fn multiply<T: Number, A: Number>(
    pairs: &Pairs,
    range: Range<usize>,
    out: &mut [MaybeUninit<T>],
) {
    let (rows, _, columns) = pairs.lengths();
    assert_eq!(out.len(), range.len() * rows * columns);
    let sums = PhantomData::<(T, A)>;
    vectorised(Tiny { pairs, range, sums }, out);
}

/// The pairs of [`multiply`]. The sums of the products are in `A`.
///
/// Invariant: the contract of [`multiply`] holds.
struct Tiny<'a, T, A> {
    pairs: &'a Pairs,
    range: Range<usize>,
    sums: PhantomData<(T, A)>,
}

impl<T: Number, A: Number> Loop<[MaybeUninit<T>]> for Tiny<'_, T, A> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        let (_, inner, columns) = self.pairs.lengths();
        // The condition is a constant. Therefore programs compile no loops of fixed length for
        // other types.
        if const { FMA && T::DTYPE as usize <= DType::F64 as usize } {
            match (inner, columns) {
                (2, 1) => return self.each(out, multiply_fixed::<T, A, 2, 1>),
                (3, 1) => return self.each(out, multiply_fixed::<T, A, 3, 1>),
                (4, 1) => return self.each(out, multiply_fixed::<T, A, 4, 1>),
                (2, 2) => return self.each(out, multiply_fixed::<T, A, 2, 2>),
                (3, 3) => return self.each(out, multiply_fixed::<T, A, 3, 3>),
                (4, 4) => return self.each(out, multiply_fixed::<T, A, 4, 4>),
                _ => {}
            }
        }
        self.each(out, multiply_any::<T, A>);
    }
}

impl<T: Number, A: Number> Tiny<'_, T, A> {
    #[inline(always)]
    fn each(
        self,
        out: &mut [MaybeUninit<T>],
        multiply: impl Fn(&Matrix<T>, &Matrix<T>, &mut [MaybeUninit<T>]),
    ) {
        let (rows, _, columns) = self.pairs.lengths();
        let (first_left, first_right) = self.pairs.models::<T>();
        let walk = self.pairs.walk();
        let (_, [left_step, right_step]) = walk.row();
        let mut places = out.chunks_exact_mut((rows * columns).max(1));
        for ([left_at, right_at], count) in walk.runs(self.range) {
            let mut left = first_left.moved(left_at);
            let mut right = first_right.moved(right_at);
            for out in places.by_ref().take(count) {
                multiply(&left, &right, out);
                left.first = left.first.wrapping_offset(left_step);
                right.first = right.first.wrapping_offset(right_step);
            }
        }
    }
}

/// Computes one product of inner length `K` with `N` columns. Only [`Tiny`] calls this function.
#[inline(always)]
fn multiply_fixed<T: Number, A: Number, const K: usize, const N: usize>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    let (lines, _) = out.as_chunks_mut::<N>();
    // SAFETY: `Tiny` chose the lengths, so the indices are within the matrices. By the invariant of
    // `Tiny`, the matrices are readable.
    unsafe {
        let at = |step: usize, column: usize| convert::<A, T>(right.at(step, column));
        let factors: [[A; N]; K] =
            std::array::from_fn(|step| std::array::from_fn(|column| at(step, column)));
        for (row, line) in lines.iter_mut().enumerate() {
            let mut sums = [A::zero(); N];
            for (step, factors) in factors.iter().enumerate() {
                let value: A = convert(left.at(row, step));
                for (sum, &factor) in sums.iter_mut().zip(factors) {
                    *sum = sum.plus(value.times(factor));
                }
            }
            for (slot, sum) in line.iter_mut().zip(sums) {
                slot.write(convert(sum));
            }
        }
    }
}

/// Computes one product of any lengths. Only [`Tiny`] calls this function.
#[inline(always)]
fn multiply_any<T: Number, A: Number>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    for (row, line) in out.chunks_exact_mut(right.columns.max(1)).enumerate() {
        for (column, slot) in line.iter_mut().enumerate() {
            let mut sum = A::zero();
            for step in 0..left.columns {
                // SAFETY: the indices are within the matrices. By the invariant of `Tiny`, the
                // matrices are readable.
                let (x, y): (A, A) =
                    unsafe { (convert(left.at(row, step)), convert(right.at(step, column))) };
                sum = sum.plus(x.times(y));
            }
            slot.write(convert(sum));
        }
    }
}
