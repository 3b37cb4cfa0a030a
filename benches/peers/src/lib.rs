//! Shared code of the benchmarks that compare `cachescope` with other libraries: allocators,
//! programs and timing.

pub mod arrays;
pub mod line_up;
pub mod peers;
pub mod placers;
pub mod program;
pub mod race;
pub mod training;
