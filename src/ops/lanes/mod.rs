//! Operations along axes: reductions, running totals, softmax, differences and comparisons.

pub(in crate::ops) mod compare;
pub(in crate::ops) mod diff;
pub(in crate::ops) mod reductions;
pub(in crate::ops) mod scan;
