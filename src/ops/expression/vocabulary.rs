//! The operators and functions of type-erased values, from which the library builds gradient rules
//! and operations.

/// Defines the library's operators and functions for values whose element type is known only at run
/// time. The type of the values must have three methods. `dtype` returns the element type.
/// `constant` returns a single value of this type. `apply` applies a function to the value and
/// other values.
macro_rules! vocabulary {
    ($generics:tt $Value:ty) => {
        $crate::ops::expression::vocabulary::vocabulary! { @numbers $generics $Value }
        $crate::ops::expression::vocabulary::vocabulary! { @operators $generics $Value:
            Add add Added;
            Sub sub Subtracted;
            Mul mul Times;
            Div div Over;
        }
        $crate::ops::expression::vocabulary::vocabulary! { @methods $generics $Value:
            re() Re;
            im() Im;
            abs() Abs;
            square() Square;
            sqrt() Sqrt;
            sign() Sign;
            rsqrt() Rsqrt;
            recip() Recip;
            exp() Exp;
            exp_m1() ExpM1;
            ln() Ln;
            sin() Sin;
            cos() Cos;
            sinh() Sinh;
            cosh() Cosh;
            sigmoid() Sigmoid;
            erf() Erf;
            round() Round;
            is_nan() IsNan;
            and(other) And;
            or(other) Or;
            gt(other) Greater;
            ge(other) GreaterEqual;
            lt(other) Less;
            le(other) LessEqual;
            eq(other) Equal;
            ne(other) NotEqual;
            maximum(other) Maximum;
            minimum(other) Minimum;
            powf(exponent) Powf;
            powi(exponent) Powi;
            mul_add(factor, addend) MulAdd;
            clamp(least, most) Clamp;
        }
    };
    (@operators $generics:tt $Value:ty: $($trait:ident $method:ident $function:ident;)+) => {
        $($crate::ops::expression::vocabulary::vocabulary! { @operator $generics $Value: $trait $method $function })+
    };
    (@methods $generics:tt $Value:ty: $($name:ident($($other:ident),*) $function:ident;)+) => {
        $($crate::ops::expression::vocabulary::vocabulary! { @method $generics $Value: $name($($other),*) $function })+
    };
    (@numbers [$($life:lifetime)?] $Value:ty) => {
        impl $(<$life>)? std::ops::Neg for $Value {
            type Output = Self;

            fn neg(self) -> Self {
                self.apply($crate::ops::expression::elementwise::functions::Negated::CALLS, [])
            }
        }

        impl $(<$life>)? $Value {
            /// Returns the complex conjugate. For real numbers, returns the value itself.
            pub(crate) fn conj(self) -> Self {
                match self.dtype().is_complex() {
                    true => self.apply($crate::ops::expression::elementwise::functions::Conj::CALLS, []),
                    false => self,
                }
            }
        }
    };
    (@operator [$($life:lifetime)?] $Value:ty: $trait:ident $method:ident $function:ident) => {
        impl $(<$life>)? std::ops::$trait for $Value {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.apply($crate::ops::expression::elementwise::arithmetic::$function::CALLS, [other])
            }
        }

        impl $(<$life>)? std::ops::$trait<f64> for $Value {
            type Output = Self;

            fn $method(self, other: f64) -> Self {
                let other = self.constant(other);
                std::ops::$trait::$method(self, other)
            }
        }

        impl $(<$life>)? std::ops::$trait<$Value> for f64 {
            type Output = $Value;

            fn $method(self, other: $Value) -> $Value {
                std::ops::$trait::$method(other.constant(self), other)
            }
        }
    };
    (@method [$($life:lifetime)?] $Value:ty: $name:ident($($other:ident),*) $function:ident) => {
        #[allow(dead_code, reason = "some kinds of values use only some of the functions")]
        #[allow(clippy::wrong_self_convention, reason = "an expression is built from others")]
        impl $(<$life>)? $Value {
            pub(crate) fn $name(self $(, $other: Self)*) -> Self {
                self.apply($crate::ops::expression::elementwise::functions::$function::CALLS, [$($other),*])
            }
        }
    };
}

pub(in crate::ops) use vocabulary;
