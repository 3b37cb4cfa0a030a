//! The sizes of blocks of elements.

/// The number of elements of a block: 4 KiB of `f32`. So the blocks of several nodes fit the
/// first-level cache together. A step's overhead beside its loop is small.
pub const BLOCK: usize = 1024;

/// The maximum number of lines that are processed side by side.
pub const RUN: usize = 256;
