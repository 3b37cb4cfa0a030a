//! Groups of ranks: what they compute, how they fail, and the memory that they use.

mod bodies;
mod calls;
mod failures;
mod memory;
mod training;
