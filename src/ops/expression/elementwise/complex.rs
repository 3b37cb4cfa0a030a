//! Complex numbers from their parts.

use num_complex::Complex;

use crate::array::element::scalar::pass::Pass;
use crate::array::{AnyElement, Float};
use crate::ops::expression::expr::{IntoExpr, Lazy};
use crate::ops::expression::loops::{Loops, table};
use crate::ops::expression::node::{Apply, Function, binary};
use crate::ops::expression::operation::Operation;
use crate::ops::expression::tree::{Call, Calls};

/// The complex number of a real and an imaginary part.
#[derive(Clone, Copy, Debug)]
pub struct OfParts;

impl OfParts {
    /// The function for each type of parts.
    pub(in crate::ops) const CALLS: &'static Calls = {
        static CALLS: Calls = table!(parts OfParts);
        &CALLS
    };

    const fn call<T: Float>() -> Option<Call>
    where
        Complex<T>: AnyElement,
    {
        let loops = Loops::of::<Self, (T, T)>();
        Some(Call::of::<Self, (T, T)>(Operation::OfParts, loops))
    }
}

impl<T: Float> Function<(T, T)> for OfParts
where
    Complex<T>: AnyElement,
{
    const NAME: &'static str = "complex";
    const CUDA: &'static str = "R(a, b)";
    const CALL: &'static Call = Self::CALLS.at(T::DTYPE);
    type Output = Complex<T>;

    #[inline(always)]
    fn apply<L: Pass>(_pass: &mut L, (re, im): (T, T)) -> Complex<T> {
        Complex::new(re, im)
    }
}

/// Returns the complex numbers with these real and imaginary parts, which broadcast: a
/// `Complex<f32>` from `f32`, a `Complex<f64>` from `f64`. The inverse operations are
/// [`Array::re`](crate::Array::re) and [`Array::im`](crate::Array::im).
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
