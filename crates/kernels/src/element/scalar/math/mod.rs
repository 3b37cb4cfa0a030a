//! Functions of real numbers, written so that a loop over many elements becomes vector code.
//!
//! Therefore the code here has no loops, and no branches except on constants. It calls only
//! functions that are inlined into the loop, because a closure or a library function would be
//! compiled without the loop's instruction set. Instead of a branch on the argument, both results
//! are computed, and one of them is selected. Rare arguments for which a function fails are left to
//! the careful [`Pass`](super::pass::Pass). Each file is a family of functions. `f64` has second
//! priority here: its seldom used functions come from the standard library.

mod erf;
mod exp;
mod hyperbolic;
mod inverse;
mod log;
mod power;
mod real;
mod rounding;
mod trig;

#[cfg(test)]
mod tests;

pub use power::{Powers, powi};
pub use real::Real;
pub use real::free::*;

/// Evaluates the polynomial in `$x` with these coefficients, the constant coefficient first, by
/// Horner's rule.
macro_rules! polynomial {
    ($pass:ident, $x:expr; $last:expr) => { $last };
    ($pass:ident, $x:expr; $first:expr, $($rest:expr),+) => {
        multiply_add::<$pass, _>(polynomial!($pass, $x; $($rest),+), $x, $first)
    };
}

use polynomial;
