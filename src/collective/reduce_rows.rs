//! Reduction of the ranks' elements, in rank order, by the loops of elementwise functions.

use std::mem::MaybeUninit;

use super::call::Reduce;
use crate::array::DType;
use crate::ops::{Added, BlockLoop, Maximum, Minimum, Over, cast};

/// The number of values that are reduced at a time. A block stays in the first-level cache.
const BLOCK: usize = 512;

/// Scratch memory for a block of values of any type.
type Scratch = [MaybeUninit<u64>; BLOCK];

/// Reduces `count` elements of each of `rows`, and writes the results to each of `targets`.
///
/// # Safety
///
/// Each of `rows` points to `count` elements of `dtype`, and each of `targets` to memory for
/// `count` elements. All pointers are aligned for `dtype`. Until this function returns, nothing
/// else writes to the rows or uses the targets. A target may be a row. Otherwise, targets and rows
/// do not overlap.
///
/// # Panics
///
/// If `count` is above 0, panics if [`Reduce::check`] rejects the type, or if `rows` is empty.
pub(super) unsafe fn reduce_rows(
    (reduce, dtype): (Reduce, DType),
    rows: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    if count == 0 {
        return;
    }
    let (values_each, loops) = (values_each(dtype), Steps::new(reduce, dtype));
    let value_bytes = dtype.size_bytes() / values_each;
    let ranks = repeated(rows.len(), accumulator(dtype));
    let mut scratch = [[MaybeUninit::uninit(); BLOCK]; 3];
    for start in (0..count * values_each).step_by(BLOCK) {
        let (at, here) = (start * value_bytes, BLOCK.min(count * values_each - start));
        // SAFETY: by this function's contract, rows and targets are valid, and the block lies
        // within the `count` elements. All rows of the block are read before a target is written.
        unsafe {
            let rows = rows.iter().map(|row| row.add(at));
            let result = loops.run(rows, &ranks, &mut scratch, here);
            for target in targets {
                target.add(at).copy_from(result, here * value_bytes);
            }
        }
    }
}

/// The loops of a reduction.
struct Steps {
    /// The conversion of values to the type of the accumulator, if they have another type.
    widen: Option<BlockLoop>,
    /// The combination of two accumulators.
    combine: BlockLoop,
    /// The division of the sum by the number of ranks, for a mean.
    divide: Option<BlockLoop>,
    /// The inverse of `widen`.
    narrow: Option<BlockLoop>,
}

impl Steps {
    fn new(reduce: Reduce, dtype: DType) -> Self {
        let wide = accumulator(dtype);
        let combine = match reduce {
            Reduce::Sum | Reduce::Mean => Added::CALLS,
            Reduce::Max => Maximum::CALLS,
            Reduce::Min => Minimum::CALLS,
        };
        let is_narrow = matches!(dtype, DType::F16 | DType::Bf16);
        Self {
            widen: is_narrow.then(|| cast(dtype, wide).run()),
            combine: combine.at(wide).run(),
            divide: (reduce == Reduce::Mean).then(|| Over::CALLS.at(wide).run()),
            narrow: is_narrow.then(|| cast(wide, dtype).run()),
        }
    }

