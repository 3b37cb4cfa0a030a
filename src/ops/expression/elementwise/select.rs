//! Elementwise selection by a mask.

pub use cachescope_kernels::elementwise::select::Select;

use crate::array::AnyElement;
use crate::ops::expression::expr::{IntoExpr, Lazy};
use crate::ops::expression::node;
use crate::ops::expression::node::Apply;

/// Returns the element of `yes` where `mask` is true, and the element of `no` elsewhere. The three
/// operands broadcast.
///
/// Gradients only pass to the selected elements. If the whole expression is evaluated at once,
/// elements that are not selected may be infinite or NaN. For example, `select(x.gt(0.0), x.sqrt(),
/// 0.0)` has the derivative 0 at 0.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, select};
///
/// let x = Array::from_slice(&[-2.0_f32, 3.0], 2)?;
/// let y = select(x.lt(0.0), &x * 0.1, &x).eval()?;
/// assert_eq!(y.to_vec()?, [-0.2, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// If `yes` and `no` are literals, the compiler infers their type from the use of the expression.
/// Without a use that determines the type, the literals are `f64`. For another type, write the type
/// of one literal.
///
/// ```
/// use cachescope::{Array, select};
///
/// let x = Array::from_slice(&[-2.0_f32, 3.0], 2)?;
/// let (used, alone) = (&x * select(x.lt(0.0), 0.0, 1.0), select(x.lt(0.0), 0.0, 1.0));
/// assert_eq!((used.eval()?.size_bytes(), alone.eval()?.size_bytes()), (8, 16));
/// let typed = select(x.lt(0.0), 0.0_f32, 1.0).sum()?;
/// assert_eq!((&x * typed).eval()?.to_vec()?, [-2.0, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// ```compile_fail,E0271
/// # use cachescope::{Array, select};
/// let x = Array::from_slice(&[-2.0_f32, 3.0], 2)?;
/// let count = select(x.lt(0.0), 0.0, 1.0).sum()?; // error: a sum of `f64`
/// (&x * count).eval()?;
/// # Ok::<(), cachescope::Error>(())
/// ```
#[expect(
    clippy::type_complexity,
    reason = "the type of an expression is its tree"
)]
#[track_caller]
pub fn select<T, M, A, B>(
    mask: M,
    yes: A,
    no: B,
) -> Lazy<Apply<Select, (M::Expr, A::Expr, B::Expr)>>
where
    T: AnyElement,
    M: IntoExpr<bool>,
    A: IntoExpr<T>,
    B: IntoExpr<T>,
{
    node::ternary(mask.into_lazy(), yes.into_lazy(), no.into_lazy())
}
