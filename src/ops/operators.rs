//! The operators: `+ - * / %` between arrays, expressions and single values in every mix, and
//! unary minus.

use std::ops;

use half::{bf16, f16};

use super::elementwise::{Add, Div, Mul, Neg, Rem, Sub};
use super::expr::{Expr, IntoExpr, Lazy};
use super::node::{Apply, Leaf, Scalar, binary, unary};
use crate::array::{Array, Numeric};

/// An operator whose left side is an array or an expression. The right side is generic, so that the
/// element type on the left decides the type of a literal on the right.
macro_rules! operator {
    ($($op:ident $method:ident;)+) => {
        $(
            impl<T: Numeric, R: IntoExpr<T>> ops::$op<R> for &Array<T> {
                type Output = Lazy<Apply<$op, (Leaf<T>, R::Expr)>>;

                #[inline(always)]

                fn $method(self, right: R) -> Self::Output {
                    binary(self.lazy(), right.into_lazy())
                }
            }

            impl<T: Numeric, R: IntoExpr<T>> ops::$op<R> for Array<T> {
                type Output = Lazy<Apply<$op, (Leaf<T>, R::Expr)>>;

                #[inline(always)]

                fn $method(self, right: R) -> Self::Output {
                    binary(self.into_lazy(), right.into_lazy())
                }
            }

            impl<E: Expr<Item: Numeric>, R: IntoExpr<E::Item>> ops::$op<R> for Lazy<E> {
                type Output = Lazy<Apply<$op, (E, R::Expr)>>;

                #[inline(always)]

                fn $method(self, right: R) -> Self::Output {
                    binary(self, right.into_lazy())
                }
            }

            impl<E: Expr<Item: Numeric>, R: IntoExpr<E::Item>> ops::$op<R> for &Lazy<E> {
                type Output = Lazy<Apply<$op, (E, R::Expr)>>;

                #[inline(always)]

                fn $method(self, right: R) -> Self::Output {
                    binary(self.clone(), right.into_lazy())
                }
            }

            scalar_on_the_left!($op $method: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);
        )+
    };
}

/// An operator whose left side is a single value; one implementation for each type, as a foreign
/// type on the left demands.
macro_rules! scalar_on_the_left {
    ($op:ident $method:ident: $($scalar:ident)+) => {
        $(
            impl ops::$op<&Array<$scalar>> for $scalar {
                type Output = Lazy<Apply<$op, (Scalar<$scalar>, Leaf<$scalar>)>>;

                #[inline(always)]

                fn $method(self, right: &Array<$scalar>) -> Self::Output {
                    binary(self.into_lazy(), right.lazy())
                }
            }

            impl ops::$op<Array<$scalar>> for $scalar {
                type Output = Lazy<Apply<$op, (Scalar<$scalar>, Leaf<$scalar>)>>;

                #[inline(always)]

                fn $method(self, right: Array<$scalar>) -> Self::Output {
                    binary(self.into_lazy(), right.into_lazy())
                }
            }

            impl<E: Expr<Item = $scalar>> ops::$op<Lazy<E>> for $scalar {
                type Output = Lazy<Apply<$op, (Scalar<$scalar>, E)>>;

                #[inline(always)]

                fn $method(self, right: Lazy<E>) -> Self::Output {
                    binary(self.into_lazy(), right)
                }
            }

            impl<E: Expr<Item = $scalar>> ops::$op<&Lazy<E>> for $scalar {
                type Output = Lazy<Apply<$op, (Scalar<$scalar>, E)>>;

                #[inline(always)]

                fn $method(self, right: &Lazy<E>) -> Self::Output {
                    binary(self.into_lazy(), right.clone())
                }
            }
        )+
    };
}

operator! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
    Rem rem;
}

impl<T: Numeric> ops::Neg for &Array<T> {
    type Output = Lazy<Apply<Neg, (Leaf<T>,)>>;

    #[inline(always)]
    fn neg(self) -> Self::Output {
        unary(self.lazy())
    }
}

impl<T: Numeric> ops::Neg for Array<T> {
    type Output = Lazy<Apply<Neg, (Leaf<T>,)>>;

    #[inline(always)]
    fn neg(self) -> Self::Output {
        unary(self.into_lazy())
    }
}

impl<E: Expr<Item: Numeric>> ops::Neg for Lazy<E> {
    type Output = Lazy<Apply<Neg, (E,)>>;

    #[inline(always)]
    fn neg(self) -> Self::Output {
        unary(self)
    }
}

impl<E: Expr<Item: Numeric>> ops::Neg for &Lazy<E> {
    type Output = Lazy<Apply<Neg, (E,)>>;

    #[inline(always)]
    fn neg(self) -> Self::Output {
        unary(self.clone())
    }
}
