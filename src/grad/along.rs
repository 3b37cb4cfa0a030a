//! The direction of a product of derivatives, which factorizations in the differentiated function
//! read.

use super::parameters::{Parameters, ZipArrays};
use super::tape::Tape;
use crate::array::{AnyArray, Array, Float};
use crate::error::Result;
use crate::ops::derivatives::{DirectionGuard, constant};

/// Sets the direction of a product of derivatives, until the guard drops. If `vector` does not fit
/// the parameters, sets no direction. The caller then returns the error after the call of the
/// function.
pub(super) fn begin<P: Parameters>(
    parameters: &mut P,
    vector: &P,
    tape: &Tape,
) -> Option<DirectionGuard> {
    let mut along = Along {
        variables: tape.variables.iter(),
        changes: Vec::new(),
    };
    parameters.zip_arrays(vector, &mut along).ok()?;
    Some(DirectionGuard::begin(tape.first_step, along.changes))
}

/// Traversal that collects the change of each variable, with the variable's number.
struct Along<'a> {
    variables: std::slice::Iter<'a, u32>,
    changes: Vec<(u32, AnyArray)>,
}

impl ZipArrays for Along<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, vector: &Array<T>) -> Result<()> {
        let variable = self.variables.next();
        if let Some(&variable) = variable
            && own.shape() == vector.shape()
        {
            let change = AnyArray::of(&constant(vector));
            self.changes.push((variable, change));
        }
        Ok(())
    }
}
