//! Nodes of floats and complex numbers, with the operators and functions that rules are written in.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use num_complex::Complex;

use super::joint_graph::is_complex;
use crate::array::{AnyElement, Float, Number, bits_of};
use crate::ops::expression::elementwise::arithmetic::{Added, Over, Subtracted, Times};
use crate::ops::expression::elementwise::complex::OfParts;
use crate::ops::expression::elementwise::functions;
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::loops::Arguments;
use crate::ops::expression::node::{Function, call_of};
use crate::ops::expression::template::GraphTemplate;

/// A node whose elements are of `T`, with the operators and functions that rules are written in.
#[derive(Debug)]
pub(super) struct JointValue<'g, T> {
    joint: &'g RefCell<GraphTemplate>,
    pub(super) node: u32,
    element: PhantomData<T>,
}

impl<T> Clone for JointValue<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for JointValue<'_, T> {}

impl<'g, T> JointValue<'g, T> {
    pub(super) fn new(joint: &'g RefCell<GraphTemplate>, node: u32) -> Self {
        Self {
            joint,
            node,
            element: PhantomData,
        }
    }
}

impl<'g, T: AnyElement> JointValue<'g, T> {
    /// Appends one value.
    pub(super) fn constant(self, value: f64) -> Self {
        let bits = bits_of(<T as AnyElement>::from_f64(value));
        let node = self
            .joint
            .borrow_mut()
            .push(NodeKind::Scalar(bits), T::DTYPE);
        Self::new(self.joint, node)
    }

    pub(super) fn apply<U, F: Function<Args>, Args: Arguments>(
        self,
        others: &[u32],
    ) -> JointValue<'g, U> {
        let mut operands = vec![self.node];
        operands.extend(others);
        let node = self
            .joint
            .borrow_mut()
            .call(call_of::<F, Args>(), &operands);
        JointValue {
            joint: self.joint,
            node,
            element: PhantomData,
        }
    }

    /// Returns this value where the comparison is true, and zero elsewhere.
    pub(super) fn only_where(self, mask: JointValue<'g, bool>) -> Self {
        let zero = self.constant(0.0);
        let node = self.joint.borrow_mut().call(
            call_of::<Select, (bool, T, T)>(),
            &[mask.node, self.node, zero.node],
        );
        Self::new(self.joint, node)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)+) => {
        $(
            impl<'g, T: Number> $trait for JointValue<'g, T> {
                type Output = Self;

                fn $method(self, other: Self) -> Self {
                    self.apply::<T, $function, (T, T)>(&[other.node])
                }
            }

            impl<'g, T: Number> $trait<f64> for JointValue<'g, T> {
                type Output = Self;

                fn $method(self, other: f64) -> Self {
                    self.$method(self.constant(other))
                }
            }

            impl<'g, T: Number> $trait<JointValue<'g, T>> for f64 {
                type Output = JointValue<'g, T>;

                fn $method(self, other: JointValue<'g, T>) -> JointValue<'g, T> {
                    other.constant(self).$method(other)
                }
            }
        )+
    };
}

operators! {
    Add add Added;
    Sub sub Subtracted;
    Mul mul Times;
    Div div Over;
}

impl<T: Number> Neg for JointValue<'_, T> {
    type Output = Self;

    fn neg(self) -> Self {
        self.apply::<T, functions::Negated, (T,)>(&[])
    }
}

macro_rules! unary {
    ($($name:ident $function:ident;)+) => {
        impl<'g, T: Float> JointValue<'g, T> {
            $(
                pub(super) fn $name(self) -> Self {
                    self.apply::<T, functions::$function, (T,)>(&[])
                }
            )+
        }
    };
}

unary! {
    square Square;
    sign Sign;
    rsqrt Rsqrt;
    exp Exp;
    ln Ln;
    sin Sin;
    cos Cos;
    sinh Sinh;
    cosh Cosh;
    sigmoid Sigmoid;
    erf Erf;
    round Round;
}

macro_rules! comparisons {
    ($($name:ident $function:ident;)+) => {
        impl<'g, T: Float> JointValue<'g, T> {
            $(
                pub(super) fn $name(self, other: Self) -> JointValue<'g, bool> {
                    self.apply::<bool, functions::$function, (T, T)>(&[other.node])
                }
            )+
        }
    };
}

comparisons! {
    gt Greater;
    ge GreaterEqual;
    lt Less;
    le LessEqual;
    eq Equal;
    ne NotEqual;
}

impl<'g, T: Number> JointValue<'g, T> {
    /// Returns the complex conjugate; for real numbers, no node is added.
    pub(super) fn conj(self) -> Self {
        match is_complex(T::DTYPE) {
            true => self.apply::<T, functions::Conj, (T,)>(&[]),
            false => self,
        }
    }
}

/// Complex numbers, and their parts.
impl<'g, T: Float> JointValue<'g, Complex<T>>
where
    Complex<T>: Number<Part = T>,
{
    pub(super) fn of_parts(re: JointValue<'g, T>, im: JointValue<'g, T>) -> Self {
        re.apply::<Complex<T>, OfParts, (T, T)>(&[im.node])
    }

    pub(super) fn re(self) -> JointValue<'g, T> {
        self.apply::<T, functions::Re, (Complex<T>,)>(&[])
    }

    pub(super) fn im(self) -> JointValue<'g, T> {
        self.apply::<T, functions::Im, (Complex<T>,)>(&[])
    }
}

impl<'g, T: Float> JointValue<'g, T> {
    pub(super) fn powf(self, exponent: Self) -> Self {
        self.apply::<T, functions::Powf, (T, T)>(&[exponent.node])
    }
}
