//! Captured graphs: their effects, the memory they keep, their order with other work, and the calls
//! that a capture refuses.

mod basics;
mod libraries;
mod model;
mod parallel;
mod slabs;
mod training;
mod transforms;
