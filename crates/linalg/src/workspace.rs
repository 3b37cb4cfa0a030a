//! The workspace of factorizations, and the threads that they may use.

use faer::Par;
use faer::dyn_stack::{MemBuffer, StackReq};

use crate::{Failure, Outcome};

/// Allocates the workspace. If the allocation fails, returns an error, so that the program
/// continues.
pub(crate) fn workspace(needed: StackReq) -> Outcome<MemBuffer> {
    MemBuffer::try_new(needed).map_err(|_| Failure::OutOfMemory)
}

/// Returns `count` elements with the value `value`. If the allocation fails, returns an error.
pub(crate) fn buffer<T: Clone>(count: usize, value: T) -> Outcome<Vec<T>> {
    let mut buffer = Vec::new();
    if buffer.try_reserve_exact(count).is_err() {
        return Err(Failure::OutOfMemory);
    }
    buffer.resize(count, value);
    Ok(buffer)
}

/// Returns faer's setting for `threads` threads of rayon's current pool.
pub(crate) fn parallel(threads: usize) -> Par {
    match threads {
        0 | 1 => Par::Seq,
        _ => Par::rayon(threads),
    }
}

/// The number of elements along each side of a tile.
const TILE: usize = 16;

/// Writes the rows of a matrix to `rows`. `columns` are the columns of the matrix, of `height`
/// elements each. The caller lets faer write `columns`, because faer writes columns several times
/// faster than rows.
pub(crate) fn to_rows<T: Copy>(columns: &[T], rows: &mut [T], height: usize) {
    let width = rows.len() / height.max(1);
    for top in (0..height).step_by(TILE) {
        for left in (0..width).step_by(TILE) {
            let right = width.min(left + TILE);
            for row in top..height.min(top + TILE) {
                let out = &mut rows[row * width + left..row * width + right];
                for (column, slot) in (left..right).zip(out) {
                    *slot = columns[column * height + row];
                }
            }
        }
    }
}
