//! Linear algebra: products of matrices, and what is made of them.

pub(in crate::ops) mod einsum;
pub(in crate::ops) mod kron;
#[cfg(feature = "linalg")]
pub(crate) mod linalg;
pub(in crate::ops) mod products;
