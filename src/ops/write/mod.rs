//! Evaluation of expressions into new arrays, and over the elements of existing arrays.

pub(in crate::ops) mod assign;
pub(in crate::ops) mod compound;
pub(in crate::ops) mod eval;
pub(in crate::ops) mod operators;
pub(in crate::ops) mod scaled;
pub(in crate::ops) mod together;
pub(in crate::ops) mod transfer;
pub(in crate::ops) mod view_mut;
