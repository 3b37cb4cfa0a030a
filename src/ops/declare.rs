//! What a row of the elementwise table becomes: the operation's type, a method on arrays and one
//! on lazy expressions, each with its documentation and a tested example.

/// The text of a tested example: arrays by their names, and what a call gives.
macro_rules! example {
    (
        $element:ident $shape:literal: $($name:literal = $values:tt),+;
        $($call:expr),+ => $output:tt
    ) => {
        concat!(
            "\n\n# Examples\n\n```\nuse cachescope::Array;\n\n",
            $(
                "let ", $name, " = Array::<", stringify!($element), ">::from_slice(&",
                stringify!($values), ", ", $shape, ")?;\n",
            )+
            "assert_eq!(", $($call,)+ ", ", stringify!($output), ");\n",
            "# Ok::<(), cachescope::Error>(())\n```"
        )
    };
}

/// Rows `/// Sentence. name Type kind |x| value, element [in] => [out];`
macro_rules! unary {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $kind:ident |$x:ident| $value:expr,
        $example:ident $input:tt => $output:tt;
    )+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $op;

            impl $crate::ops::node::Operation for $op {
                const NAME: &'static str = stringify!($name);
            }

            $crate::ops::declare::unary!(@$kind $op |$x| $value);

            $crate::ops::declare::unary! {
                @methods $kind $op $name,
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "x" = $input;
                    "x.", stringify!($name), "().eval()?.to_vec()?" => $output
                )),
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "x" = $input;
                    "x.lazy().", stringify!($name), "().eval()?.to_vec()?" => $output
                )),
            }
        )+
    };
    (@number $op:ident |$x:ident| $value:expr) => {
        impl<T: $crate::Numeric> $crate::ops::node::UnaryOp<T> for $op {
            type Output = T;

            #[inline(always)]
            fn apply($x: T) -> T {
                $value
            }
        }
    };
    (@float $op:ident |$x:ident| $value:expr) => {
        impl<T: $crate::Float> $crate::ops::node::UnaryOp<T> for $op {
            type Output = T;

            #[inline(always)]
            fn apply(x: T) -> T {
                let $x: T::Accumulator = convert(x);
                convert($value)
            }
        }
    };
    (@methods number $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Numeric, $($rest)+);
    };
    (@methods float $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Float, $($rest)+);
    };
    (@bounded $bound:path, $op:ident $name:ident, $on_array:expr, $on_lazy:expr $(,)?) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            pub fn $name(&self) -> $crate::Lazy<$crate::ops::node::Unary<$op, $crate::ops::node::Leaf<T>>> {
                self.lazy().unary()
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[allow(clippy::should_implement_trait, reason = "`neg` is an operator too")]
            pub fn $name(self) -> $crate::Lazy<$crate::ops::node::Unary<$op, E>> {
                self.unary()
            }
        }
    };
}

/// Rows `/// Sentence. name Type kind |a, b| value, element [left], [right] => [out];`, or
/// `operator name Type kind |a, b| value;` for what has no method.
macro_rules! binary {
    ($(operator $name:ident $op:ident $kind:ident |$a:ident, $b:ident| $value:expr;)+) => {
        $($crate::ops::declare::binary!(@operation $name $op $kind |$a, $b| $value);)+
    };
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $kind:ident |$a:ident, $b:ident| $value:expr,
        $example:ident $left:tt, $right:tt => $output:tt;
    )+) => {
        $(
            $crate::ops::declare::binary!(@operation $name $op $kind |$a, $b| $value);

            $crate::ops::declare::binary! {
                @methods $kind $op $name,
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "a" = $left, "b" = $right;
                    "a.", stringify!($name), "(&b).eval()?.to_vec()?" => $output
                )),
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "a" = $left, "b" = $right;
                    "a.lazy().", stringify!($name), "(b).eval()?.to_vec()?" => $output
                )),
            }
        )+
    };
    (@operation $name:ident $op:ident number |$a:ident, $b:ident| $value:expr) => {
        $crate::ops::declare::binary!(@implement $crate::Numeric, T, $name $op |$a, $b| $value);
    };
    (@operation $name:ident $op:ident compare |$a:ident, $b:ident| $value:expr) => {
        $crate::ops::declare::binary!(@implement $crate::Element, bool, $name $op |$a, $b| $value);
    };
    (@implement $bound:path, $output:ty, $name:ident $op:ident |$a:ident, $b:ident| $value:expr) => {
        #[derive(Clone, Copy, Debug)]
        pub struct $op;

        impl $crate::ops::node::Operation for $op {
            const NAME: &'static str = stringify!($name);
        }

        impl<T: $bound> $crate::ops::node::BinaryOp<T> for $op {
            type Output = $output;

            #[inline(always)]
            fn apply($a: T, $b: T) -> $output {
                $value
            }
        }
    };
    (@methods number $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Numeric, $($rest)+);
    };
    (@methods compare $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Element, $($rest)+);
    };
    (@bounded $bound:path, $op:ident $name:ident, $on_array:expr, $on_lazy:expr $(,)?) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            pub fn $name<R: $crate::IntoExpr<T>>(
                &self,
                other: R,
            ) -> $crate::Lazy<$crate::ops::node::Binary<$op, $crate::ops::node::Leaf<T>, R::Expr>> {
                self.lazy().binary(other.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            pub fn $name<R: $crate::IntoExpr<E::Item>>(
                self,
                other: R,
            ) -> $crate::Lazy<$crate::ops::node::Binary<$op, E, R::Expr>> {
                self.binary(other.into_lazy())
            }
        }
    };
}

pub(super) use {binary, example, unary};
