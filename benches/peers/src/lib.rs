//! Benchmarks of `cachescope` beside other allocators: who they are, and how they are timed.

pub mod arrays;
pub mod line_up;
pub mod peers;
pub mod placers;
pub mod program;
pub mod race;
pub mod training;
