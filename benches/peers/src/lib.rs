//! Benchmarks that compare `cachescope` with other libraries: the allocators, and their timing.

pub mod arrays;
pub mod line_up;
pub mod peers;
pub mod placers;
pub mod program;
pub mod race;
pub mod training;
