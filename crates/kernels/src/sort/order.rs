//! The order of sorts, and the insertion position of a value among sorted values.

/// The order of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending order, with the smallest value first.
    Ascending,
    /// Descending order, with the largest value first.
    Descending,
}

/// The side of equal elements at which a value is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before all equal elements.
    Left,
    /// After all equal elements.
    Right,
}
