//! The operators: `+ - * / %` of numbers, `& | ^` of bits and truth values, `<< >>` of integers,
//! unary minus and `!`. The operands are arrays, expressions and single values, in any combination.

use std::ops;

use half::{bf16, f16};
use num_complex::Complex;

use crate::array::{Array, Bitwise, Float, Integer, Number, Numeric};
use crate::ops::expression::elementwise::arithmetic::{Added, Modulo, Over, Subtracted, Times};
use crate::ops::expression::elementwise::functions::{And, Negated, Not, Or, Shl, Shr, Xor};
use crate::ops::expression::expr::{Expr, IntoExpr, Lazy};
use crate::ops::expression::node::{Apply, Leaf, Scalar, binary, unary};

/// Implements an operator whose left side is an array or an expression. The right side is generic,
/// so that the left element type determines the type of a literal on the right.
macro_rules! operator {
    ($bound:ident $scalars:tt $($trait:ident $op:ident $method:ident;)+) => {
        $(
            impl<T: $bound, R: IntoExpr<T>> ops::$trait<R> for &Array<T> {
                type Output = Lazy<Apply<$op, (Leaf<T>, R::Expr)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: R) -> Self::Output {
                    binary(self.lazy(), right.into_lazy())
                }
            }

            impl<T: $bound, R: IntoExpr<T>> ops::$trait<R> for Array<T> {
                type Output = Lazy<Apply<$op, (Leaf<T>, R::Expr)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: R) -> Self::Output {
                    binary(self.into_lazy(), right.into_lazy())
                }
            }

            impl<E: Expr<Item: $bound>, R: IntoExpr<E::Item>> ops::$trait<R> for Lazy<E> {
                type Output = Lazy<Apply<$op, (E, R::Expr)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: R) -> Self::Output {
                    binary(self, right.into_lazy())
                }
            }

            impl<E: Expr<Item: $bound>, R: IntoExpr<E::Item>> ops::$trait<R> for &Lazy<E> {
                type Output = Lazy<Apply<$op, (E, R::Expr)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: R) -> Self::Output {
                    binary(self.clone(), right.into_lazy())
                }
            }

            scalar_on_the_left!($trait $op $method: $scalars);
        )+
    };
}

/// Implements an operator whose left side is a single value. A foreign type on the left requires
/// one implementation for each type.
macro_rules! scalar_on_the_left {
    ($trait:ident $op:ident $method:ident: [$($scalar:ident $(<$part:ident>)?)+]) => {
        $(
            impl ops::$trait<&Array<$scalar $(<$part>)?>> for $scalar $(<$part>)? {
                type Output = Lazy<Apply<$op, (Scalar<$scalar $(<$part>)?>, Leaf<$scalar $(<$part>)?>)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: &Array<$scalar $(<$part>)?>) -> Self::Output {
                    binary(self.into_lazy(), right.lazy())
                }
            }

            impl ops::$trait<Array<$scalar $(<$part>)?>> for $scalar $(<$part>)? {
                type Output = Lazy<Apply<$op, (Scalar<$scalar $(<$part>)?>, Leaf<$scalar $(<$part>)?>)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: Array<$scalar $(<$part>)?>) -> Self::Output {
                    binary(self.into_lazy(), right.into_lazy())
                }
            }

            impl<E: Expr<Item = $scalar $(<$part>)?>> ops::$trait<Lazy<E>> for $scalar $(<$part>)? {
                type Output = Lazy<Apply<$op, (Scalar<$scalar $(<$part>)?>, E)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: Lazy<E>) -> Self::Output {
                    binary(self.into_lazy(), right)
                }
            }

            impl<E: Expr<Item = $scalar $(<$part>)?>> ops::$trait<&Lazy<E>> for $scalar $(<$part>)? {
                type Output = Lazy<Apply<$op, (Scalar<$scalar $(<$part>)?>, E)>>;

                #[inline(always)]
                #[track_caller]
                fn $method(self, right: &Lazy<E>) -> Self::Output {
                    binary(self.into_lazy(), right.clone())
                }
            }
        )+
    };
}

operator! {
    Number [f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 Complex<f32> Complex<f64>]
    Add Added add;
    Sub Subtracted sub;
    Mul Times mul;
    Div Over div;
}

operator! {
    Numeric [f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64]
    Rem Modulo rem;
}

