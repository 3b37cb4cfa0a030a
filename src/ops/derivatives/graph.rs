//! A formula and what is derived from it, as terms that own nothing: the same for every dtype and for memory that is not
//! there yet.

use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use num_complex::Complex;
use smallvec::SmallVec;

use crate::array::{AnyElement, Bits, DType, Float, Number, bits_of};
use crate::ops::elementwise::arithmetic::{Added, Over, Subtracted, Times};
use crate::ops::elementwise::cast::Cast;
use crate::ops::elementwise::complex::OfParts;
use crate::ops::elementwise::functions::{self, And, Not, Or};
use crate::ops::elementwise::select::Select;
use crate::ops::formula::{Formula, Of};
use crate::ops::host::Arguments;
use crate::ops::node::{Function, call_of};
use crate::ops::tree::{Call, MOST_OPERANDS, Node, Operand, Tree};
use crate::ops::written::terms::{Part, Terms};

/// A term of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) of: TermOf,
    pub(super) dtype: DType,
}

/// What a term is.
#[derive(Clone, Copy, Debug)]
pub(super) enum TermOf {
    /// An operand of the formula, by its number in this.
    Operand(usize),
    /// An array that is given when gradients are asked for: a result of the step, or the gradient of one.
    Given(Given),
    Scalar(Bits),
    Call(&'static Call, [u32; MOST_OPERANDS]),
}

/// An array of the step whose gradients are asked for, by the number of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Result(usize),
    Gradient(usize),
}

/// Terms in the order in which they can be computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) terms: Vec<Term>,
}

/// The parts of a gradient, one for each use of what it is of, each with the truth value under which it counts; always if with
/// none. Where a part does not count, because a choice was made against what it passes back from, it may be anything: infinite
/// slopes are beside the choice as well as before it.
pub(super) type Contributions = SmallVec<[(u32, Option<u32>); 2]>;

impl Graph {
    /// The terms of a formula, and what numbers these have here. In the place of a written function stands its body.
    pub(super) fn of(formula: &Formula<'_>) -> (Self, Vec<u32>) {
        let (mut graph, mut numbers) = (Self::default(), Vec::new());
        let mut operands = 0;
        for term in formula.terms() {
            let number = match term.of {
                Of::Array(_) => {
                    operands += 1;
                    graph.push(TermOf::Operand(operands - 1), term.dtype)
                }
                Of::Scalar(bits) => graph.push(TermOf::Scalar(bits), term.dtype),
                Of::Call(call, operands) => {
                    let operands = operands[..call.arity].iter();
                    let operands: SmallVec<[u32; 4]> =
                        operands.map(|&own| numbers[own as usize]).collect();
                    graph.written(call, &operands)
                }
            };
            numbers.push(number);
        }
        (graph, numbers)
    }

    /// A call, or what its body is made of.
    fn written(&mut self, call: &'static Call, arguments: &[u32]) -> u32 {
        let mut body = Terms::default();
        let derives = call.body.filter(|_| call.partials.is_none());
        let Some(result) = derives.and_then(|derives| derives(&mut body)) else {
            return self.call(call, arguments);
        };
        let mut numbers: Vec<u32> = Vec::new();
        for own in body.own {
            let number = match own.of {
                Part::Argument(argument) => arguments[argument],
                Part::Scalar(bits) => self.push(TermOf::Scalar(bits), own.dtype),
                Part::Call(call, operands) => {
                    let operands = operands.iter().map(|&own| numbers[own as usize]);
                    let operands: SmallVec<[u32; 4]> = operands.collect();
                    self.written(call, &operands)
                }
            };
            numbers.push(number);
        }
        numbers[result as usize]
    }

    pub(super) fn push(&mut self, of: TermOf, dtype: DType) -> u32 {
        self.terms.push(Term { of, dtype });
        self.terms.len() as u32 - 1
    }

    pub(super) fn call(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        let mut all = [0; MOST_OPERANDS];
        all[..operands.len()].copy_from_slice(operands);
        self.push(TermOf::Call(call, all), call.output)
    }

