//! Functions of real numbers, written so that a loop over many elements becomes vector code.
//!
//! The code here has no loops, and no branches except on constants. It calls only functions that
//! are inlined into the loop. A closure or a library function would be compiled without the loop's
//! instruction set. Instead of branching on the argument, a function computes both results and
//! selects one of them. The careful [`Pass`](super::pass::Pass) computes the rare arguments for
//! which a function fails. Each file contains a family of functions. Seldom used functions of `f64`
//! call the standard library.

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

/// Evaluates a polynomial in `$x` by Horner's rule. The constant coefficient is the first.
macro_rules! polynomial {
    ($pass:ident, $x:expr; $last:expr) => { $last };
    ($pass:ident, $x:expr; $first:expr, $($rest:expr),+) => {
        multiply_add::<$pass, _>(polynomial!($pass, $x; $($rest),+), $x, $first)
    };
}

use polynomial;
