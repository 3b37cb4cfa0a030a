//! Tiles, in which operands are read whose elements stand close along another axis than the last.
//!
//! A row of a transposed matrix takes one element of each line of memory, and the next row the next
//! one; before the lines are used up, the cache has lost them. So several rows are gathered at
//! once, a few columns of each, and then served from there row by row.

use std::mem::MaybeUninit;

use crate::array::Layout;

/// The size of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Of `f32` a line of memory in one direction, and enough in the other to make a run worth its
/// while.
pub(super) const TILE: Tile = Tile {
    rows: 16,
    columns: 64,
};

/// So many elements from the first to the last of a row stay in the first-level cache.
const NEAR: usize = 1 << 13;

impl Tile {
    pub(super) const fn elements(self) -> usize {
        self.rows * self.columns
    }
}

/// The rows of a matrix, or of each of many that follow one another: by their length and their
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) length: usize,
    pub(super) count: usize,
}

impl Rows {
    /// The rows of `layout`, if elements stand closer together across them than along them, there
    /// are enough for a tile, and the lines of a row are more than stay in the cache anyway.
    #[inline]
    pub(super) fn transposed(layout: &Layout) -> Option<Self> {
        let [.., count, length] = *layout.dims() else {
            return None;
        };
        let [.., across, along] = *layout.strides() else {
            return None;
        };
        let transposed = across != 0 && across.unsigned_abs() < along.unsigned_abs();
        let fits = count >= TILE.rows && length >= TILE.rows;
        let far = along.unsigned_abs().saturating_mul(length) > NEAR;
        (transposed && fits && far).then_some(Self { length, count })
    }
}

/// Some columns of some rows that follow one another: at most a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The rows that it is of.
    pub(super) rows: Rows,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// What of a tile is yet to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    // The number of the next row's first element.
    next: usize,
    step: usize,
    served: usize,
    height: usize,
    width: usize,
}

impl Open {
    pub(super) const NONE: Self = Self {
        next: 0,
        step: 0,
        served: 0,
        height: 0,
        width: 0,
    };

    pub(super) fn new(start: usize, part: Part) -> Self {
        Self {
            next: start,
            step: part.rows.length,
            served: 0,
            height: part.height,
            width: part.width,
        }
    }

    /// Where in the tile the `count` elements from number `start` on stand, if they are its next
    /// row.
    #[inline]
    pub(super) fn row_at(&mut self, start: usize, count: usize) -> Option<usize> {
        if self.served == self.height || start != self.next || count != self.width {
            return None;
        }
        let row = self.served * TILE.columns;
        self.served += 1;
        self.next += self.step;
        Some(row)
    }
}

/// Copies the elements of `part`, whose first one stands at `first`, to `tile`, each row to a place
/// of its own.
///
/// # Safety
///
/// What the last two axes of `layout` reach from `first` within the part must be readable, alive
/// and not written to.
pub(super) unsafe fn gather_tile<T: Copy>(
    first: *const T,
    layout: &Layout,
    part: Part,
    tile: &mut [MaybeUninit<T>; TILE.elements()],
) {
    let [.., across, along] = *layout.strides() else {
        unreachable!("a tile of fewer than two axes");
    };
    assert!(part.height <= TILE.rows && part.width <= TILE.columns);
    for column in 0..part.width {
        let top = first.wrapping_offset(column as isize * along);
        for row in 0..part.height {
            let from = top.wrapping_offset(row as isize * across);
            // SAFETY: by this function's contract.
            tile[row * TILE.columns + column].write(unsafe { from.read() });
        }
    }
}