    /// The sum of a gradient's parts, right wherever the truth value with it holds. It holds where any part counts.
    pub(super) fn sum_where_counted(
        &mut self,
        parts: &Contributions,
    ) -> Option<(u32, Option<u32>)> {
        let (&(first, counts), others) = parts.split_first()?;
        if others.iter().all(|&(_, own)| own == counts) {
            let sum = others
                .iter()
                .fold(first, |sum, &(own, _)| self.add(sum, own));
            return Some((sum, counts));
        }
        let counts = others.iter().fold(counts, |either, &(_, own)| {
            let (either, own) = (either?, own?);
            Some(self.call(call_of::<Or, (bool, bool)>(), &[either, own]))
        });
        Some((self.sum(parts)?, counts))
    }

    /// The sum of a gradient's parts where they count.
    pub(super) fn sum(&mut self, parts: &Contributions) -> Option<u32> {
        let parts = parts.iter().map(|&(own, counts)| match counts {
            None => own,
            Some(counts) => self.only_where(counts, own),
        });
        let parts: SmallVec<[u32; 2]> = parts.collect();
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        Some(parts.fold(first, |sum, own| self.add(sum, own)))
    }

    /// Where an operand of a call counts, if the call does where `counts` holds: what was chosen against does not.
    pub(super) fn counts(
        &mut self,
        call: &Call,
        operands: &[u32],
        (place, counts): (usize, Option<u32>),
    ) -> Option<u32> {
        if (call.id)() != TypeId::of::<Select>() {
            return counts;
        }
        let chosen = match place {
            1 => operands[0],
            _ => self.call(call_of::<Not, (bool,)>(), &operands[..1]),
        };
        let both = |counts| self.call(call_of::<And, (bool, bool)>(), &[counts, chosen]);
        Some(counts.map_or(chosen, both))
    }

    /// A number where the truth value holds, and zero elsewhere.
    fn only_where(&mut self, holds: u32, value: u32) -> u32 {
        let dtype = self.terms[value as usize].dtype;
        let (select, zero) = select_or_zero(dtype);
        let zero = self.push(TermOf::Scalar(zero), dtype);
        self.call(select, &[holds, value, zero])
    }

    /// The sum of two terms of one type.
    fn add(&mut self, one: u32, other: u32) -> u32 {
        let call = sum_of(self.terms[one as usize].dtype);
        self.call(call, &[one, other])
    }
}

/// `$f::<T>()` for the type of floats of a dtype; none for other types.
macro_rules! by_float {
    ($dtype:expr, $T:ident => $value:expr) => {
        match $dtype {
            $crate::array::DType::F32 => {
                type $T = f32;
                Some($value)
            }
            $crate::array::DType::F64 => {
                type $T = f64;
                Some($value)
            }
            $crate::array::DType::F16 => {
                type $T = half::f16;
                Some($value)
            }
            $crate::array::DType::Bf16 => {
                type $T = half::bf16;
                Some($value)
            }
            _ => None,
        }
    };
}

/// The same for the types that gradients are of: floats, and complex numbers of floats.
macro_rules! by_differentiable {
    ($dtype:expr, $T:ident => $value:expr) => {
        match $dtype {
            $crate::array::DType::C32 => {
                type $T = num_complex::Complex<f32>;
                Some($value)
            }
            $crate::array::DType::C64 => {
                type $T = num_complex::Complex<f64>;
                Some($value)
            }
            dtype => $crate::ops::derivatives::by_float!(dtype, $T => $value),
        }
    };
}

pub(in crate::ops) use {by_differentiable, by_float};

/// The addition of numbers of that type.
fn sum_of(dtype: DType) -> &'static Call {
    let call = by_differentiable!(dtype, T => call_of::<Added, (T, T)>());
    call.expect(DIFFERENTIABLE)
}

/// What holds of the type of every gradient.
pub(in crate::ops) const DIFFERENTIABLE: &str = "gradients are floats or complex numbers";

/// Whether there are gradients of that type.
pub(super) fn is_differentiable(dtype: DType) -> bool {
    is_float(dtype) || is_complex(dtype)
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
}

pub(super) fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C32 | DType::C64)
}

/// The conversion of numbers of one type to another.
pub(super) fn cast(from: DType, to: DType) -> Option<&'static Call> {
    by_differentiable!(from, F => by_differentiable!(to, T => call_of::<Cast<T>, (F,)>()))?
}

/// The choice between numbers of that type, and their zero.
fn select_or_zero(dtype: DType) -> (&'static Call, Bits) {
    let both = by_differentiable!(dtype, T => {
        let zero = bits_of(<T as AnyElement>::from_f64(0.0));
        (call_of::<Select, (bool, T, T)>(), zero)
    });
    both.expect(DIFFERENTIABLE)
}

