//! Runs operations on the device of their operands. This module does not record steps for
//! gradients. Its callers record the steps in [`derivatives`](crate::ops::derivatives).

mod by_type;
mod devices;
mod evaluate;
mod hoist;
mod reduce;

#[cfg(feature = "linalg")]
pub(super) use by_type::{MAX, MIN, PROD};
pub(super) use by_type::{MEAN, NORM, STD, SUM, VAR};
pub(super) use devices::{contiguous_array, device_for, device_mismatch, device_of, same_device};
pub(super) use evaluate::{evaluate_all, store};
pub(super) use hoist::Hoisted;
pub(super) use reduce::{Reduction, reduce, reduce_contiguous};
