//! Linear algebra: products of arrays, `einsum` and factorizations.

pub(in crate::ops) mod einsum;
pub(in crate::ops) mod kron;
#[cfg(feature = "linalg")]
pub(crate) mod linalg;
pub(in crate::ops) mod products;
