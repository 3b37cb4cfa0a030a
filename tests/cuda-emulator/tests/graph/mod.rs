//! Captured graphs: what they do, what they keep and are ordered with, and what is refused inside.

mod basics;
mod model;
mod parallel;
mod slabs;
mod training;
mod transforms;
