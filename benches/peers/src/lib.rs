//! Benchmarks of `cachescope` beside other allocators: who they are, and how they are timed.

pub mod peers;
pub mod race;
