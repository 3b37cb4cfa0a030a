//! The order of sorts, and the place of a value among sorted ones.

/// The order of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest value first.
    Ascending,
    /// Largest value first.
    Descending,
}

/// The side of equal elements that a value is inserted at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before all equal elements.
    Left,
    /// After all equal elements.
    Right,
}
