//! A macro that expands the row of a reduction to methods on arrays and on expressions. The methods
//! reduce all elements, or along axes. Each method has documentation and a tested example.

/// Expands rows of the form `/// Sentences. name, name_axis, name_keepdims: Reducer over Bound ->
/// Output, element [2 × 2 elements] => whole, along axis 0;`, for the element types that implement
/// `Bound`.
macro_rules! reductions {
    ($(
        $(#[doc = $doc:literal])+
        $whole:ident, $axis:ident, $keepdims:ident: $reducer:ident over $bound:ident -> $output:ty,
        $example:ident $input:tt => $all:tt, $along:tt;
    )+) => {
        $(
            $crate::ops::lanes::reductions::declare::reductions! { @method
                $whole, $axis, $keepdims, $reducer, $bound, $output,
                concat!(
                    $($doc, "\n",)+ "\nThe result has rank 0.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.", stringify!($whole), "()?.item()?" => $all
                    ),
                    "\n\n# Errors\n\nThe errors of [`Lazy::eval`](crate::Lazy::eval), and any error that is named above.",
                ),
                concat!(
                    $($doc, "\n",)+ "\nReduces along `axes`, one or several ([`Axes`](crate::Axes)). The result does not have \
                    these axes. A negative axis counts from the end. Positions are counted in row-major order over \
                    the axes.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.", stringify!($axis), "(0)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThe errors of [`Lazy::eval`](crate::Lazy::eval), and any error that is named above. \
                    [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the array has no axis of this number, \
                    or if an axis is named twice.",
                ),
                concat!(
                    "Like [`", stringify!($axis), "`](Self::", stringify!($axis), "), but keeps the reduced axes \
                    with length 1, so that the result broadcasts against the operand.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.", stringify!($keepdims), "(0)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThe errors of [`", stringify!($axis), "`](Self::", stringify!($axis), ").",
                ),
                concat!(
                    "Like [`Array::", stringify!($whole), "`](crate::Array::", stringify!($whole), "), for an expression. \
                    The elements of the expression are not stored.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.lazy().", stringify!($whole), "()?.item()?" => $all
                    ),
                    "\n\n# Errors\n\nThe errors of [`Array::", stringify!($whole), "`](crate::Array::", stringify!($whole), ").",
                ),
                concat!(
                    "Like [`Array::", stringify!($axis), "`](crate::Array::", stringify!($axis), "), for an expression. \
                    The elements of the expression are not stored.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.lazy().", stringify!($axis), "(-2)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThe errors of [`Array::", stringify!($axis), "`](crate::Array::", stringify!($axis), ").",
                ),
                concat!(
                    "Like [`Array::", stringify!($keepdims), "`](crate::Array::", stringify!($keepdims), "), for an expression. \
                    The elements of the expression are not stored.",
                    $crate::ops::expression::declare::example!(
                        $example "[2, 2]": x = $input;
                        "x.lazy().", stringify!($keepdims), "(-2)?.to_vec()?" => $along
                    ),
                    "\n\n# Errors\n\nThe errors of [`Array::", stringify!($axis), "`](crate::Array::", stringify!($axis), ").",
                ),
            }
        )+
    };
    (@method
        $whole:ident, $axis:ident, $keepdims:ident, $reducer:ident, $bound:ident, $output:ty,
        $array_whole:expr, $array_axis:expr, $array_keepdims:expr,
        $lazy_whole:expr, $lazy_axis:expr, $lazy_keepdims:expr $(,)?
    ) => {
        impl<T: $crate::$bound> $crate::Array<T> {
            #[doc = $array_whole]
            #[track_caller]
            pub fn $whole(&self) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::all::<$reducer, T>(&$crate::ops::expression::tree::Operand::from(self))
            }

            #[doc = $array_axis]
            #[track_caller]
            pub fn $axis(&self, axes: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::along::<$reducer, T>(&$crate::ops::expression::tree::Operand::from(self), &axes.into(), false)
            }

            #[doc = $array_keepdims]
            #[track_caller]
            pub fn $keepdims(&self, axes: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::along::<$reducer, T>(&$crate::ops::expression::tree::Operand::from(self), &axes.into(), true)
            }
        }

        impl<T: $crate::$bound, E: $crate::Expr<Item = T>> $crate::Lazy<E> {
            #[doc = $lazy_whole]
            #[track_caller]
            pub fn $whole(&self) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::all::<$reducer, T>(&self.expr)
            }

            #[doc = $lazy_axis]
            #[track_caller]
            pub fn $axis(&self, axes: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::along::<$reducer, T>(&self.expr, &axes.into(), false)
            }

            #[doc = $lazy_keepdims]
            #[track_caller]
            pub fn $keepdims(&self, axes: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array<$output>> {
                $crate::ops::lanes::reductions::along::<$reducer, T>(&self.expr, &axes.into(), true)
            }
        }
    };
}

pub(super) use reductions;
