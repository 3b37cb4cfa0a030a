//! Macros that expand a row of `functions!` to a function with a host form and a CUDA form.

/// Returns whether `cuda` names exactly the first `count` of the arguments `a`, `b`, `c` and `d`.
pub(crate) const fn names_arguments(cuda: &str, count: usize) -> bool {
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

/// Expands `name Type(argument: type, …) [size] => host form, "CUDA form"` of a kind to a function.
/// `size` is the magnitude from which on arguments are rare. If it is given, the function may flag
/// elements as rare. `pass` is the name of the pass in the host form.
macro_rules! function {
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident) $pass:ident $name:ident $op:ident($($x:ident $(: $type:ident)?),+) [$($rare:tt)?] => $host:expr, $cuda:literal
    ) => {
        #[doc = concat!("The elementwise operation `", stringify!($name), "`, as a type.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $op;

        const _: () = assert!(
            $crate::elementwise::declare::names_arguments($cuda, [$(stringify!($x)),+].len()),
            "the CUDA form must name every argument and no other"
        );

        impl $op {
            /// The function for each type of elements.
            pub const CALLS: &'static $crate::elementwise::call::Calls = {
                // The static is not generic. Therefore its loops are compiled with the library, at
                // the library's optimisation level.
                static CALLS: $crate::elementwise::call::Calls =
                    $crate::elementwise::loops::table!($kind $op);
                &CALLS
            };

            const fn call<T: $bound>() -> Option<$crate::elementwise::call::Call> {
                Some($crate::elementwise::call::Call::of::<
                    Self,
                    ($($crate::argument!([T] $($type)?),)+),
                >(
                    $crate::elementwise::operation::Operation::$op,
                    $crate::elementwise::declare::function!(@loop $kind ($($($type)?),+)),
                ))
            }
        }

        impl<T: $bound>
            $crate::elementwise::function::Function<($($crate::argument!([T] $($type)?),)+)> for $op
        {
            const NAME: &'static str = stringify!($name);
            const CUDA: &'static str = $cuda;
            const RARE: bool = $crate::elementwise::declare::function!(@rare $($rare)?);
            const WIDE: bool =
                $crate::elementwise::operation::Operation::$op.is_wide(T::DTYPE);
            const CALL: &'static $crate::elementwise::call::Call = Self::CALLS.at(T::DTYPE);
            type Output = $output;

            #[inline(always)]
            fn apply<L: $crate::element::scalar::pass::Pass>(
                $pass: &mut L,
                ($($x,)+): ($($crate::argument!([T] $($type)?),)+),
            ) -> $output {
                let _ = &$pass;
                $crate::elementwise::declare::function!(@$way $($x $($type)?,)+ => $host)
            }
        }
    };
    // These kinds compute narrow floats in `f32`.
    (@loop float $types:tt) => { $crate::elementwise::declare::function!(@widened $types) };
    (@loop test $types:tt) => { $crate::elementwise::declare::function!(@widened $types) };
    (@loop power $types:tt) => { $crate::elementwise::declare::function!(@widened $types) };
    (@loop number $types:tt) => { $crate::elementwise::declare::function!(@widened $types) };
    (@loop real $types:tt) => { $crate::elementwise::declare::function!(@widened $types) };
    (@loop $kind:ident ($($($type:ident)?),+)) => {
        $crate::elementwise::loops::Loops::of::<Self, ($($crate::argument!([T] $($type)?),)+)>()
    };
    (@widened ($($($type:ident)?),+)) => {
        $crate::elementwise::loops::Loops::widening::<
            Self,
            T,
            ($($crate::argument!([T] $($type)?),)+),
            ($($crate::argument!([f32] $($type)?),)+),
        >()
    };
    (@rare $from:tt) => { true };
    (@rare) => { false };
    (@own $($x:ident $($type:ident)?,)+ => $host:expr) => { $host };
    (@wide $($x:ident $($type:ident)?,)+ => $host:expr) => {{
        $($crate::elementwise::declare::function!(@widen $x $($type)?);)+
        $crate::element::scalar::convert($host)
    }};
    (@widen $x:ident) => { let $x: T::Accumulator = $crate::element::scalar::convert($x); };
    (@widen $x:ident $type:ident) => {};
    ($kind:ident $($rest:tt)+) => {
        $crate::of_kind! { function $kind $($rest)+ }
    };
}

