//! Functions of single elements as values, with their loops.

use std::any::TypeId;

use super::body::Body;
use super::function::Function;
use super::loops::{Arguments, BlockLoop, Loops};
use super::operation::Operation;
use crate::{AnyElement, DType};

/// A function of single elements, of certain types.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name in error messages.
    pub name: &'static str,
    /// The function in CUDA C++; see [`Function::CUDA`].
    pub cuda: &'static str,
    /// The types of its operands.
    pub arguments: &'static [DType],
    /// The type of its value.
    pub output: DType,
    /// The operation, for rules that depend on the function.
    pub operation: Operation,
    /// The function's type. Together with the operands' types, it identifies the function.
    pub id: fn() -> TypeId,
    /// Its loops on the host.
    loops: Loops,
    /// The body of a written function as terms.
    pub body: Option<Body>,
    /// The functions that compute its partial derivatives, if they are written by hand.
    pub partials: Option<&'static [Option<&'static Call>]>,
}

impl Call {
    /// Returns the function `F` of elements of these types, whose loops are `loops`.
    pub(crate) const fn of<F: Function<Args>, Args: Arguments>(
        operation: Operation,
        loops: Loops,
    ) -> Self {
        Self {
            name: F::NAME,
            cuda: F::CUDA,
            arguments: Args::DTYPES,
            output: <F::Output as AnyElement>::DTYPE,
            operation,
            id: TypeId::of::<F>,
            loops,
            body: F::BODY,
            partials: F::PARTIALS,
        }
    }

    /// Returns the number of its operands.
    #[inline]
    pub const fn arity(&self) -> usize {
        self.arguments.len()
    }

    /// Returns its loop on the host, for this processor.
    #[inline]
    pub fn run(&self) -> BlockLoop {
        self.loops.best()
    }
}

/// A function of the library, as a table by the number of [`DType`] of the types that support it.
///
/// The loops are compiled with the library. A table is accessed by reference. If a constant
/// contained a generic function's address, the compiler would compile the function in each crate
/// that uses the constant.
#[derive(Debug)]
pub struct Calls(pub [Option<Call>; DType::COUNT]);

impl Calls {
    /// Returns the function for elements of `dtype`, or `None` if the function does not support
    /// them.
    #[inline]
    pub const fn get(&'static self, dtype: DType) -> Option<&'static Call> {
        self.0[dtype as usize].as_ref()
    }

    /// Returns the function for elements of `dtype`, which the function must support.
    #[inline]
    pub const fn at(&'static self, dtype: DType) -> &'static Call {
        match self.get(dtype) {
            Some(call) => call,
            None => panic!("the function's bound excludes the type"),
        }
    }
}

/// The maximum number of operands of a function.
pub const MOST_OPERANDS: usize = 4;
