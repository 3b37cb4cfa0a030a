//! The functions that the code of `elementwise!` calls.
//!
//! Each function of single elements calls a row of `functions!`. `elementwise!` declares a *written
//! function* as a composition of these functions. Therefore a written function and the composition
//! of the built-in operations return equal bits. The bits are equal for `f16` and `bf16`, too,
//! because every function and operator rounds its result to these types.

pub mod terms;
pub mod text;

/// Declares the functions that a written function calls. The macro is a callback of `functions!`.
macro_rules! elements {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The functions of single elements. Arguments are evaluated in order, and the expressions
        /// of the other arguments also borrow the pass. Therefore the pass is the last argument.
        pub mod element {
            use crate::elementwise::declare::element;
            use crate::of_kind;
            use crate::elementwise::functions as rows;

            $(of_kind! { element $kind $pass $name $op $arguments })+

            /// The CUDA forms of the functions, as lambdas of `a_`, `b_` and `c_`.
            #[allow(non_upper_case_globals, reason = "each constant has the name of its function")]
            pub mod cuda {
                $(elements! { @cuda $kind $name $arguments $($body)+ })+
            }

            /// Flags that are `true` for functions that may encounter rare elements.
            #[allow(non_upper_case_globals, reason = "each constant has the name of its function")]
            pub mod rare {
                $(elements! { @rare $kind $name $($body)+ })+
            }
        }
    };
    (
        @cuda $kind:ident $name:ident $arguments:tt
        host: $($host:expr),+; $(rare: $from:literal;)? cuda: $cuda:literal; $($rest:tt)+
    ) => {
        #[doc = concat!("The CUDA form of `", stringify!($name), "`.")]
        pub const $name: &str = concat!(
            elements!(@types $arguments), elements!(@result $kind), elements!(@values $arguments),
            " return R(", $cuda, "); }"
        );
    };
    (@types ($x:ident)) => { "[](auto a_) { using T = cs_common<decltype(a_)>;" };
    (@types ($x:ident, $y:ident)) => {
        "[](auto a_, auto b_) { using T = cs_common<decltype(a_), decltype(b_)>;"
    };
    (@types ($x:ident, $y:ident: i32)) => { "[](auto a_, auto b_) { using T = cs_common<decltype(a_)>;" };
    (@types ($x:ident, $y:ident, $z:ident)) => {
        "[](auto a_, auto b_, auto c_) { using T = cs_common<decltype(a_), decltype(b_), decltype(c_)>;"
    };
    (@values ($x:ident)) => { " auto a = cs_wide(T(a_));" };
    (@values ($x:ident, $y:ident)) => { " auto a = cs_wide(T(a_)); auto b = cs_wide(T(b_));" };
    (@values ($x:ident, $y:ident: i32)) => { " auto a = cs_wide(T(a_)); i32 b = b_;" };
    (@values ($x:ident, $y:ident, $z:ident)) => {
        " auto a = cs_wide(T(a_)); auto b = cs_wide(T(b_)); auto c = cs_wide(T(c_));"
    };
    (@result test) => { " using R = bool;" };
    (@result compare) => { " using R = bool;" };
    (@result equality) => { " using R = bool;" };
    (@result $kind:ident) => { " using R = T;" };
    (
        @rare $kind:ident $name:ident
        host: $($host:expr),+; $(rare: $from:literal;)? cuda: $cuda:literal; $($rest:tt)+
    ) => {
        #[doc = concat!("True if `", stringify!($name), "` may encounter rare elements.")]
        pub const $name: bool = !stringify!($($from)?).is_empty();
    };
}

functions! { elements }

/// The operators. They are separate functions, because compiler errors in written functions quote
/// their names.
pub mod operators {
    use crate::element::scalar::convert;
    use crate::{AnyElement, Integer, Number, Numeric};

    /// Returns `left + right`.
    #[inline(always)]
    pub fn add<T: Number>(left: T, right: T) -> T {
        left.plus(right)
    }

    /// Returns `left - right`.
    #[inline(always)]
    pub fn sub<T: Number>(left: T, right: T) -> T {
        left.minus(right)
    }

    /// Returns `left * right`.
    #[inline(always)]
    pub fn mul<T: Number>(left: T, right: T) -> T {
        left.times(right)
    }

    /// Returns `left / right`.
    #[inline(always)]
    pub fn div<T: Number>(left: T, right: T) -> T {
        left.over(right)
    }

    /// Returns `left % right`.
    #[inline(always)]
    pub fn rem<T: Numeric>(left: T, right: T) -> T {
        left.modulo(right)
    }

    /// Returns `-x`.
    #[inline(always)]
    pub fn neg<T: Number>(x: T) -> T {
        x.negated()
    }

    /// Returns `x << count`. Only the lowest bits of `count` are used.
    #[inline(always)]
    pub fn shl<T: Integer>(x: T, count: T) -> T {
        x.shifted_left(count)
    }

    /// Returns `x >> count`. Only the lowest bits of `count` are used. For a signed integer,
    /// extends the sign.
    #[inline(always)]
    pub fn shr<T: Integer>(x: T, count: T) -> T {
        x.shifted_right(count)
    }

    /// Returns `x as U`.
    #[inline(always)]
    pub fn cast<U: AnyElement, T: AnyElement>(x: T) -> U {
        convert(x)
    }
}

#[cfg(test)]
mod tests {
    use super::element::{cuda, rare};

    #[test]
    fn a_row_is_a_lambda_that_takes_literals_for_the_type_of_the_others() {
        assert_eq!(
            cuda::exp,
            "[](auto a_) { using T = cs_common<decltype(a_)>; using R = T; auto a = cs_wide(T(a_)); return R(exp(a)); }"
        );
        assert_eq!(
            cuda::powf,
            "[](auto a_, auto b_) { using T = cs_common<decltype(a_), decltype(b_)>; using R = T; auto a = cs_wide(T(a_)); \
             auto b = cs_wide(T(b_)); return R(pow(a, b)); }"
        );
        assert_eq!(
            cuda::powi,
            "[](auto a_, auto b_) { using T = cs_common<decltype(a_)>; using R = T; auto a = cs_wide(T(a_)); i32 b = b_; \
             return R(cs_powi(a, b)); }"
        );
        assert!(cuda::is_nan.contains("using R = bool; auto a = cs_wide(T(a_)); return R(a != a)"));
        assert_eq!((rare::sin, rare::exp), (true, false));
    }
}
