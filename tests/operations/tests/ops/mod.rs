//! Operations on arrays, compared with naive implementations and with ndarray.

mod accuracy;
mod assign;
mod biases;
mod casts;
mod convolutions;
mod elementwise;
mod expressions;
mod matmul;
mod reductions;
mod scans;
mod statistics;
mod threads;
mod unrounded;
mod user_functions;
