//! The blocked evaluator: a program of precompiled loops, run over blocks of elements that stay in
//! the first-level cache.
//!
//! A formula becomes a list of steps, one for each of its terms. An operand that stands in memory
//! one element after another is read where it stands, and every other one is gathered; a function
//! reads the blocks of its operands and writes its own to a register, which is a part of the room
//! that each thread has. All of it is compiled with the library, none for an expression.

mod blocks;
mod loops;
mod program;
mod reader;
mod room;
mod tile;
mod view;
mod widened;

pub(super) use blocks::{Blocks, Readable};
pub use loops::{Arguments, BlockLoop, Loops, block_loop};
pub(crate) use loops::{Table, loop_of, table};
pub(crate) use program::Program;
pub(super) use view::coordinates;

/// The elements of a block: 4 KiB of `f32`, so that the blocks of several terms fit the first-level
/// cache together, and so many that what a step takes beside its loop counts for little.
pub(crate) const BLOCK: usize = 1024;

/// The lines that are worked on side by side, at most.
pub(crate) const RUN: usize = 256;
