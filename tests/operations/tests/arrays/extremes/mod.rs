//! Extreme lengths, steps, counts and numbers: every operation gives the shape that NumPy would, or
//! the error that the contract names, and computes with them without overflowing.
//!
//! What is expected is computed here with numbers of twice the width.

mod copies;
mod folds;
mod made;
mod products;
mod views;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cachescope::ndarray::SliceInfoElem;
use cachescope::{Array, DeviceConfig, Element, ErrorKind, Numeric, Result};

use crate::under_test::device_with;

const MAX: usize = isize::MAX as usize;

/// What the device of these tests may reserve: enough for every result that is small.
const LIMIT_BYTES: u128 = 64 << 20;

/// Arrays of no elements whose other lengths multiply to what just fits, and a few of some
/// elements.
const SHAPES: &[&[usize]] = &[
    &[],
    &[0],
    &[1],
    &[3],
    &[2, 3],
    &[0, 0],
    &[0, 1],
    &[2, 0],
    &[0, MAX],
    &[MAX, 0],
    &[0, 1 << 40],
    &[1 << 40, 0],
    &[1, 0, MAX],
    &[MAX, 1, 0],
    &[0, 1 << 31, 1 << 31],
    &[1 << 31, 0, 1 << 31],
    &[1 << 31, 1 << 31, 0],
    &[3, 0, MAX / 3],
    &[0, 7, MAX / 7],
    &[2, 2, 0, 1 << 20, 1 << 20, 1 << 20],
    &[0; 8],
    &[1 << 31, 0, 0, 1, 1, 1, 1, 1 << 31],
];

const COUNTS: &[usize] = &[0, 1, 2, 1 << 32, MAX / 2, MAX, MAX + 1, usize::MAX];

const NUMBERS: &[isize] = &[
    0,
    1,
    -1,
    2,
    3,
    -7,
    1 << 40,
    -(1 << 40),
    isize::MAX / 2,
    isize::MAX,
    -isize::MAX,
    isize::MIN,
];

/// What an operation must answer.
#[derive(Debug)]
enum Expected {
    /// An array of these lengths, or `InvalidShape` where no array can have them, or `OutOfMemory`
    /// where the device cannot.
    Shape(Vec<u128>),
    /// The same for a view, which takes no memory.
    View(Vec<u128>),
    /// Only that it does not panic.
    Anything,
    Refused(ErrorKind),
}

use Expected::{Anything, Refused, Shape, View};

const ARGUMENT: Expected = Refused(ErrorKind::InvalidArgument);
const MISMATCH: Expected = Refused(ErrorKind::ShapeMismatch);

/// The lengths as the expected ones are computed with.
fn wide(shape: &[usize]) -> Vec<u128> {
    shape.iter().map(|&length| length as u128).collect()
}

/// The lengths with another one in the place of that of `axis`.
fn with(shape: &[usize], axis: usize, length: u128) -> Vec<u128> {
    let mut shape = wide(shape);
    shape[axis] = length;
    shape
}

fn without(shape: &[usize], axis: usize) -> Vec<u128> {
    let mut shape = wide(shape);
    shape.remove(axis);
    shape
}

