//! The functions in the rows of `functions!`.

use crate::element::scalar::math;
use crate::elementwise::declare::{function, rows};

functions! { rows }