    /// Reduces `count` values of each of `rows`. `count` is at most [`BLOCK`]. Returns the address
    /// of the results, in a row or in `scratch`. Each element of `ranks` is the number of ranks.
    ///
    /// # Safety
    ///
    /// Each of `rows` points to `count` aligned values, which nothing writes during the call.
    unsafe fn run(
        &self,
        rows: impl Iterator<Item = *const u8>,
        ranks: &[u64; BLOCK],
        scratch: &mut [Scratch; 3],
        count: usize,
    ) -> *const u8 {
        let [one, other, wide] = scratch
            .each_mut()
            .map(|part| part.as_mut_ptr().cast::<u8>());
        let apply = |run: BlockLoop, left: *const u8, right: *const u8, to: *mut u8| {
            // SAFETY: the operands have `count` values: rows by this function's contract, scratch
            // memory because a loop has written it. `to` is scratch memory that is not an operand.
            unsafe { run(&[left, right, left, left], to, count) };
            to.cast_const()
        };
        let unused = |sum: *const u8| if sum == one.cast_const() { other } else { one };
        let mut sum: Option<*const u8> = None;
        for row in rows {
            sum = Some(match (sum, self.widen) {
                (None, None) => row,
                (None, Some(widen)) => apply(widen, row, row, one),
                (Some(sum), None) => apply(self.combine, sum, row, unused(sum)),
                (Some(sum), Some(widen)) => {
                    let row = apply(widen, row, row, wide);
                    apply(self.combine, sum, row, unused(sum))
                }
            });
        }
        let sum = sum.expect("a group has at least one rank");
        let result = self.divide.map_or(sum, |divide| {
            apply(divide, sum, ranks.as_ptr().cast(), unused(sum))
        });
        self.narrow
            .map_or(result, |narrow| apply(narrow, result, result, wide))
    }
}

/// Returns the type in which values of `dtype` are accumulated.
fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 | DType::C32 => DType::F32,
        DType::C64 => DType::F64,
        own => own,
    }
}

/// Returns the number of values in an element: the two parts of a complex number, or one.
fn values_each(dtype: DType) -> usize {
    match dtype {
        DType::C32 | DType::C64 => 2,
        _ => 1,
    }
}

/// Returns a block of `f32` or `f64` values, all of which are `count`.
fn repeated(count: usize, dtype: DType) -> [u64; BLOCK] {
    let single = u64::from((count as f32).to_bits());
    match dtype {
        DType::F64 => [(count as f64).to_bits(); BLOCK],
        _ => [single << 32 | single; BLOCK],
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn reduced<T: Copy + Default>(reduce: Reduce, dtype: DType, rows: &[Vec<T>]) -> Vec<T> {
        let mut result = vec![T::default(); rows[0].len()];
        let pointers: Vec<*const u8> = rows.iter().map(|row| row.as_ptr().cast()).collect();
        let target = result.as_mut_ptr().cast();
        // SAFETY: the rows and the result are separate vectors of equal length. Their elements have
        // the type `dtype`.
        unsafe { reduce_rows((reduce, dtype), &pointers, &[target], result.len()) };
        result
    }

    #[test]
    fn sums_are_in_the_order_of_the_ranks() {
        // Only the sum from left to right is 2.
        let rows: Vec<Vec<f32>> = [1e8, -1e8, 1.0, 1.0].map(|own| vec![own; 3000]).into();
        assert_eq!(reduced(Reduce::Sum, DType::F32, &rows), vec![2.0; 3000]);
        assert_eq!(reduced(Reduce::Mean, DType::F32, &rows), vec![0.5; 3000]);
    }

    #[test]
    fn narrow_floats_are_rounded_once() {
        let rows: Vec<Vec<f16>> = [2048.0, 1.0, 1.0]
            .map(|own| vec![f16::from_f32(own)])
            .into();
        let sum = reduced(Reduce::Sum, DType::F16, &rows);
        assert_eq!(
            sum,
            [f16::from_f32(2050.0)],
            "one after the other, it were 2048"
        );
    }

    #[test]
    fn the_largest_and_the_smallest() {
        let rows = [vec![1.0_f64, f64::NAN, 3.0], vec![2.0, 0.0, f64::NAN]];
        let max = reduced(Reduce::Max, DType::F64, &rows);
        assert_eq!(max[0], 2.0);
        assert!(max[1].is_nan() && max[2].is_nan());
        let rows = [vec![-3_i8, 7], vec![5, -128]];
        assert_eq!(reduced(Reduce::Min, DType::I8, &rows), [-3, -128]);
        assert_eq!(reduced(Reduce::Sum, DType::I8, &rows), [2, -121]);
        let rows = [vec![true, false], vec![true, true]];
        assert_eq!(reduced(Reduce::Max, DType::Bool, &rows), [true, true]);
        assert_eq!(reduced(Reduce::Min, DType::Bool, &rows), [true, false]);
    }
}
