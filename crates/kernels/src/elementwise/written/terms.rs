//! The bodies of written functions as terms, for derivatives. Terms are the third form of a body.
//! The other two forms are the host's code and the CUDA source.
//!
//! The types of terms are known only at run time. Therefore the compiler reports an error of a body
//! only once, in the host's code. A literal gets the type of the operand that it is combined with.

use super::text::Constant;

pub use crate::elementwise::body::{Body, Term, Terms};

use crate::element::plain::{Bits, bits_of};
use crate::elementwise::arithmetic::{Added, Modulo, Over, Subtracted, Times};
use crate::elementwise::call::{Call, MOST_OPERANDS};
use crate::elementwise::cast::cast as cast_of;
use crate::elementwise::function::{Function, call_of};
use crate::elementwise::functions::Negated;
use crate::elementwise::loops::Arguments;
use crate::elementwise::select::Select;
use crate::{AnyElement, DType};

impl Terms<'_> {
    fn scalar(&mut self, dtype: DType, bits: Bits, is_literal: bool) -> Term {
        Term {
            number: self.graph.scalar(dtype, bits),
            is_literal,
        }
    }

    /// Returns the term of the argument with index `number`.
    #[must_use]
    pub fn argument(&self, number: usize) -> Term {
        Term {
            number: self.arguments[number],
            is_literal: false,
        }
    }

    /// Appends a call of `F`. The operands must be earlier terms of types `Args`.
    pub fn call<F: Function<Args>, Args: Arguments>(&mut self, operands: &[Term]) -> Term {
        self.append(Some(call_of::<F, Args>()), operands)
    }

    /// Appends a call. If the function does not support these element types, appends an opaque
    /// term.
    fn append(&mut self, call: Option<&'static Call>, operands: &[Term]) -> Term {
        let Some(call) = call else {
            return self.opaque();
        };
        let mut numbers = [0; MOST_OPERANDS];
        for (number, own) in numbers.iter_mut().zip(operands) {
            *number = own.number;
        }
        Term {
            number: self.graph.call(call, &numbers[..operands.len()]),
            is_literal: operands.iter().all(|own| own.is_literal),
        }
    }

    /// Appends an opaque term, which has no equivalent among the functions of arrays.
    fn opaque(&mut self) -> Term {
        self.is_opaque = true;
        self.scalar(DType::Bool, Bits::default(), false)
    }

    fn dtype(&self, term: Term) -> DType {
        self.graph.dtype(term.number)
    }

    /// Returns a literal as a term of type `dtype`. *Invariant:* functions are called with the
    /// returned term, so that the operands have the function's types.
    fn typed(&mut self, term: Term, dtype: DType) -> Term {
        if !term.is_literal {
            self.is_opaque |= self.dtype(term) != dtype;
            return term;
        }
        let own = Term {
            is_literal: false,
            ..term
        };
        match self.dtype(term) {
            from if from == dtype => own,
            from => self.append(Some(cast_of(from, dtype)), &[own]),
        }
    }

    /// Converts the literals among the operands to the type of the first operand that is not a
    /// literal.
    fn unified<const N: usize>(&mut self, operands: [Term; N]) -> [Term; N] {
        let typed = operands.iter().find(|own| !own.is_literal);
        let Some(dtype) = typed.map(|own| self.dtype(*own)) else {
            return operands;
        };
        operands.map(|own| self.typed(own, dtype))
    }

    /// Returns the index of the result's node. If a term is opaque, returns `None`.
    #[must_use]
    pub fn finish(&self, result: Term) -> Option<u32> {
        (!self.is_opaque).then_some(result.number)
    }
}

/// Appends a constant. If a name is not a constant, the compiler reports the error only once, in
/// the CUDA source.
pub fn constant(constant: &Constant, terms: &mut Terms<'_>) -> Term {
    let (dtype, bits) = constant.value;
    terms.scalar(dtype, bits, false)
}

/// Appends a literal that names its type.
pub fn value<T: AnyElement>(value: T, terms: &mut Terms<'_>) -> Term {
    terms.scalar(T::DTYPE, bits_of(value), false)
}

/// Appends a literal with a decimal point.
pub fn float(number: f64, terms: &mut Terms<'_>) -> Term {
    terms.scalar(DType::F64, bits_of(number), true)
}

