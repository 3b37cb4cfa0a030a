//! The table of reductions: each stands on arrays and on expressions, whole and along an axis.

use super::declare::example;
use super::expr::{Expr, Lazy};
use super::reduce::{all, along};
use super::reducers::{Argmax, Argmin, Max, Mean, Min, Sum};
use crate::array::{Array, Element};
use crate::error::Result;

/// Rows `/// Sentences. name, name_axis: Reducer -> Output, element [2 × 2 elements] => whole, along
/// axis 0;`.
macro_rules! reductions {
    ($(
        $(#[doc = $doc:literal])+
        $whole:ident, $axis:ident: $reducer:ident -> $output:ty,
        $example:ident $input:tt => $all:tt, $along:tt;
    )+) => {
        $(
            reductions! { @method
                $whole, $axis, $reducer, $output,
                concat!(
                    $($doc, "\n",)+ "\nThe result has rank 0.",
                    example!(
                        $example "[2, 2]": "x" = $input;
                        "x.", stringify!($whole), "()?.item()?" => $all
                    ),
                    "\n\n# Errors\n\nThose of [`Lazy::eval`], and what is said above of nothing.",
                ),
                concat!(
                    $($doc, "\n",)+ "\nThis is along `axis`, which the result does not have; a \
                    negative one counts from the end.",
                    example!(
                        $example "[2, 2]": "x" = $input;
                        "x.", stringify!($axis), "(0)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThose of [`Lazy::eval`], what is said above of nothing, and \
                    [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where there is no such \
                    axis.",
                ),
                concat!(
                    "[`Array::", stringify!($whole), "`] of the expression, which is not stored.",
                    example!(
                        $example "[2, 2]": "x" = $input;
                        "x.lazy().", stringify!($whole), "()?.item()?" => $all
                    ),
                    "\n\n# Errors\n\nThose of [`Array::", stringify!($whole), "`].",
                ),
                concat!(
                    "[`Array::", stringify!($axis), "`] of the expression, which is not stored.",
                    example!(
                        $example "[2, 2]": "x" = $input;
                        "x.lazy().", stringify!($axis), "(-2)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThose of [`Array::", stringify!($axis), "`].",
                ),
            }
        )+
    };
    (@method
        $whole:ident, $axis:ident, $reducer:ident, $output:ty,
        $array_whole:expr, $array_axis:expr, $lazy_whole:expr, $lazy_axis:expr $(,)?
    ) => {
        impl<T: Element> Array<T> {
            #[doc = $array_whole]
            #[track_caller]
            pub fn $whole(&self) -> Result<Array<$output>> {
                all::<$reducer, _>(&self.lazy())
            }

            #[doc = $array_axis]
            #[track_caller]
            pub fn $axis(&self, axis: isize) -> Result<Array<$output>> {
                along::<$reducer, _>(&self.lazy(), axis)
            }
        }

        impl<T: Element, E: Expr<Item = T>> Lazy<E> {
            #[doc = $lazy_whole]
            #[track_caller]
            pub fn $whole(&self) -> Result<Array<$output>> {
                all::<$reducer, _>(self)
            }

            #[doc = $lazy_axis]
            #[track_caller]
            pub fn $axis(&self, axis: isize) -> Result<Array<$output>> {
                along::<$reducer, _>(self, axis)
            }
        }
    };
}

reductions! {
    /// The sum of the elements: of signed integers and `bool` in `i64` and of unsigned integers in
    /// `u64`, which wrap; of floats in their own type (of `f16` and `bf16` computed in `f32`), with
    /// an error that does not grow with their number. The sum of nothing is 0.
    sum, sum_axis: Sum -> T::Sum, f32 [1.0, 2.0, 3.0, 4.0] => 10.0, [4.0, 6.0];

    /// The mean of the elements: of integers and `bool` in `f64`, of floats in their own type. The
    /// mean of nothing is NaN.
    mean, mean_axis: Mean -> T::Mean, f32 [1.0, 2.0, 3.0, 4.0] => 2.5, [2.0, 3.0];

    /// The largest element; NaN where there is one. Of nothing there is none, which is
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    max, max_axis: Max -> T, f32 [1.0, 4.0, 3.0, 2.0] => 4.0, [3.0, 4.0];

    /// The smallest element; NaN where there is one. Of nothing there is none, which is
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    min, min_axis: Min -> T, f32 [1.0, 4.0, 3.0, 2.0] => 1.0, [1.0, 2.0];

    /// The position of the largest element, in row-major order: the first of several, and the first
    /// NaN where there is one. Of nothing there is none, which is
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    argmax, argmax_axis: Argmax -> i64, f32 [1.0, 4.0, 3.0, 4.0] => 1, [1, 0];

    /// The position of the smallest element, in row-major order: the first of several, and the first
    /// NaN where there is one. Of nothing there is none, which is
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    argmin, argmin_axis: Argmin -> i64, f32 [1.0, 4.0, 3.0, 2.0] => 0, [0, 1];
}
