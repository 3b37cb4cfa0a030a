//! Memory that a factorization needs on the way, and the threads that it may use.

use faer::Par;
use faer::dyn_stack::{MemBuffer, StackReq};

use crate::{Failure, Outcome};

/// Returns memory of that size, or an error: a lack of memory is not a reason to end the program.
pub(crate) fn workspace(needed: StackReq) -> Outcome<MemBuffer> {
    MemBuffer::try_new(needed).map_err(|_| Failure::OutOfMemory)
}

/// Returns `count` elements, all of them `value`.
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

/// Elements along each side of a tile.
const TILE: usize = 16;

/// Writes the rows of a matrix of which `columns` are the columns, `height` elements each. faer is
/// several times as fast where it writes columns.
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