/// Appends a literal without a decimal point.
pub fn integer(number: i128, terms: &mut Terms<'_>) -> Term {
    terms.scalar(DType::I64, bits_of(number as i64), true)
}

/// Converts a literal to a term of type `T`.
pub fn typed<T: AnyElement>(term: Term, terms: &mut Terms<'_>) -> Term {
    terms.typed(term, T::DTYPE)
}

/// Appends `if condition { yes } else { no }`.
pub fn choose(condition: Term, yes: Term, no: Term, terms: &mut Terms<'_>) -> Term {
    let condition = terms.typed(condition, DType::Bool);
    let [yes, no] = terms.unified([yes, no]);
    let call = Select::CALLS.get(terms.dtype(yes));
    let chosen = terms.append(call, &[condition, yes, no]);
    Term {
        is_literal: yes.is_literal && no.is_literal,
        ..chosen
    }
}

/// Appends `x as U`.
pub fn cast<U: AnyElement>(x: Term, terms: &mut Terms<'_>) -> Term {
    let call = cast_of(terms.dtype(x), U::DTYPE);
    let own = Term {
        is_literal: false,
        ..x
    };
    terms.append(Some(call), &[own])
}

/// Declares the functions that a written function calls. The macro is a callback of `functions!`.
macro_rules! elements {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The functions of single elements. Arguments are evaluated in order, and the expressions
        /// of the other arguments also borrow `terms`. Therefore `terms` is the last argument.
        pub mod element {
            use super::Term;
            use super::Terms;
            use crate::elementwise::functions as rows;

            $(elements! { @function $name $op $arguments })+
        }
    };
    // This pattern matches `powi`, the only row whose arguments have two types.
    (@function $name:ident $op:ident ($x:ident, $y:ident: $type:ident)) => {
        #[doc = concat!("Appends a call of `", stringify!($name), "`.")]
        pub fn $name($x: Term, $y: Term, terms: &mut Terms<'_>) -> Term {
            let $y = super::typed::<$type>($y, terms);
            let call = rows::$op::CALLS.get(terms.dtype($x));
            let term = terms.append(call, &[$x, $y]);
            Term {
                is_literal: $x.is_literal,
                ..term
            }
        }
    };
    (@function $name:ident $op:ident ($($x:ident),+)) => {
        #[doc = concat!("Appends a call of `", stringify!($name), "`.")]
        pub fn $name($($x: Term,)+ terms: &mut Terms<'_>) -> Term {
            let operands = terms.unified([$($x),+]);
            let call = rows::$op::CALLS.get(terms.dtype(operands[0]));
            terms.append(call, &operands)
        }
    };
}

functions! { elements }

/// The operators.
pub mod operators {
    use super::{Added, Modulo, Negated, Over, Subtracted, Term, Terms, Times};

    macro_rules! operators {
        ($($doc:literal $name:ident $op:ident;)+) => {
            $(
                #[doc = $doc]
                pub fn $name(left: Term, right: Term, terms: &mut Terms<'_>) -> Term {
                    let operands = terms.unified([left, right]);
                    let call = $op::CALLS.get(terms.dtype(operands[0]));
                    terms.append(call, &operands)
                }
            )+
        };
    }

    operators! {
        "Appends `left + right`." add Added;
        "Appends `left - right`." sub Subtracted;
        "Appends `left * right`." mul Times;
        "Appends `left / right`." div Over;
        "Appends `left % right`." rem Modulo;
    }

    /// Appends `-x`.
    pub fn neg(x: Term, terms: &mut Terms<'_>) -> Term {
        terms.append(Negated::CALLS.get(terms.dtype(x)), &[x])
    }

    /// Appends an opaque term, because `shl` of arrays does not reduce the count modulo the number
    /// of bits.
    pub fn shl(_: Term, _: Term, terms: &mut Terms<'_>) -> Term {
        terms.opaque()
    }

    /// Appends an opaque term, because `shr` of arrays does not reduce the count modulo the number
    /// of bits.
    pub fn shr(_: Term, _: Term, terms: &mut Terms<'_>) -> Term {
        terms.opaque()
    }
}
