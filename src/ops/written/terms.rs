//! The bodies of written functions as terms, of which derivatives are derived: the third form, beside that for the host and the
//! text for a GPU.
//!
//! A term is typed, so that literals get their types as they do on the host.

use std::marker::PhantomData;

use smallvec::SmallVec;

use crate::array::{AnyElement, Bits, DType, bits_of};
use crate::ops::elementwise::functions::And;
use crate::ops::elementwise::select::Select;
use crate::ops::host::Arguments;
use crate::ops::node::{Function, call_of};
use crate::ops::tree::Call;

/// A part of a body, of elements of `T`.
#[derive(Debug)]
pub struct Term<T> {
    number: u32,
    element: PhantomData<T>,
}

impl<T> Clone for Term<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Term<T> {}

/// What a part is.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Argument(usize),
    Scalar(Bits),
    Call(&'static Call, SmallVec<[u32; 4]>),
}

/// A part with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) of: Part,
    pub(crate) dtype: DType,
    /// The truth value under which the part counts, where it stands in a branch.
    pub(crate) branch: Option<u32>,
}

/// The parts of a body, in the order in which they can be computed.
#[derive(Debug, Default)]
pub struct Terms {
    pub(crate) own: Vec<Own>,
    branch: Option<u32>,
    /// Whether a part is no function of arrays.
    is_opaque: bool,
}

/// What gives the terms of a body: that of the result, if all of it can be told.
pub type Body = fn(&mut Terms) -> Option<u32>;

impl Terms {
    fn push<T: AnyElement>(&mut self, of: Part) -> Term<T> {
        self.own.push(Own {
            of,
            dtype: T::DTYPE,
            branch: self.branch,
        });
        Term {
            number: self.own.len() as u32 - 1,
            element: PhantomData,
        }
    }

    /// The argument of that number.
    pub fn argument<T: AnyElement>(&mut self, number: usize) -> Term<T> {
        self.push(Part::Argument(number))
    }

    /// The function `F` of earlier parts.
    pub fn call<F: Function<Args>, Args: Arguments>(
        &mut self,
        operands: &[u32],
    ) -> Term<F::Output> {
        self.push(Part::Call(call_of::<F, Args>(), operands.into()))
    }

    /// The number of the result.
    pub fn finish<T>(&self, result: Term<T>) -> Option<u32> {
        (!self.is_opaque).then_some(result.number)
    }
}

impl<T> Term<T> {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }
}

/// A literal or a constant.
pub fn value<T: AnyElement>(value: T, terms: &mut Terms) -> Term<T> {
    terms.push(Part::Scalar(bits_of(value)))
}

/// `if condition { yes } else { no }`
pub fn choose<T: AnyElement>(
    condition: Term<bool>,
    yes: impl FnOnce(&mut Terms) -> Term<T>,
    no: impl FnOnce(&mut Terms) -> Term<T>,
    terms: &mut Terms,
) -> Term<T> {
    let not = element::not(condition, terms);
    let yes = branch(condition, yes, terms);
    let no = branch(not, no, terms);
    let operands = [condition.number, yes.number, no.number];
    terms.call::<Select, (bool, T, T)>(&operands)
}

/// The parts that `body` is made of, which count where the condition holds.
fn branch<T>(
    condition: Term<bool>,
    body: impl FnOnce(&mut Terms) -> Term<T>,
    terms: &mut Terms,
) -> Term<T> {
    let outer = terms.branch.take();
    let inner = match outer {
        Some(outer) => terms.call::<And, (bool, bool)>(&[outer, condition.number]),
        None => condition,
    };
    terms.branch = Some(inner.number);
    let value = body(terms);
    terms.branch = outer;
    value
}

