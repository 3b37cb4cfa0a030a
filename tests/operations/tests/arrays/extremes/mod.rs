//! Extreme lengths, steps, counts and numbers. Every operation returns the shape that NumPy
//! returns, or the error of its contract. No computation overflows.
//!
//! The expected shapes are computed in integers of twice the width.

mod copies;
mod made;
mod products;
mod reductions;
mod views;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cachescope::ndarray::SliceInfoElem;
use cachescope::{Array, DeviceConfig, Element, ErrorKind, Numeric, Result};
use under_test::device_with;

const MAX: usize = isize::MAX as usize;

/// The memory limit of the device in these tests. It suffices for every small result.
const LIMIT_BYTES: u128 = 64 << 20;

/// Shapes without elements whose nonzero lengths have the largest permitted product, and a few
/// shapes with elements.
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

/// The expected outcome of an operation.
#[derive(Debug)]
enum Expected {
    /// An array of this shape. The outcome is `InvalidShape` if no array can have the shape, and
    /// `OutOfMemory` if the device has too little memory.
    Shape(Vec<u128>),
    /// A view of this shape, which uses no memory. If no array can have the shape, the outcome is
    /// `InvalidShape`.
    View(Vec<u128>),
    /// Any outcome except a panic.
    Anything,
    Refused(ErrorKind),
}

use Expected::{Anything, Refused, Shape, View};

const ARGUMENT: Expected = Refused(ErrorKind::InvalidArgument);
const MISMATCH: Expected = Refused(ErrorKind::ShapeMismatch);

/// Returns the shape in `u128`, the type of expected shapes.
fn wide(shape: &[usize]) -> Vec<u128> {
    shape.iter().map(|&length| length as u128).collect()
}

/// Returns the shape with the length of `axis` replaced.
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

/// Returns the bytes of an array of this shape, or `None` if no array may have the shape.
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

/// The unexpected outcomes, each with its call.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    /// Compares the outcome of a call with the expected outcome.
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
                // If rounding up to an allocation's size overflows, the kind is also
                // `InvalidShape`.
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

    /// Checks that a call does not panic.
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

/// Runs `f` with a device of little memory as the current device.
fn on_small_device(f: impl FnOnce() -> Result<()>) -> Result<()> {
    let device = device_with(DeviceConfig {
        memory_limit: Some(LIMIT_BYTES as u64),
        ..Default::default()
    })?;
    let _guard = device.enter();
    f()
}

/// Runs `check` with each of the [`arrays`], and asserts that there were no failures.
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

/// Returns arrays of all shapes, and views of these arrays with extreme strides.
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

/// Returns a slice of the array, with this step along `axis`.
fn stepping<T: Element>(array: &Array<T>, axis: usize, step: isize) -> Result<Array<T>> {
    let mut parts = vec![SliceInfoElem::from(..); array.ndim()];
    parts[axis] = SliceInfoElem::Slice {
        start: 0,
        end: None,
        step,
    };
    array.slice(parts)
}
