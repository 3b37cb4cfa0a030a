//! Macros that expand a row of `functions!` to a function with its host and its CUDA form, a method
//! on arrays and one on lazy expressions, each with its documentation and a tested example.

/// Returns whether `cuda` names the first `count` of the arguments `a`, `b`, `c` and `d`, and no
/// other.
pub(in crate::ops) const fn names_arguments(cuda: &str, count: usize) -> bool {
    const fn in_a_name(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || byte == b'_'
    }
    let text = cuda.as_bytes();
    let mut named = [false; 4];
    let mut at = 0;
    while at < text.len() {
        let alone = (at == 0 || !in_a_name(text[at - 1]))
            && (at + 1 == text.len() || !in_a_name(text[at + 1]));
        if alone && b'a' <= text[at] && text[at] <= b'd' {
            named[(text[at] - b'a') as usize] = true;
        }
        at += 1;
    }
    let mut argument = 0;
    while argument < named.len() {
        if named[argument] != (argument < count) {
            return false;
        }
        argument += 1;
    }
    true
}

/// The text of a tested example: arrays of `shape` by their names, and the result of a call. An
/// operand in parentheses is a single value, which `operands!` writes into the call.
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

/// The operands in the call of an example: arrays by their names, and values.
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

/// Expands `name Type(argument: type, …) [size] => host form, "CUDA form"` of a kind to a function.
/// A size means that the function may note an element as rare. `pass` is the name of the pass in
/// the host form.
macro_rules! function {
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident) $pass:ident $name:ident $op:ident($($x:ident $(: $type:ident)?),+) [$($rare:tt)?] => $host:expr, $cuda:literal
    ) => {
        #[doc = concat!("The function of `", stringify!($name), "`.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $op;

        const _: () = assert!(
            $crate::ops::expression::declare::names_arguments($cuda, [$(stringify!($x)),+].len()),
            "the CUDA form must name every argument and no other"
        );

        impl $op {
            /// The function for each type of elements.
            pub(crate) const CALLS: &'static $crate::ops::expression::tree::Calls = {
                // Not generic, so that its loops are compiled with the library and its optimisation
                // level.
                static CALLS: $crate::ops::expression::tree::Calls =
                    $crate::ops::expression::loops::table!($kind $op);
                &CALLS
            };

            const fn call<T: $bound>() -> Option<$crate::ops::expression::tree::Call> {
                Some($crate::ops::expression::tree::Call::of::<
                    Self,
                    ($($crate::ops::expression::declare::argument!([T] $($type)?),)+),
                >(
                    $crate::ops::expression::operation::Operation::$op,
                    $crate::ops::expression::declare::function!(@loop $kind ($($($type)?),+)),
                ))
            }
        }

        impl<T: $bound>
            $crate::ops::expression::node::Function<($($crate::ops::expression::declare::argument!([T] $($type)?),)+)> for $op
        {
            const NAME: &'static str = stringify!($name);
            const CUDA: &'static str = $cuda;
            const RARE: bool = $crate::ops::expression::declare::function!(@rare $($rare)?);
            const WIDE: bool =
                $crate::ops::expression::operation::Operation::$op.is_wide(T::DTYPE);
            const CALL: &'static $crate::ops::expression::tree::Call = Self::CALLS.at(T::DTYPE);
            type Output = $output;

            #[inline(always)]
            fn apply<L: $crate::array::element::scalar::pass::Pass>(
                $pass: &mut L,
                ($($x,)+): ($($crate::ops::expression::declare::argument!([T] $($type)?),)+),
            ) -> $output {
                let _ = &$pass;
                $crate::ops::expression::declare::function!(@$way $($x $($type)?,)+ => $host)
            }
        }
    };
    // These kinds are computed in `f32` for the narrower floats.
    (@loop float $types:tt) => { $crate::ops::expression::declare::function!(@widened $types) };
    (@loop test $types:tt) => { $crate::ops::expression::declare::function!(@widened $types) };
    (@loop power $types:tt) => { $crate::ops::expression::declare::function!(@widened $types) };
    (@loop number $types:tt) => { $crate::ops::expression::declare::function!(@widened $types) };
    (@loop real $types:tt) => { $crate::ops::expression::declare::function!(@widened $types) };
    (@loop $kind:ident ($($($type:ident)?),+)) => {
        $crate::ops::expression::loops::Loops::of::<Self, ($($crate::ops::expression::declare::argument!([T] $($type)?),)+)>()
    };
    (@widened ($($($type:ident)?),+)) => {
        $crate::ops::expression::loops::Loops::widening::<
            Self,
            T,
            ($($crate::ops::expression::declare::argument!([T] $($type)?),)+),
            ($($crate::ops::expression::declare::argument!([f32] $($type)?),)+),
        >()
    };
    (@rare $from:tt) => { true };
    (@rare) => { false };
    (@own $($x:ident $($type:ident)?,)+ => $host:expr) => { $host };
    (@wide $($x:ident $($type:ident)?,)+ => $host:expr) => {{
        $($crate::ops::expression::declare::function!(@widen $x $($type)?);)+
        $crate::array::element::scalar::convert($host)
    }};
    (@widen $x:ident) => { let $x: T::Accumulator = $crate::array::element::scalar::convert($x); };
    (@widen $x:ident $type:ident) => {};
    ($kind:ident $($rest:tt)+) => {
        $crate::ops::expression::declare::of_kind! { function $kind $($rest)+ }
    };
}