/// The sum of two arrays of one type, as an expression that borrows them.
pub(super) struct Adding<'a>(pub(super) Operand<'a>, pub(super) Operand<'a>);

impl Tree for Adding<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<'a>)) {
        see(Node::Array(self.0));
        see(Node::Array(self.1));
        see(Node::Call(sum_of(self.0.dtype)));
    }
}

/// A term whose elements are of `T`, with the operators and functions that rules are written in.
#[derive(Debug)]
pub(super) struct Value<'g, T> {
    graph: &'g RefCell<Graph>,
    pub(super) term: u32,
    element: PhantomData<T>,
}

impl<T> Clone for Value<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Value<'_, T> {}

impl<'g, T> Value<'g, T> {
    pub(super) fn new(graph: &'g RefCell<Graph>, term: u32) -> Self {
        Self {
            graph,
            term,
            element: PhantomData,
        }
    }
}

impl<'g, T: AnyElement> Value<'g, T> {
    /// One value.
    pub(super) fn constant(self, value: f64) -> Self {
        let bits = bits_of(<T as AnyElement>::from_f64(value));
        let term = self.graph.borrow_mut().push(TermOf::Scalar(bits), T::DTYPE);
        Self::new(self.graph, term)
    }

    pub(super) fn apply<U, F: Function<Args>, Args: Arguments>(
        self,
        others: &[u32],
    ) -> Value<'g, U> {
        let mut operands = vec![self.term];
        operands.extend(others);
        let term = self
            .graph
            .borrow_mut()
            .call(call_of::<F, Args>(), &operands);
        Value {
            graph: self.graph,
            term,
            element: PhantomData,
        }
    }

    /// This where the comparison holds, and zero elsewhere.
    pub(super) fn only_where(self, mask: Value<'g, bool>) -> Self {
        let zero = self.constant(0.0);
        let term = self.graph.borrow_mut().call(
            call_of::<Select, (bool, T, T)>(),
            &[mask.term, self.term, zero.term],
        );
        Self::new(self.graph, term)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)+) => {
        $(
            impl<'g, T: Number> $trait for Value<'g, T> {
                type Output = Self;

                fn $method(self, other: Self) -> Self {
                    self.apply::<T, $function, (T, T)>(&[other.term])
                }
            }

            impl<'g, T: Number> $trait<f64> for Value<'g, T> {
                type Output = Self;

                fn $method(self, other: f64) -> Self {
                    self.$method(self.constant(other))
                }
            }

            impl<'g, T: Number> $trait<Value<'g, T>> for f64 {
                type Output = Value<'g, T>;

                fn $method(self, other: Value<'g, T>) -> Value<'g, T> {
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

impl<T: Number> Neg for Value<'_, T> {
    type Output = Self;

    fn neg(self) -> Self {
        self.apply::<T, functions::Negated, (T,)>(&[])
    }
}

macro_rules! unary {
    ($($name:ident $function:ident;)+) => {
        impl<'g, T: Float> Value<'g, T> {
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
        impl<'g, T: Float> Value<'g, T> {
            $(
                pub(super) fn $name(self, other: Self) -> Value<'g, bool> {
                    self.apply::<bool, functions::$function, (T, T)>(&[other.term])
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

impl<'g, T: Number> Value<'g, T> {
    /// The complex conjugate; of real numbers no term more.
    pub(super) fn conj(self) -> Self {
        match is_complex(T::DTYPE) {
            true => self.apply::<T, functions::Conj, (T,)>(&[]),
            false => self,
        }
    }
}

/// Complex numbers, and their parts.
impl<'g, T: Float> Value<'g, Complex<T>>
where
    Complex<T>: Number<Part = T>,
{
    pub(super) fn of_parts(re: Value<'g, T>, im: Value<'g, T>) -> Self {
        re.apply::<Complex<T>, OfParts, (T, T)>(&[im.term])
    }

    pub(super) fn re(self) -> Value<'g, T> {
        self.apply::<T, functions::Re, (Complex<T>,)>(&[])
    }

    pub(super) fn im(self) -> Value<'g, T> {
        self.apply::<T, functions::Im, (Complex<T>,)>(&[])
    }
}

impl<'g, T: Float> Value<'g, T> {
    pub(super) fn powf(self, exponent: Self) -> Self {
        self.apply::<T, functions::Powf, (T, T)>(&[exponent.term])
    }
}
