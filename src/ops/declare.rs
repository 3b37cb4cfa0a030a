//! What a row of the elementwise table becomes: a function with its host and its CUDA form, a method
//! on arrays and one on lazy expressions, each with its documentation and a tested example.
//!
//! The kind of a row says for which elements it is and what it is computed in:
//!
//! | kind | elements | computed in | result |
//! |---|---|---|---|
//! | `number` | [`Numeric`](crate::Numeric) | their own type | the same type |
//! | `float` | [`Float`](crate::Float) | `f32` for `f16` and `bf16`, else their own type | the same type |
//! | `test` | [`Float`](crate::Float) | as `float` | `bool` |
//! | `element` | [`Element`](crate::Element) | their own type | the same type |
//! | `bits` | [`Bitwise`](crate::Bitwise) | their own type | the same type |
//! | `compare` | [`Element`](crate::Element) | their own type | `bool` |
//!
//! The word `rare` after it says that the host form may note an element as rare.

/// Whether `cuda` names the first `count` of the arguments `a`, `b`, `c` and `d`, and no other.
pub(super) const fn names_arguments(cuda: &str, count: usize) -> bool {
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

/// `kind [rare] name Type [one T for each argument] |lane, x, …| host form, "CUDA form"`: the
/// function of a row.
macro_rules! function {
    (number $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare number $crate::Numeric, T, own, $($rest)+);
    };
    (float $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare float $crate::Float, T, wide, $($rest)+);
    };
    (test $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare test $crate::Float, bool, wide, $($rest)+);
    };
    (element $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare element $crate::Element, T, own, $($rest)+);
    };
    (bits $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare bits $crate::Bitwise, T, own, $($rest)+);
    };
    (compare $($rest:tt)+) => {
        $crate::ops::declare::function!(@declare compare $crate::Element, bool, own, $($rest)+);
    };
    (
        @declare $kind:ident $bound:path, $output:ty, $way:ident, [$($rare:ident)?] $name:ident $op:ident
        [$($type:ident)+] |$lane:tt, $($x:ident),+| $host:expr, $cuda:literal
    ) => {
        #[doc = concat!("The function of `", stringify!($name), "`.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $op;

        const _: () = assert!(
            $crate::ops::declare::names_arguments($cuda, [$(stringify!($type)),+].len()),
            "the CUDA form must name every argument and no other"
        );

        impl $op {
            /// The loop over blocks of elements of `T`.
            const fn block_loop<T: $bound>() -> Option<$crate::ops::host::BlockLoop> {
                Some($crate::ops::host::block_loop::<Self, ($($type,)+)>)
            }
        }

        impl<T: $bound> $crate::ops::node::Function<($($type,)+)> for $op {
            const NAME: &'static str = stringify!($name);
            const CUDA: &'static str = $cuda;
            const RARE: bool = $crate::ops::declare::function!(@rare $($rare)?);
            const LOOPS: $crate::ops::host::Loops = {
                // Not generic, so that its loops are compiled with the library, as it is optimised.
                static LOOPS: $crate::ops::host::Table =
                    $crate::ops::host::table!($kind $op);
                $crate::ops::host::Loops::Table(&LOOPS, T::DTYPE)
            };
            type Output = $output;

            #[inline(always)]
            fn apply<L: $crate::array::scalar::lane::Lane>(
                $lane: &mut L,
                ($($x,)+): ($($type,)+),
            ) -> $output {
                $crate::ops::declare::function!(@$way $($x)+ => $host)
            }
        }
    };
    (@rare rare) => { true };
    (@rare) => { false };
    (@own $($x:ident)+ => $host:expr) => { $host };
    (@wide $($x:ident)+ => $host:expr) => {{
        $(let $x: T::Accumulator = $crate::array::scalar::convert($x);)+
        $crate::array::scalar::convert($host)
    }};
}

/// Rows `/// Sentence. name Type kind [rare] |lane, x| host form, "CUDA form of a", element [in] =>
/// [out];`
macro_rules! unary {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $kind:ident $($rare:ident)? |$lane:tt, $x:ident| $host:expr, $cuda:literal,
        $example:ident $input:tt => $output:tt;
    )+) => {
        $(
            $crate::ops::declare::function! {
                $kind [$($rare)?] $name $op [T] |$lane, $x| $host, $cuda
            }

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
    (@methods number $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Numeric, $($rest)+);
    };
    (@methods float $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods test $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods element $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Element, $($rest)+);
    };
    (@methods bits $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Bitwise, $($rest)+);
    };
    (@methods compare $($rest:tt)+) => {
        $crate::ops::declare::unary!(@bounded $crate::Element, $($rest)+);
    };
    (@bounded $bound:path, $op:ident $name:ident, $on_array:expr, $on_lazy:expr $(,)?) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            pub fn $name(&self) -> $crate::Lazy<$crate::ops::node::Apply<$op, ($crate::ops::node::Leaf<T>,)>> {
                $crate::ops::node::unary(self.lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            #[allow(clippy::should_implement_trait, reason = "`neg` and `not` are operators too")]
            pub fn $name(&self) -> $crate::Lazy<$crate::ops::node::Apply<$op, (E,)>> {
                $crate::ops::node::unary(self.clone())
            }
        }
    };
}