/// Declares the function of single elements that a written function calls for a row. The module
/// that uses the macro must import the module of the rows as `rows`.
macro_rules! element {
    (
        @$kind:ident ($bound:path, $output:ty, $way:ident)
        $pass:ident $name:ident $op:ident ($($x:ident $(: $type:ident)?),+)
    ) => {
        #[doc = concat!("Applies `", stringify!($name), "` to single elements.")]
        #[inline(always)]
        pub fn $name<T: $bound, L: $crate::element::scalar::pass::Pass>(
            $($x: $crate::argument!([T] $($type)?),)+
            $pass: &mut L,
        ) -> $output {
            <rows::$op as $crate::elementwise::function::Function<(
                $($crate::argument!([T] $($type)?),)+
            )>>::apply($pass, ($($x,)+))
        }
    };
}

/// Calls the macro `of` with the properties that a row's kind implies. These are the element types,
/// the result type, and the type of the computation (`own` or `wide`).
#[doc(hidden)]
#[macro_export]
macro_rules! of_kind {
    ($of:ident number $($rest:tt)+) => {
        $of! { @number ($crate::Number, T, own) $($rest)+ }
    };
    ($of:ident part $($rest:tt)+) => {
        $of! { @part ($crate::Number, T::Part, own) $($rest)+ }
    };
    ($of:ident real $($rest:tt)+) => {
        $of! { @real ($crate::Numeric, T, own) $($rest)+ }
    };
    ($of:ident float $($rest:tt)+) => {
        $of! { @float ($crate::Float, T, wide) $($rest)+ }
    };
    ($of:ident test $($rest:tt)+) => {
        $of! { @test ($crate::Float, bool, wide) $($rest)+ }
    };
    ($of:ident ordered $($rest:tt)+) => {
        $of! { @ordered ($crate::Element, T, own) $($rest)+ }
    };
    ($of:ident power $($rest:tt)+) => {
        $of! { @power ($crate::Numeric, T, own) $($rest)+ }
    };
    ($of:ident integer $($rest:tt)+) => {
        $of! { @integer ($crate::Integer, T, own) $($rest)+ }
    };
    ($of:ident bits $($rest:tt)+) => {
        $of! { @bits ($crate::Bitwise, T, own) $($rest)+ }
    };
    ($of:ident compare $($rest:tt)+) => {
        $of! { @compare ($crate::Element, bool, own) $($rest)+ }
    };
    ($of:ident equality $($rest:tt)+) => {
        $of! { @equality ($crate::AnyElement, bool, own) $($rest)+ }
    };
}

/// Declares the function of each row. The macro is a callback of `functions!`.
macro_rules! rows {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        $($crate::elementwise::declare::rows! { @row $kind $pass $name $op $arguments $($body)+ })+
    };
    (
        @row $kind:ident $pass:ident $name:ident $op:ident ($($x:ident $(: $type:ident)?),+)
        host: $single:expr, $double:expr; $(rare: $from:literal;)? cuda: $cuda:literal; $($rest:tt)+
    ) => {
        $crate::elementwise::declare::function! {
            $kind $pass $name $op($($x $(: $type)?),+) [$($from)?]
            => math::$name($pass, $($x),+), $cuda
        }
    };
    (
        @row $kind:ident $pass:ident $name:ident $op:ident $arguments:tt
        host: $host:expr; cuda: $cuda:literal; $($rest:tt)+
    ) => {
        $crate::elementwise::declare::function! { $kind $pass $name $op $arguments [] => $host, $cuda }
    };
}

/// Expands to the type of an argument. If the argument names no type, expands to the element type.
#[doc(hidden)]
#[macro_export]
macro_rules! argument {
    ([$($own:tt)+]) => { $($own)+ };
    ([$($own:tt)+] $type:ident) => { $type };
}

pub(crate) use element;
pub(crate) use function;
pub(crate) use rows;
