//! The blocked evaluator: a program of precompiled loops, run over blocks of elements that stay in
//! the first-level cache.
//!
//! An expression graph becomes a list of steps, one for each of its nodes. If the elements of an
//! operand are consecutive in memory, they are read in place. Otherwise, the elements of the
//! operand are gathered. A function reads the blocks of its operands and writes its own block to a
//! register. A register is a part of the thread's scratch memory. The code of the evaluator is
//! compiled with the library, and not for each expression.

mod blocks;
mod program;
mod reader;
mod scratch;
mod tile;
mod view;

pub(super) use blocks::{BlockSource, Blocks, Consecutive, Readable};
pub(crate) use program::BlockProgram;
pub(in crate::ops) use program::OperandBlocks;
pub(super) use reader::repeat;

pub(crate) use cachescope_kernels::blocks::{BLOCK, RUN};