/// The function of single elements that a written function calls for a row. The module in which it
/// is used calls the module of the rows `rows`.
macro_rules! element {
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident)
        $pass:ident $name:ident $op:ident ($($x:ident $(: $type:ident)?),+)
    ) => {
        #[doc = concat!("What `", stringify!($name), "` computes.")]
        #[inline(always)]
        pub fn $name<T: $bound, L: $crate::array::element::scalar::pass::Pass>(
            $($x: $crate::ops::expression::declare::argument!([T] $($type)?),)+
            $pass: &mut L,
        ) -> $output {
            <rows::$op as $crate::ops::expression::node::Function<(
                $($crate::ops::expression::declare::argument!([T] $($type)?),)+
            )>>::apply($pass, ($($x,)+))
        }
    };
}

/// Calls the macro `of` with the properties that a row's kind implies: the elements that it is for,
/// its result, and whether it is computed in its own type or the wide one.
macro_rules! of_kind {
    ($of:ident number $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @number ($crate::Number, T, own) $($rest)+ }
    };
    ($of:ident part $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @part ($crate::Number, T::Part, own) $($rest)+ }
    };
    ($of:ident real $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @real ($crate::Numeric, T, own) $($rest)+ }
    };
    ($of:ident float $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @float ($crate::Float, T, wide) $($rest)+ }
    };
    ($of:ident test $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @test ($crate::Float, bool, wide) $($rest)+ }
    };
    ($of:ident ordered $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @ordered ($crate::Element, T, own) $($rest)+ }
    };
    ($of:ident power $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @power ($crate::Numeric, T, own) $($rest)+ }
    };
    ($of:ident integer $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @integer ($crate::Integer, T, own) $($rest)+ }
    };
    ($of:ident bits $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @bits ($crate::Bitwise, T, own) $($rest)+ }
    };
    ($of:ident compare $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @compare ($crate::Element, bool, own) $($rest)+ }
    };
    ($of:ident equality $($rest:tt)+) => {
        $crate::ops::expression::declare::$of! { @equality ($crate::AnyElement, bool, own) $($rest)+ }
    };
}

/// The methods of a row on arrays and on expressions, with these documentations.
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
            #[allow(clippy::should_implement_trait, reason = "`neg` and `not` are operators too")]
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
            pub fn $name<B: $crate::IntoExpr<$crate::ops::expression::declare::argument!([T] $($type)?)>>(
                &self,
                $y: B,
            ) -> $crate::Lazy<$crate::ops::expression::node::Apply<$op, ($crate::ops::expression::node::Leaf<T>, B::Expr)>> {
                $crate::ops::expression::node::binary(self.lazy(), $y.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[allow(clippy::should_implement_trait, reason = "they are operators too")]
            #[track_caller]
            pub fn $name<B: $crate::IntoExpr<$crate::ops::expression::declare::argument!([E::Item] $($type)?)>>(
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

/// The callback of `functions!`: the function and the methods of each row.
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
        $crate::ops::expression::declare::function! {
            $kind $pass $name $op($($x $(: $type)?),+) [$($from)?]
            => math::$name($pass, $($x),+), $cuda
        }
        $crate::ops::expression::declare::operations! {
            @methods $kind $name $op ($($x $(: $type)?),+) $docs ($element [$($operand)+] $output)
            "\n\nIn `f32` the error is at most ", stringify!($ulps), " units in the last place, on CUDA ",
            stringify!($cuda_ulps), ".",
        }
    };
    (
        @row $kind:ident $pass:ident $name:ident $op:ident $arguments:tt $docs:tt
        host: $host:expr; cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
    ) => {
        $crate::ops::expression::declare::function! { $kind $pass $name $op $arguments [] => $host, $cuda }
        $crate::ops::expression::declare::operations! {
            @methods $kind $name $op $arguments $docs ($element [$($operand)+] $output)
        }
    };
    (
        @methods $kind:ident $name:ident $op:ident ($x:ident $(, $y:ident $(: $type:ident)?)*) [$($doc:literal)+]
        ($element:ident [$first:tt $($operand:tt)*] $output:tt) $($more:tt)*
    ) => {
        $crate::ops::expression::declare::of_kind! {
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

/// The type of an argument: the named type, or else the type of the elements.
macro_rules! argument {
    ([$($own:tt)+]) => { $($own)+ };
    ([$($own:tt)+] $type:ident) => { $type };
}

pub(in crate::ops) use argument;
pub(in crate::ops) use element;
pub(in crate::ops) use example;
pub(in crate::ops) use function;
pub(in crate::ops) use methods;
pub(in crate::ops) use of_kind;
pub(in crate::ops) use operands;
pub(in crate::ops) use operations;
