//! Comparison of two arrays of one shape, exactly or up to a tolerance.

use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::walk::Walk;
use crate::{AnyElement, DType, Float};

/// The number of pairs between two checks for a pair that differs. Between two checks there is no
/// branch, so the compiler makes vector code.
const CHUNK: usize = 128;

/// A function that returns whether the elements of each pair are equal. The walk determines the
/// addresses of the pairs. The elements must be of type [`EqualLoops::element`], and readable.
pub type EqualLoop = unsafe fn([*const u8; 2], &Walk<2>) -> bool;

/// A function that returns whether the elements of each pair are within a tolerance. The walk
/// determines the addresses of the pairs. The elements must be of type [`CloseLoops::element`], and
/// readable.
pub type CloseLoop = unsafe fn([*const u8; 2], &Walk<2>, Tolerance) -> bool;

/// The loop that compares elements of one type.
#[derive(Debug)]
pub struct EqualLoops {
    /// The type of the elements.
    pub element: DType,
    /// The loop.
    pub equal: EqualLoop,
}

/// The loop that compares elements of one floating-point type up to a tolerance.
#[derive(Debug)]
pub struct CloseLoops {
    /// The type of the elements.
    pub element: DType,
    /// The loop.
    pub close: CloseLoop,
}

/// The largest difference between the elements of a pair. Equal elements are within each tolerance.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// An absolute difference.
    Absolute(f64),
    /// An absolute difference, or a difference relative to the larger element of the pair. An
    /// infinite difference is above each tolerance.
    Relative(f64, f64),
    /// An absolute difference, or a number of steps from a value of the type to the next. An
    /// infinite difference is above each tolerance.
    Ulps(f64, u32),
}

static EQUAL: [EqualLoops; COMPILED_TYPES] = [EqualLoops::of::<f32>(), EqualLoops::of::<f64>()];
static CLOSE: [CloseLoops; COMPILED_TYPES] = [CloseLoops::of::<f32>(), CloseLoops::of::<f64>()];

/// Returns the loop that compares elements of `T`.
pub const fn equal_loops_of<T: AnyElement>() -> &'static EqualLoops {
    compiled_or!(T, EQUAL, EqualLoops::of::<T>())
}

/// Returns the loop that compares elements of `T` up to a tolerance.
pub const fn close_loops_of<T: Float>() -> &'static CloseLoops {
    compiled_or!(T, CLOSE, CloseLoops::of::<T>())
}

impl EqualLoops {
    const fn of<T: AnyElement>() -> Self {
        Self {
            element: T::DTYPE,
            equal: equal::<T>,
        }
    }
}

impl CloseLoops {
    const fn of<T: Float>() -> Self {
        Self {
            element: T::DTYPE,
            close: close::<T>,
        }
    }
}

/// # Safety
///
/// As for an [`EqualLoop`].
unsafe fn equal<T: AnyElement>(operands: [*const u8; 2], walk: &Walk<2>) -> bool {
    // SAFETY: by this function's contract.
    unsafe { all_pairs::<T>(operands, walk, |left, right| left == right) }
}

/// # Safety
///
/// As for a [`CloseLoop`].
unsafe fn close<T: Float>(operands: [*const u8; 2], walk: &Walk<2>, tolerance: Tolerance) -> bool {
    let numbers = |left: T, right: T| (left.to_f64(), right.to_f64());
    let apart = |left: T, right: T| (left.to_f64() - right.to_f64()).abs();
    // SAFETY: by this function's contract, for each tolerance.
    unsafe {
        match tolerance {
            Tolerance::Absolute(epsilon) => all_pairs(operands, walk, |left: T, right| {
                (left == right) | (apart(left, right) <= epsilon)
            }),
            Tolerance::Relative(epsilon, share) => all_pairs(operands, walk, |left: T, right| {
                let (distance, (one, other)) = (apart(left, right), numbers(left, right));
                let is_close =
                    distance <= epsilon || distance <= one.abs().max(other.abs()) * share;
                left == right || distance.is_finite() && is_close
            }),
            Tolerance::Ulps(epsilon, steps) => all_pairs(operands, walk, |left: T, right| {
                let distance = apart(left, right);
                let is_near = left.ordinal().abs_diff(right.ordinal()) <= u64::from(steps);
                left == right || distance.is_finite() && (distance <= epsilon || is_near)
            }),
        }
    }
}

/// Returns whether `is_same` is true for all pairs.
///
/// # Safety
///
/// The walk's elements of both operands must be readable, and of `T`.
#[inline(always)]
unsafe fn all_pairs<T: AnyElement>(
    operands: [*const u8; 2],
    walk: &Walk<2>,
    is_same: impl Fn(T, T) -> bool,
) -> bool {
    let [left, right] = operands.map(<*const u8>::cast::<T::Raw>);
    let (_, strides) = walk.row();
    let mut runs = walk.runs(0..walk.count());
    runs.all(|([left_first, right_first], count)| {
        let (left, right) = (
            left.wrapping_add(left_first),
            right.wrapping_add(right_first),
        );
        let pair = |number: usize, [left_stride, right_stride]: [isize; 2]| {
            let left = left.wrapping_offset(number as isize * left_stride);
            let right = right.wrapping_offset(number as isize * right_stride);
            // SAFETY: by this function's contract, the walk has this pair. Every bit pattern is a
            // valid `Raw`.
            let (left, right) = unsafe { (left.read(), right.read()) };
            is_same(T::from_raw(left), T::from_raw(right))
        };
        (0..count).step_by(CHUNK).all(|first| {
            let chunk = first..count.min(first + CHUNK);
            match strides {
                [1, 1] => chunk.fold(true, |all, number| all & pair(number, [1, 1])),
                _ => chunk.fold(true, |all, number| all & pair(number, strides)),
            }
        })
    })
}
