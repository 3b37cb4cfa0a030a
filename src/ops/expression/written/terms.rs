//! The bodies of written functions as terms, from which derivatives are derived: the third form,
//! beside the host's code and the text for a GPU.
//!
//! Terms know their types when the program runs, not when it is compiled: the compiler reports the
//! errors of a body once, in the host's code. A literal takes the type of the operand it is
//! combined with.

use smallvec::SmallVec;

use super::text::Constant;
use crate::array::{AnyElement, Bits, DType, bits_of};
use crate::ops::expression::elementwise::arithmetic::{Added, Modulo, Over, Subtracted, Times};
use crate::ops::expression::elementwise::cast::Cast;
use crate::ops::expression::elementwise::functions::Negated;
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::loops::Arguments;
use crate::ops::expression::node::{Function, call_of};
use crate::ops::expression::tree::Call;

pub use crate::ops::expression::body::{Body, Term, Terms};

/// The value for the element type of a dtype, or `None` if the list does not have it.
macro_rules! by_dtype {
    ($dtype:expr, [$kind:ident], $T:ident => $value:expr) => { by_dtype!(@$kind $dtype, $T => $value) };
    (@float $dtype:expr, $T:ident => $value:expr) => {
        by_dtype!(@kind $dtype, $T => $value; F32 f32, F64 f64, F16 half::f16, Bf16 half::bf16)
    };
    (@integer $dtype:expr, $T:ident => $value:expr) => {
        by_dtype!(@kind $dtype, $T => $value; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
    (@bits $dtype:expr, $T:ident => $value:expr) => {
        by_dtype!(
            @kind $dtype, $T => $value;
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool
        )
    };
    (@number $dtype:expr, $T:ident => $value:expr) => {
        by_dtype!(
            @kind $dtype, $T => $value;
            F32 f32, F64 f64, F16 half::f16, Bf16 half::bf16,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64
        )
    };
    (@any $dtype:expr, $T:ident => $value:expr) => {
        by_dtype!(
            @kind $dtype, $T => $value;
            F32 f32, F64 f64, F16 half::f16, Bf16 half::bf16,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool
        )
    };
    (@kind $dtype:expr, $T:ident => $value:expr; $($name:ident $type:ty),+) => {
        match $dtype {
            $(DType::$name => {
                type $T = $type;
                Some($value)
            })+
            _ => None,
        }
    };
}

impl Terms {
    fn scalar(&mut self, dtype: DType, bits: Bits, is_literal: bool) -> Term {
        Term {
            number: self.template.push(NodeKind::Scalar(bits), dtype),
            is_literal,
        }
    }

    /// Returns the argument of that number.
    #[must_use]
    pub fn argument(&self, number: usize) -> Term {
        Term {
            number: self.arguments[number],
            is_literal: false,
        }
    }

    /// Adds the function `F` of earlier parts, which have its types.
    pub fn call<F: Function<Args>, Args: Arguments>(&mut self, operands: &[Term]) -> Term {
        self.append(Some(call_of::<F, Args>()), operands)
    }

    /// Adds a call, or an opaque part if the function has no elements of these types.
    fn append(&mut self, call: Option<&'static Call>, operands: &[Term]) -> Term {
        let Some(call) = call else {
            return self.opaque();
        };
        let numbers: SmallVec<[u32; 4]> = operands.iter().map(|own| own.number).collect();
        Term {
            number: self.template.call(call, &numbers),
            is_literal: operands.iter().all(|own| own.is_literal),
        }
    }

    /// Adds a part that is no function of arrays.
    fn opaque(&mut self) -> Term {
        self.is_opaque = true;
        self.scalar(DType::Bool, Bits::default(), false)
    }

    fn dtype(&self, term: Term) -> DType {
        self.template.nodes[term.number as usize].dtype
    }

    /// Returns a literal as an element of that type. *Invariant:* functions are called with the
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
            DType::F64 => self.append(to::<f64>(dtype), &[own]),
            _ => self.append(to::<i64>(dtype), &[own]),
        }
    }

    /// Converts operands to one type: the type of the first operand that is no literal.
    fn unified<const N: usize>(&mut self, operands: [Term; N]) -> [Term; N] {
        let typed = operands.iter().find(|own| !own.is_literal);
        let Some(dtype) = typed.map(|own| self.dtype(*own)) else {
            return operands;
        };
        operands.map(|own| self.typed(own, dtype))
    }

    /// Returns the number of the result, or `None` if a part is no function of arrays.
    #[must_use]
    pub fn finish(&self, result: Term) -> Option<u32> {
        (!self.is_opaque).then_some(result.number)
    }
}

/// Adds a constant. The compiler reports once, in the GPU's text, if a name is no constant.
pub fn constant(constant: &Constant, terms: &mut Terms) -> Term {
    let (dtype, bits) = constant.value;
    terms.scalar(dtype, bits, false)
}

/// Adds a literal with the name of its type.
pub fn value<T: AnyElement>(value: T, terms: &mut Terms) -> Term {
    terms.scalar(T::DTYPE, bits_of(value), false)
}

/// Adds a literal with a point.
pub fn float(number: f64, terms: &mut Terms) -> Term {
    terms.scalar(DType::F64, bits_of(number), true)
}

/// Adds a literal without a point.
pub fn integer(number: i128, terms: &mut Terms) -> Term {
    terms.scalar(DType::I64, bits_of(number as i64), true)
}

