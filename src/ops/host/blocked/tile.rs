//! Tiles for operands whose elements are closer in memory along another axis than along the last
//! axis.
//!
//! A row of a transposed matrix uses one element of each cache line. The next row uses the next
//! element of each line. Before all elements of a line are used, the cache has evicted the line. So
//! a few columns of several rows are gathered at once, and then read from the tile row by row.

use crate::array::Walk;
pub(super) use cachescope_kernels::moves::views::TILE;

/// The maximum span of a row whose cache lines stay in the first-level cache. The span is the
/// distance in memory from the first element to the last, in elements.
const NEAR: usize = 1 << 13;

/// The rows of a matrix, or of each of many consecutive matrices: their length and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileRows {
    pub(super) length: usize,
    pub(super) count: usize,
}

impl TileRows {
    /// Returns the rows of `walk` if tiles are faster. Tiles are faster under three conditions.
    /// Elements are closer together across rows than along rows. There are enough rows and columns
    /// for a tile. A row is too long for its cache lines to stay in the cache.
    #[inline]
    pub(super) fn transposed(walk: &Walk<1>) -> Option<Self> {
        let (count, [across]) = walk.axes().rev().nth(1)?;
        let (length, [along]) = walk.row();
        let transposed = across != 0 && across.unsigned_abs() < along.unsigned_abs();
        let fits = count >= TILE.rows && length >= TILE.rows;
        let far = along.unsigned_abs().saturating_mul(length) > NEAR;
        (transposed && fits && far).then_some(Self { length, count })
    }
}

/// Some columns of some consecutive rows: at most a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct TilePart {
    /// The rows that the part belongs to.
    pub(super) rows: TileRows,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The record of the contents of a view's scratch memory: unread rows of a tile, or one repeated
/// element.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenTile {
    // The index of the next row's first element.
    next: usize,
    step: usize,
    served: usize,
    height: usize,
    width: usize,
    // The memory index of the repeated element, and the number of its repetitions.
    repeated: (usize, usize),
}

impl OpenTile {
    pub(super) const NONE: Self = Self {
        next: 0,
        step: 0,
        served: 0,
        height: 0,
        width: 0,
        repeated: (0, 0),
    };

    pub(super) fn new(start: usize, part: TilePart) -> Self {
        Self {
            next: start,
            step: part.rows.length,
            served: 0,
            height: part.height,
            width: part.width,
            ..Self::NONE
        }
    }

    /// Returns the record of `count` repetitions of the element at the memory index `at`.
    pub(super) fn repeating(at: usize, count: usize) -> Self {
        Self {
            repeated: (at, count),
            ..Self::NONE
        }
    }

    /// Returns whether the scratch memory has at least `count` repetitions of the element at `at`.
    #[inline]
    pub(super) fn repeats(&self, at: usize, count: usize) -> bool {
        self.repeated.0 == at && self.repeated.1 >= count
    }

    /// Returns the position in the tile of the `count` elements from the element `start` on.
    /// Returns `None` if these elements are not the tile's next row.
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
