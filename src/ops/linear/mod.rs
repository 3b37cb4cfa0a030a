//! Linear algebra: products of matrices, and functions that are composed of them.

pub(in crate::ops) mod einsum;
pub(in crate::ops) mod kron;
#[cfg(feature = "linalg")]
pub(crate) mod linalg;
pub(in crate::ops) mod products;
