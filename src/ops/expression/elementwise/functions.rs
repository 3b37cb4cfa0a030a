//! The functions of `functions!`, as operations and as methods.

use crate::array::element::scalar::math;
use crate::ops::expression::declare::operations;

functions! { operations }
