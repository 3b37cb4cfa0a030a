//! Arithmetic in place.

use crate::array::{Array, Number};
use crate::error::Result;
use crate::ops::expression::expr::IntoExpr;
use crate::ops::write::view_mut::ArrayViewMut;

/// Expands rows of the form `name, operator, NumPy's sign: description, example;` to methods.
macro_rules! compound {
    ($($name:ident $operator:tt $sign:literal, $does:literal, $example:literal;)+) => {
        impl<T: Number> Array<T> {
            $(
                #[doc = concat!($does, " in place, like NumPy's `", $sign, "`. The value broadcasts to the shape of the array.")]
                ///
                /// # Examples
                ///
                /// ```
                /// use cachescope::Array;
                ///
                /// let mut x = Array::from_slice(&[8.0, 6.0], 2)?;
                #[doc = concat!("x.", stringify!($name), "(2.0)?;")]
                #[doc = concat!("assert_eq!(x.to_vec()?, ", $example, ");")]
                /// # Ok::<(), cachescope::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// The errors of [`assign`](Self::assign).
                #[track_caller]
                pub fn $name<R: IntoExpr<T>>(&mut self, value: R) -> Result<()> {
                    let value = self.lazy() $operator value.into_lazy();
                    self.assign(value)
                }
            )+
        }

        impl<T: Number> ArrayViewMut<'_, T> {
            $(
                #[doc = concat!("Like [`Array::", stringify!($name), "`], for a view of an array.")]
                ///
                /// # Errors
                ///
                /// The errors of [`assign`](Self::assign).
                #[track_caller]
                pub fn $name<R: IntoExpr<T>>(&mut self, value: R) -> Result<()> {
                    self.update(|part| part.lazy() $operator value.into_lazy())
                }
            )+
        }
    };
}

compound! {
    add_assign + "+=", "Adds `value`", "[10.0, 8.0]";
    sub_assign - "-=", "Subtracts `value`", "[6.0, 4.0]";
    mul_assign * "*=", "Multiplies by `value`", "[16.0, 12.0]";
    div_assign / "/=", "Divides by `value`", "[4.0, 3.0]";
}
