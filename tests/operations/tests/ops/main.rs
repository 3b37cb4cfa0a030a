//! Operations on arrays, against naive oracles and ndarray.

#[macro_use]
#[path = "../../../../src/functions.rs"]
mod functions;

mod accuracy;
mod assign;
mod casts;
mod elementwise;
mod expressions;
mod matmul;
mod reductions;
mod scans;
mod statistics;
mod strided;
mod threads;
#[path = "../../../under_test/mod.rs"]
mod under_test;
mod user_functions;
