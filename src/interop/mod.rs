//! Other crates' arrays.

mod ndarray;
