//! Macros that expand a row of `functions!` to methods on arrays and lazy expressions. Each method
//! has documentation and a tested example.

/// Expands to the source of a tested example. The example makes an array of `$shape` for each name,
/// and compares the result of a call. An operand in parentheses is a single value, which
/// `operands!` writes into the call.
macro_rules! example {
    (
        $element:ident $shape:literal: $($name:ident = $values:tt),+;
        $($call:expr),+ => $output:tt
    ) => {
        concat!(
            "\n\n# Examples\n\n```\nuse cachescope::Array;\n\n",
            $($crate::ops::expression::declare::example!(@array $element $shape $name $values),)+
            "assert_eq!(", $($call,)+ ", ", stringify!($output), ");\n",
            "# Ok::<(), cachescope::Error>(())\n```"
        )
    };
    (@array $element:ident $shape:literal $name:ident ($value:expr)) => { "" };
    (@array $element:ident $shape:literal $name:ident $values:tt) => {
        concat!(
            "let ", stringify!($name), " = Array::<", stringify!($element), ">::from_slice(&",
            stringify!($values), ", ", $shape, ")?;\n",
        )
    };
}

/// Expands to the operands in the call of an example: names of arrays, and values.
macro_rules! operands {
    () => { "" };
    ($name:ident ($value:expr)) => { stringify!($value) };
    ($name:ident $values:tt) => { concat!("&", stringify!($name)) };
    ($name:ident $values:tt, $($rest:tt)+) => {
        concat!(
            $crate::ops::expression::declare::operands!($name $values), ", ", $crate::ops::expression::declare::operands!($($rest)+)
        )
    };
}

/// Defines the methods of a row of `functions!` on arrays and on expressions. `$on_array` and
/// `$on_lazy` are the documentation of these methods.
macro_rules! methods {
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident) $name:ident $op:ident($x:ident)
        $on_array:expr, $on_lazy:expr
    ) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            #[track_caller]
            pub fn $name(&self) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, ($crate::ops::expression::node::Leaf<T>,)>> {
                $crate::ops::expression::node::unary(self.lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[allow(clippy::should_implement_trait, reason = "`neg` and `not` are operators, too")]
            pub fn $name(&self) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, (E,)>> {
                $crate::ops::expression::node::unary(self.clone())
            }
        }
    };
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident) $name:ident $op:ident($x:ident, $y:ident $(: $type:ident)?)
        $on_array:expr, $on_lazy:expr
    ) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            #[track_caller]
            pub fn $name<B: $crate::IntoExpr<cachescope_kernels::argument!([T] $($type)?)>>(
                &self,
                $y: B,
            ) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, ($crate::ops::expression::node::Leaf<T>, B::Expr)>> {
                $crate::ops::expression::node::binary(self.lazy(), $y.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[allow(clippy::should_implement_trait, reason = "some of the functions are operators, too")]
            #[track_caller]
            pub fn $name<B: $crate::IntoExpr<cachescope_kernels::argument!([E::Item] $($type)?)>>(
                &self,
                $y: B,
            ) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, (E, B::Expr)>> {
                $crate::ops::expression::node::binary(self.clone(), $y.into_lazy())
            }
        }
    };
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident) $name:ident $op:ident($x:ident, $y:ident, $z:ident)
        $on_array:expr, $on_lazy:expr
    ) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            #[track_caller]
            pub fn $name<B: $crate::IntoExpr<T>, C: $crate::IntoExpr<T>>(
                &self,
                $y: B,
                $z: C,
            ) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, ($crate::ops::expression::node::Leaf<T>, B::Expr, C::Expr)>> {
                $crate::ops::expression::node::ternary(self.lazy(), $y.into_lazy(), $z.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[track_caller]
            pub fn $name<B: $crate::IntoExpr<E::Item>, C: $crate::IntoExpr<E::Item>>(
                &self,
                $y: B,
                $z: C,
            ) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, (E, B::Expr, C::Expr)>> {
                $crate::ops::expression::node::ternary(self.clone(), $y.into_lazy(), $z.into_lazy())
            }
        }
    };
}

/// The callback of `functions!`, which defines the methods of each row.
macro_rules! operations {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        $($crate::ops::expression::declare::operations! {
            @row $kind $pass $name $op $arguments [$($doc)+] $($body)+
        })+
    };
    (
        @row $kind:ident $pass:ident $name:ident $op:ident ($($x:ident $(: $type:ident)?),+) $docs:tt
        host: $single:expr, $double:expr; $(rare: $from:literal;)? cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
        exact: $exact:expr; ulps: f32 $ulps:literal, $(f64 $wide_ulps:literal up to $limit:literal,)? cuda $cuda_ulps:literal;
    ) => {
        $crate::ops::expression::declare::operations! {
            @methods $kind $name $op ($($x $(: $type)?),+) $docs ($element [$($operand)+] $output)
            "\n\nIn `f32`, the error is at most ", stringify!($ulps), " units in the last place on the host, and at most ",
            stringify!($cuda_ulps), " on CUDA devices.",
        }
    };
    (
        @row $kind:ident $pass:ident $name:ident $op:ident $arguments:tt $docs:tt
        host: $host:expr; cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
    ) => {
        $crate::ops::expression::declare::operations! {
            @methods $kind $name $op $arguments $docs ($element [$($operand)+] $output)
        }
    };
    (
        @methods $kind:ident $name:ident $op:ident ($x:ident $(, $y:ident $(: $type:ident)?)*) [$($doc:literal)+]
        ($element:ident [$first:tt $($operand:tt)*] $output:tt) $($more:tt)*
    ) => {
        cachescope_kernels::of_kind! {
            methods $kind $name $op($x $(, $y $(: $type)?)*)
            concat!($($doc, "\n",)+ $($more)* $crate::ops::expression::declare::example!(
                $element "2": $x = $first $(, $y = $operand)*;
                stringify!($x), ".", stringify!($name), "(",
                $crate::ops::expression::declare::operands!($($y $operand),*), ").eval()?.to_vec()?" => $output
            )),
            concat!($($doc, "\n",)+ $($more)* $crate::ops::expression::declare::example!(
                $element "2": $x = $first $(, $y = $operand)*;
                stringify!($x), ".lazy().", stringify!($name), "(",
                $crate::ops::expression::declare::operands!($($y $operand),*), ").eval()?.to_vec()?" => $output
            ))
        }
    };
}

pub(in crate::ops) use example;
pub(in crate::ops) use methods;
pub(in crate::ops) use operands;
pub(in crate::ops) use operations;