/// Whether an array of elements of so many bytes may have these lengths, and how many bytes it
/// takes.
fn size_bytes(shape: &[u128], element_bytes: usize) -> Option<u128> {
    let most = MAX as u128;
    let mut lengths = shape.iter().filter(|&&length| length > 0);
    let spanned = lengths.try_fold(1u128, |product, &length| product.checked_mul(length))?;
    if spanned > most || shape.len() > 8 {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    Some(spanned * element_bytes as u128).filter(|&bytes| bytes <= most)
}

/// The outcomes that were not as expected, each with the call.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    /// Holds the outcome of a call against what is expected of it.
    fn expect<T: Element>(
        &mut self,
        call: impl Debug,
        expected: Expected,
        run: impl FnOnce() -> Result<Array<T>>,
    ) {
        let shape = || run().map(|array| array.shape().to_vec());
        let found = catch_unwind(AssertUnwindSafe(shape));
        let bytes = size_of::<T>();
        let is_right = match (&found, &expected) {
            (Err(_), _) => false,
            (Ok(_), Anything) => true,
            (Ok(Err(error)), Refused(kind)) => error.kind() == *kind,
            (Ok(Ok(_)), Refused(_)) => false,
            (Ok(found), Shape(shape) | View(shape)) => match (size_bytes(shape, bytes), found) {
                (None, found) => found
                    .as_ref()
                    .is_err_and(|error| error.kind() == ErrorKind::InvalidShape),
                // Where rounding up overflows, the kind is that of what overflows by itself.
                (Some(bytes), Err(error)) => {
                    let is_long = bytes > MAX as u128 - (1 << 30);
                    let is_overflow = is_long && error.kind() == ErrorKind::InvalidShape;
                    matches!(expected, Shape(_))
                        && bytes > LIMIT_BYTES / 2
                        && (error.is_out_of_memory() || is_overflow)
                }
                (Some(_), Ok(found)) => wide(found) == *shape,
            },
        };
        if !is_right {
            let found = match found {
                Ok(found) => format!("{found:?}"),
                Err(_) => "a panic".into(),
            };
            self.0
                .push(format!("{call:?}: {found}, expected {expected:?}"));
        }
    }

    /// Holds that a call does not panic.
    fn survives<R>(&mut self, call: impl Debug, run: impl FnOnce() -> R) {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.0.push(format!("{call:?}: a panic"));
        }
    }

    #[track_caller]
    fn none(self) {
        let count = self.0.len();
        assert!(self.0.is_empty(), "{count} calls:\n{}", self.0.join("\n"));
    }
}

/// `f` with a device that has little memory.
fn on_small_device(f: impl FnOnce() -> Result<()>) -> Result<()> {
    let device = device_with(DeviceConfig {
        memory_limit: Some(LIMIT_BYTES as u64),
        ..Default::default()
    })?;
    let _guard = device.enter();
    f()
}

/// Holds that what `check` does with each of the [`arrays`] is as expected.
#[track_caller]
fn each_array<T: Numeric>(check: impl Fn(&mut Failures, &Array<T>) -> Result<()>) -> Result<()> {
    let mut failures = Failures::default();
    on_small_device(|| {
        let arrays = arrays::<T>()?;
        arrays
            .iter()
            .try_for_each(|array| check(&mut failures, array))
    })?;
    failures.none();
    Ok(())
}

/// The arrays of all shapes, and some views of them whose steps are extreme.
fn arrays<T: Numeric>() -> Result<Vec<Array<T>>> {
    let mut arrays = Vec::new();
    for &shape in SHAPES {
        let array = Array::<T>::ones(shape)?;
        arrays.push(array.transpose()?);
        for axis in 0..shape.len() {
            arrays.push(array.flip(axis as isize)?);
            for step in [2, -3, 1 << 40, -(1 << 40), isize::MAX, isize::MIN] {
                let array = stepping(&array, axis, step)?;
                arrays.push(array.flip(axis as isize)?);
                arrays.push(array);
            }
        }
        arrays.push(array);
        let one = vec![1; shape.len()];
        arrays.push(Array::<T>::ones(one)?.broadcast_to(shape)?);
        let none: Vec<usize> = shape.iter().map(|&length| length.min(1)).collect();
        arrays.push(Array::<T>::ones(none)?.broadcast_to(shape)?);
    }
    Ok(arrays)
}

/// Every element of an axis at that step.
fn stepping<T: Element>(array: &Array<T>, axis: usize, step: isize) -> Result<Array<T>> {
    let mut parts = vec![SliceInfoElem::from(..); array.ndim()];
    parts[axis] = SliceInfoElem::Slice {
        start: 0,
        end: None,
        step,
    };
    array.slice(parts)
}
