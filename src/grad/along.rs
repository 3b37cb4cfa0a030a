//! The direction of `jvp` and `hvp`. Factorizations in the differentiated function read it.

use super::parameters::{Parameters, ZipArrays};
use super::tape::Tape;
use crate::array::{AnyArray, Array, Float};
use crate::error::Result;
use crate::ops::derivatives::{DirectionGuard, constant};

/// Sets the direction of a directional derivative, until the guard drops. If the structures of
/// `vector` and the parameters differ, sets no direction. If only the shapes of two arrays differ,
/// skips these arrays. The caller itself checks both, after it has called the differentiated
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
