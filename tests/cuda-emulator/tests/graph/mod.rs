//! Tests of captured graphs.

mod basics;
mod libraries;
mod model;
mod parallel;
mod slabs;
mod training;
mod transforms;