/// Converts a term to an element of `T`.
pub fn typed<T: AnyElement>(term: Term, terms: &mut Terms) -> Term {
    terms.typed(term, T::DTYPE)
}

/// `if condition { yes } else { no }`
pub fn choose(condition: Term, yes: Term, no: Term, terms: &mut Terms) -> Term {
    let condition = terms.typed(condition, DType::Bool);
    let [yes, no] = terms.unified([yes, no]);
    let dtype = terms.dtype(yes);
    let call = by_dtype!(dtype, [any], T => call_of::<Select, (bool, T, T)>());
    let chosen = terms.append(call, &[condition, yes, no]);
    Term {
        is_literal: yes.is_literal && no.is_literal,
        ..chosen
    }
}

/// `x as U`
pub fn cast<U: AnyElement>(x: Term, terms: &mut Terms) -> Term {
    let call = by_dtype!(terms.dtype(x), [any], T => call_of::<Cast<U>, (T,)>());
    let own = Term {
        is_literal: false,
        ..x
    };
    terms.append(call, &[own])
}

/// Returns the conversion of a `T` to elements of that type.
fn to<T: AnyElement>(dtype: DType) -> Option<&'static Call> {
    by_dtype!(dtype, [any], U => call_of::<Cast<U>, (T,)>())
}

/// The callback of `functions!`: what a written function calls.
macro_rules! elements {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The functions of single elements. The terms come last, because they are lent to the
        /// arguments before.
        pub mod element {
            use super::Term;
            use super::Terms;
            use crate::array::DType;
            use crate::ops::expression::elementwise::functions as rows;
            use crate::ops::expression::node::call_of;

            $(elements! { @function $kind $name $op $arguments })+
        }
    };
    (@function number $($rest:tt)+) => { elements! { @kind number $($rest)+ } };
    (@function part $($rest:tt)+) => { elements! { @kind number $($rest)+ } };
    (@function real $($rest:tt)+) => { elements! { @kind number $($rest)+ } };
    (@function float $($rest:tt)+) => { elements! { @kind float $($rest)+ } };
    (@function test $($rest:tt)+) => { elements! { @kind float $($rest)+ } };
    (@function ordered $($rest:tt)+) => { elements! { @kind any $($rest)+ } };
    (@function power $($rest:tt)+) => { elements! { @kind number $($rest)+ } };
    (@function integer $($rest:tt)+) => { elements! { @kind integer $($rest)+ } };
    (@function bits $($rest:tt)+) => { elements! { @kind bits $($rest)+ } };
    (@function compare $($rest:tt)+) => { elements! { @kind any $($rest)+ } };
    (@function equality $($rest:tt)+) => { elements! { @kind any $($rest)+ } };
    // The one row whose arguments are of two types.
    (@kind $kind:ident $name:ident $op:ident ($x:ident, $y:ident: $type:ident)) => {
        #[doc = concat!("What `", stringify!($name), "` computes.")]
        pub fn $name($x: Term, $y: Term, terms: &mut Terms) -> Term {
            let dtype = terms.dtype($x);
            let $y = super::typed::<$type>($y, terms);
            let call = by_dtype!(dtype, [$kind], T => call_of::<rows::$op, (T, $type)>());
            let term = terms.append(call, &[$x, $y]);
            Term {
                is_literal: $x.is_literal,
                ..term
            }
        }
    };
    (@kind $kind:ident $name:ident $op:ident ($($x:ident),+)) => {
        #[doc = concat!("What `", stringify!($name), "` computes.")]
        pub fn $name($($x: Term,)+ terms: &mut Terms) -> Term {
            let operands = terms.unified([$($x),+]);
            let dtype = terms.dtype(operands[0]);
            let call = by_dtype!(dtype, [$kind], T => call_of::<rows::$op, ($(elements!(@same T $x),)+)>());
            terms.append(call, &operands)
        }
    };
    (@same $T:ident $x:ident) => { $T };
}

functions! { elements }

/// The operators.
pub mod operators {
    use super::{Added, Modulo, Negated, Over, Subtracted, Term, Terms, Times};
    use crate::array::DType;
    use crate::ops::expression::node::call_of;

    macro_rules! operators {
        ($($doc:literal $name:ident $op:ident;)+) => {
            $(
                #[doc = $doc]
                pub fn $name(left: Term, right: Term, terms: &mut Terms) -> Term {
                    let operands = terms.unified([left, right]);
                    let dtype = terms.dtype(operands[0]);
                    let call = by_dtype!(dtype, [number], T => call_of::<$op, (T, T)>());
                    terms.append(call, &operands)
                }
            )+
        };
    }

    operators! {
        "`left + right`" add Added;
        "`left - right`" sub Subtracted;
        "`left * right`" mul Times;
        "`left / right`" div Over;
        "`left % right`" rem Modulo;
    }

    /// `-x`
    pub fn neg(x: Term, terms: &mut Terms) -> Term {
        let call = by_dtype!(terms.dtype(x), [number], T => call_of::<Negated, (T,)>());
        terms.append(call, &[x])
    }

    /// `x << count`, which is no function of arrays.
    pub fn shl(_: Term, _: Term, terms: &mut Terms) -> Term {
        terms.opaque()
    }

    /// `x >> count`, which is no function of arrays.
    pub fn shr(_: Term, _: Term, terms: &mut Terms) -> Term {
        terms.opaque()
    }
}
