//! The methods of the rows of `functions!`.

pub use cachescope_kernels::elementwise::functions::*;

use crate::ops::expression::declare::{methods, operations};

cachescope_kernels::functions! { operations }
