//! Other crates' arrays.
