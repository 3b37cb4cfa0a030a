//! Conversions between element types.

use std::marker::PhantomData;

use crate::array::scalar::convert;
use crate::array::scalar::lane::Lane;
use crate::array::{Array, Element};
use crate::ops::expr::{Expr, Lazy};
use crate::ops::node::{Apply, Function, Leaf, unary};

/// The conversion to `U`, as Rust's `as` does it.
#[derive(Clone, Copy, Debug)]
pub struct Cast<U>(PhantomData<U>);

impl<T: Element, U: Element> Function<(T,)> for Cast<U> {
    const NAME: &'static str = "cast";
    const CUDA: &'static str = "cs_cast<R>(a)";
    type Output = U;

    #[inline(always)]
    fn apply<L: Lane>(_lane: &mut L, (x,): (T,)) -> U {
        convert(x)
    }
}

impl<T: Element> Array<T> {
    /// Each element as a `U`, converted as Rust's `as` does: integers wrap, floats saturate, NaN
    /// becomes 0, and anything but zero becomes `true`.
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
    pub fn cast<U: Element>(&self) -> Lazy<Apply<Cast<U>, (Leaf<T>,)>> {
        unary(self.lazy())
    }
}

impl<E: Expr> Lazy<E> {
    /// Each element as a `U`, as [`Array::cast`] converts it.
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
    pub fn cast<U: Element>(self) -> Lazy<Apply<Cast<U>, (E,)>> {
        unary(self)
    }
}