/// Rows `/// Sentence. name Type kind [rare] |lane, a, b| host form, "CUDA form", element [left],
/// [right] => [out];`, or `operator name Type kind |lane, a, b| host form, "CUDA form";` for what has
/// no method.
macro_rules! binary {
    ($(operator $name:ident $op:ident $kind:ident |$lane:tt, $a:ident, $b:ident| $host:expr, $cuda:literal;)+) => {
        $($crate::ops::declare::function! {
            $kind [] $name $op [T T] |$lane, $a, $b| $host, $cuda
        })+
    };
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $kind:ident $($rare:ident)? |$lane:tt, $a:ident, $b:ident| $host:expr, $cuda:literal,
        $example:ident $left:tt, $right:tt => $output:tt;
    )+) => {
        $(
            $crate::ops::declare::function! {
                $kind [$($rare)?] $name $op [T T] |$lane, $a, $b| $host, $cuda
            }

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
    (@methods number $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Numeric, $($rest)+);
    };
    (@methods float $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods test $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods element $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Element, $($rest)+);
    };
    (@methods bits $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Bitwise, $($rest)+);
    };
    (@methods compare $($rest:tt)+) => {
        $crate::ops::declare::binary!(@bounded $crate::Element, $($rest)+);
    };
    (@bounded $bound:path, $op:ident $name:ident, $on_array:expr, $on_lazy:expr $(,)?) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            pub fn $name<B: $crate::IntoExpr<T>>(&self, b: B) -> $crate::Lazy<$crate::ops::node::Apply<$op, ($crate::ops::node::Leaf<T>, B::Expr)>> {
                $crate::ops::node::binary(self.lazy(), b.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            pub fn $name<B: $crate::IntoExpr<E::Item>>(&self, b: B) -> $crate::Lazy<$crate::ops::node::Apply<$op, (E, B::Expr)>> {
                $crate::ops::node::binary(self.clone(), b.into_lazy())
            }
        }
    };
}

/// Rows of three arguments, as those of two.
macro_rules! ternary {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $kind:ident $($rare:ident)? |$lane:tt, $a:ident, $b:ident, $c:ident| $host:expr, $cuda:literal,
        $example:ident $first:tt, $second:tt, $third:tt => $output:tt;
    )+) => {
        $(
            $crate::ops::declare::function! {
                $kind [$($rare)?] $name $op [T T T] |$lane, $a, $b, $c| $host, $cuda
            }

            $crate::ops::declare::ternary! {
                @methods $kind $op $name,
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "a" = $first, "b" = $second, "c" = $third;
                    "a.", stringify!($name), "(&b, &c).eval()?.to_vec()?" => $output
                )),
                concat!($($doc, "\n",)+ $crate::ops::declare::example!(
                    $example "2": "a" = $first, "b" = $second, "c" = $third;
                    "a.lazy().", stringify!($name), "(b, c).eval()?.to_vec()?" => $output
                )),
            }
        )+
    };
    (@methods number $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Numeric, $($rest)+);
    };
    (@methods float $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods test $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Float, $($rest)+);
    };
    (@methods element $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Element, $($rest)+);
    };
    (@methods bits $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Bitwise, $($rest)+);
    };
    (@methods compare $($rest:tt)+) => {
        $crate::ops::declare::ternary!(@bounded $crate::Element, $($rest)+);
    };
    (@bounded $bound:path, $op:ident $name:ident, $on_array:expr, $on_lazy:expr $(,)?) => {
        impl<T: $bound> $crate::Array<T> {
            #[doc = $on_array]
            pub fn $name<B: $crate::IntoExpr<T>, C: $crate::IntoExpr<T>>(&self, b: B, c: C) -> $crate::Lazy<$crate::ops::node::Apply<$op, ($crate::ops::node::Leaf<T>, B::Expr, C::Expr)>> {
                $crate::ops::node::ternary(self.lazy(), b.into_lazy(), c.into_lazy())
            }
        }

        impl<E: $crate::Expr<Item: $bound>> $crate::Lazy<E> {
            #[doc = $on_lazy]
            pub fn $name<B: $crate::IntoExpr<E::Item>, C: $crate::IntoExpr<E::Item>>(&self, b: B, c: C) -> $crate::Lazy<$crate::ops::node::Apply<$op, (E, B::Expr, C::Expr)>> {
                $crate::ops::node::ternary(self.clone(), b.into_lazy(), c.into_lazy())
            }
        }
    };
}

pub(super) use {binary, example, function, ternary, unary};