/// The callback of `functions!`: what a written function calls.
macro_rules! elements {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The functions of single elements. The terms come last, because they are lent to the arguments before.
        pub mod element {
            use super::{Term, Terms};
            use crate::array::{AnyElement, Bitwise, Element, Float, Integer, Number, Numeric};
            use crate::ops::declare::argument;
            use crate::ops::elementwise::functions as rows;

            $(elements! { @function $kind $name $op $arguments })+
        }
    };
    (@function number $($rest:tt)+) => { elements! { @bounded Number (T) $($rest)+ } };
    (@function part $($rest:tt)+) => { elements! { @bounded Number (T::Part) $($rest)+ } };
    (@function real $($rest:tt)+) => { elements! { @bounded Numeric (T) $($rest)+ } };
    (@function float $($rest:tt)+) => { elements! { @bounded Float (T) $($rest)+ } };
    (@function test $($rest:tt)+) => { elements! { @bounded Float (bool) $($rest)+ } };
    (@function ordered $($rest:tt)+) => { elements! { @bounded Element (T) $($rest)+ } };
    (@function power $($rest:tt)+) => { elements! { @bounded Numeric (T) $($rest)+ } };
    (@function integer $($rest:tt)+) => { elements! { @bounded Integer (T) $($rest)+ } };
    (@function bits $($rest:tt)+) => { elements! { @bounded Bitwise (T) $($rest)+ } };
    (@function compare $($rest:tt)+) => { elements! { @bounded Element (bool) $($rest)+ } };
    (@function equality $($rest:tt)+) => { elements! { @bounded AnyElement (bool) $($rest)+ } };
    (@bounded $bound:ident ($output:ty) $name:ident $op:ident ($($x:ident $(: $type:ident)?),+)) => {
        #[doc = concat!("What `", stringify!($name), "` computes.")]
        pub fn $name<T: $bound>($($x: Term<argument!([T] $($type)?)>,)+ terms: &mut Terms) -> Term<$output> {
            terms.call::<rows::$op, ($(argument!([T] $($type)?),)+)>(&[$($x.number),+])
        }
    };
}

functions! { elements }

/// What operators compute.
pub mod operators {
    use super::{Part, Term, Terms};
    use crate::array::{AnyElement, Bits, Integer, Number, Numeric};
    use crate::ops::elementwise::arithmetic::{Added, Modulo, Over, Subtracted, Times};
    use crate::ops::elementwise::cast::Cast;
    use crate::ops::elementwise::functions::Negated;

    macro_rules! operators {
        ($($doc:literal $name:ident $op:ident $bound:ident;)+) => {
            $(
                #[doc = $doc]
                pub fn $name<T: $bound>(left: Term<T>, right: Term<T>, terms: &mut Terms) -> Term<T> {
                    terms.call::<$op, (T, T)>(&[left.number, right.number])
                }
            )+
        };
    }

    operators! {
        "`left + right`" add Added Number;
        "`left - right`" sub Subtracted Number;
        "`left * right`" mul Times Number;
        "`left / right`" div Over Number;
        "`left % right`" rem Modulo Numeric;
    }

    /// `-x`
    pub fn neg<T: Number>(x: Term<T>, terms: &mut Terms) -> Term<T> {
        terms.call::<Negated, (T,)>(&[x.number])
    }

    /// `x << count`, which is no function of arrays.
    pub fn shl<T: Integer>(_: Term<T>, _: Term<T>, terms: &mut Terms) -> Term<T> {
        opaque(terms)
    }

    /// `x >> count`, which is no function of arrays.
    pub fn shr<T: Integer>(_: Term<T>, _: Term<T>, terms: &mut Terms) -> Term<T> {
        opaque(terms)
    }

    fn opaque<T: AnyElement>(terms: &mut Terms) -> Term<T> {
        terms.is_opaque = true;
        terms.push(Part::Scalar(Bits::default()))
    }

    /// `x as U`
    pub fn cast<U: AnyElement, T: AnyElement>(x: Term<T>, terms: &mut Terms) -> Term<U> {
        terms.call::<Cast<U>, (T,)>(&[x.number])
    }
}
