//! Complex numbers from their parts.

pub use cachescope_kernels::elementwise::complex::OfParts;
use num_complex::Complex;

use crate::array::{AnyElement, Float};
use crate::ops::expression::expr::{IntoExpr, Lazy};
use crate::ops::expression::node::{Apply, binary};

/// Returns the complex numbers with the real parts `re` and the imaginary parts `im`. The two
/// operands broadcast. Parts of `f32` give `Complex<f32>`, and parts of `f64` give `Complex<f64>`.
/// The inverse operations are [`Array::re`](crate::Array::re) and [`Array::im`](crate::Array::im).
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, complex};
///
/// // exp(i x), by Euler's formula.
/// let x = Array::from_slice(&[0.0, std::f64::consts::PI], 2)?;
/// let z = complex(x.cos(), x.sin()).eval()?;
/// assert_eq!(z.to_vec()?[0], Complex::new(1.0, 0.0));
/// assert_eq!(z.abs().eval()?.to_vec()?, [1.0, 1.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[expect(
    clippy::type_complexity,
    reason = "the type of an expression is its tree"
)]
#[track_caller]
pub fn complex<T, A, B>(re: A, im: B) -> Lazy<Apply<OfParts, (A::Expr, B::Expr)>>
where
    T: Float,
    Complex<T>: AnyElement,
    A: IntoExpr<T>,
    B: IntoExpr<T>,
{
    binary(re.into_lazy(), im.into_lazy())
}
