//! The sizes of blocks of elements.

/// The number of elements of a block: 4 KiB of `f32`. The blocks of several nodes together fit into
/// the first-level cache. The overhead of a block is small compared to its loop.
pub const BLOCK: usize = 1024;

/// The maximum number of lanes that are processed side by side.
pub const RUN: usize = 256;
