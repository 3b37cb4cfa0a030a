//! The status that a device reports for each matrix, and its conversion to an error.

use super::batch_of;
use crate::array::{Array, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::descriptors::OUT_OF_MEMORY;

/// The meaning of the status of an incomplete factorization.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// A pivot is zero. The status is the index of the pivot, counted from 1.
    Singular,
    /// The status is not an error, unless it is [`OUT_OF_MEMORY`].
    Nothing,
    /// The status is the order of the leading minor that is not positive.
    NotPositiveDefinite,
    /// An iteration did not converge.
    NotConverged,
}

/// Waits for the statuses of the matrices of `shape`. Returns an error for the first status that is
/// not 0.
#[track_caller]
pub(super) fn check(
    operation: &str,
    status: &Array<i32>,
    shape: &Shape,
    meaning: Meaning,
) -> Result<()> {
    let codes = status.to_vec()?;
    let Some(number) = codes.iter().position(|&code| code != 0) else {
        return Ok(());
    };
    let (code, matrix) = (codes[number], name(shape, number));
    if code == OUT_OF_MEMORY {
        let text = format!("{operation}: the host has no memory for the workspace of {matrix}");
        return Err(Error::new(ErrorKind::OutOfMemory, text));
    }
    let is = match meaning {
        Meaning::Singular => {
            let pivot = code - 1;
            format!("is singular: U[{pivot}, {pivot}] of its LU factorization is exactly zero")
        }
        Meaning::Nothing => return Ok(()),
        Meaning::NotPositiveDefinite => {
            format!("is not positive definite: its leading minor of order {code} is not positive")
        }
        Meaning::NotConverged => {
            "has elements that are not finite, or the iteration did not converge".to_owned()
        }
    };
    let text = format!("{operation}: {matrix} {is}");
    Err(Error::new(ErrorCode::Matrix, text))
}

fn name(shape: &Shape, number: usize) -> String {
    let batch = batch_of(shape);
    if batch.is_empty() {
        return format!("the matrix of shape {shape}");
    }
    let mut rest = number;
    let mut index: Vec<usize> = (batch.iter().rev())
        .map(|&length| {
            let place = rest % length;
            rest /= length;
            place
        })
        .collect();
    index.reverse();
    format!("the matrix at {index:?} of the array of shape {shape}")
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_matrix_is_named_by_its_place() {
        assert_eq!(name(&[3, 3].into(), 0), "the matrix of shape [3, 3]");
        let of_many = name(&[2, 3, 4, 4].into(), 5);
        assert_eq!(
            of_many,
            "the matrix at [1, 2] of the array of shape [2, 3, 4, 4]"
        );
    }
}
