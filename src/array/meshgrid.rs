//! Vectors as the coordinates of a grid.

use super::{AnyElement, Array, Shape};
use crate::error::{Error, ErrorKind, Result};

/// Returns one view for each vector. For vectors of `l`, `m`, … elements, each view has the shape
/// `[l, m, …]`. At the index `[a, b, …]`, the first view has the element `a` of the first vector.
/// The second view has the element `b` of the second vector, and so on. This is NumPy's `meshgrid`
/// with `indexing="ij"`.
///
/// Each view shares the memory of its vector, and broadcasts along the axes of the other vectors.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, meshgrid};
///
/// let (rows, columns) = (Array::arange(0, 2, 1)?, Array::arange(10, 13, 1)?);
/// let grid = meshgrid(&[&rows, &columns])?;
/// assert_eq!(grid[0].to_vec()?, [0, 0, 0, 1, 1, 1]);
/// assert_eq!(grid[1].to_vec()?, [10, 11, 12, 10, 11, 12]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if an array is not a vector.
/// [`InvalidShape`](ErrorKind::InvalidShape) if there are more than 8 vectors, or if the grid's
/// size overflows.
#[track_caller]
pub fn meshgrid<T: AnyElement>(vectors: &[&Array<T>]) -> Result<Vec<Array<T>>> {
    for (number, vector) in vectors.iter().enumerate() {
        if vector.ndim() != 1 {
            let text = format!(
                "meshgrid: array {number} has the shape {}, expected a vector",
                vector.layout().shape()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
    }
    let shape: Shape = vectors.iter().map(|vector| vector.len()).collect();
    if let Err(error) = shape.size_bytes(size_of::<T>()) {
        return Err(error.of("meshgrid"));
    }
    let mut grid = Vec::with_capacity(vectors.len());
    for (axis, vector) in vectors.iter().enumerate() {
        let mut layout = *vector.layout();
        for _ in axis + 1..vectors.len() {
            layout = layout.unsqueeze(-1)?;
        }
        grid.push(vector.view(layout.broadcast_to(&shape)?));
    }
    Ok(grid)
}
