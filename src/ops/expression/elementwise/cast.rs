//! Conversions between element types.

pub use cachescope_kernels::elementwise::cast::Cast;
pub(crate) use cachescope_kernels::elementwise::cast::cast;

use crate::array::{AnyElement, Array};
use crate::ops::expression::expr::{Expr, Lazy};
use crate::ops::expression::node::{Apply, Leaf, unary};

impl<T: AnyElement> Array<T> {
    /// Returns each element as a `U`, converted like Rust's `as`. Integers wrap, floats saturate,
    /// and NaN becomes 0. A cast to `bool` returns `true` for every element except zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.9_f32, -1.0, 300.0], 3)?;
    /// assert_eq!(x.cast::<u8>().eval()?.to_vec()?, [1, 0, 255]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn cast<U: AnyElement>(&self) -> Lazy<Apply<Cast<U>, (Leaf<T>,)>> {
        unary(self.lazy())
    }
}

impl<E: Expr> Lazy<E> {
    /// Returns each element as a `U`, converted like in [`Array::cast`].
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3], 3)?;
    /// let odd = (&x % 2).cast::<bool>().eval()?;
    /// assert_eq!(odd.to_vec()?, [true, false, true]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cast<U: AnyElement>(&self) -> Lazy<Apply<Cast<U>, (E,)>> {
        unary(self.clone())
    }
}