operator! {
    Bitwise [bool i8 i16 i32 i64 u8 u16 u32 u64]
    BitAnd And bitand;
    BitOr Or bitor;
    BitXor Xor bitxor;
}

operator! {
    Integer [i8 i16 i32 i64 u8 u16 u32 u64]
    Shl Shl shl;
    Shr Shr shr;
}

/// The element types that an integer on the left converts to. No type implements the trait, so the
/// compiler shows the message.
#[diagnostic::on_unimplemented(
    message = "an integer is not an operand for elements of `{Self}`",
    label = "the left side is an integer, the right side has elements of `{Self}`",
    note = "to convert a number of another type, write `as {Self}` after it; for `f16` and `bf16`, call `from_f64`",
    note = "a float literal needs a decimal point: write `2.0`, not `2`"
)]
pub trait TakesIntegers {
    /// Returns the result of an operator that cannot be called.
    fn never<T>() -> T;
}

/// The element types that an `f64` on the left converts to. No type implements the trait, so the
/// compiler shows the message.
#[diagnostic::on_unimplemented(
    message = "an `f64` is not an operand for elements of `{Self}`",
    label = "the left side is an `f64`, the right side has elements of `{Self}`",
    note = "to convert a number of another type, write `as {Self}` after it; for `f16` and `bf16`, call `from_f64`",
    note = "to convert an array of another type, call `.cast::<f64>()`"
)]
pub trait TakesDoubles {
    /// Returns the result of an operator that cannot be called.
    fn never<T>() -> T;
}

/// Implements operators of a number and an array of another type. No type satisfies their bounds,
/// so the compiler shows the message of the bound.
///
/// The numbers have the default types of literals. With two integer or two float types, a literal
/// would have several candidates. The compiler would then not show the message. Expressions on the
/// right have no such operators, because they would overlap with the operators of `operator!`.
macro_rules! number_of_another_type {
    ($($trait:ident $op:ident $method:ident;)+) => {
        $(
            number_of_another_type!(@for Array<T>, $trait $op $method);
            number_of_another_type!(@for &Array<T>, $trait $op $method);
        )+
    };
    (@for $right:ty, $trait:ident $op:ident $method:ident) => {
        #[doc(hidden)]
        impl<T: Numeric + TakesDoubles> ops::$trait<$right> for f64 {
            type Output = Lazy<Apply<$op, (Scalar<T>, Leaf<T>)>>;

            fn $method(self, _: $right) -> Self::Output {
                <T as TakesDoubles>::never()
            }
        }

        #[doc(hidden)]
        impl<T: Float + TakesIntegers> ops::$trait<$right> for i32 {
            type Output = Lazy<Apply<$op, (Scalar<T>, Leaf<T>)>>;

            fn $method(self, _: $right) -> Self::Output {
                <T as TakesIntegers>::never()
            }
        }
    };
}

number_of_another_type! {
    Add Added add;
    Sub Subtracted sub;
    Mul Times mul;
    Div Over div;
    Rem Modulo rem;
}

/// Implements an operator of one operand, an array or an expression.
macro_rules! sign {
    ($trait:ident $op:ident $method:ident: $bound:ident) => {
        impl<T: $bound> ops::$trait for &Array<T> {
            type Output = Lazy<Apply<$op, (Leaf<T>,)>>;

            #[inline(always)]
            #[track_caller]
            fn $method(self) -> Self::Output {
                unary(self.lazy())
            }
        }

        impl<T: $bound> ops::$trait for Array<T> {
            type Output = Lazy<Apply<$op, (Leaf<T>,)>>;

            #[inline(always)]
            #[track_caller]
            fn $method(self) -> Self::Output {
                unary(self.into_lazy())
            }
        }

        impl<E: Expr<Item: $bound>> ops::$trait for Lazy<E> {
            type Output = Lazy<Apply<$op, (E,)>>;

            #[inline(always)]
            #[track_caller]
            fn $method(self) -> Self::Output {
                unary(self)
            }
        }

        impl<E: Expr<Item: $bound>> ops::$trait for &Lazy<E> {
            type Output = Lazy<Apply<$op, (E,)>>;

            #[inline(always)]
            #[track_caller]
            fn $method(self) -> Self::Output {
                unary(self.clone())
            }
        }
    };
}

sign!(Neg Negated neg: Number);
sign!(Not Not not: Bitwise);
