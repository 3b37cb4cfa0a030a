//! Functions of single elements as values, with their loops.

use std::any::TypeId;

use super::body::Body;
use super::function::Function;
use super::loops::{Arguments, BlockLoop, Loops};
use super::operation::Operation;
use crate::{AnyElement, DType};

/// A function of single elements, for certain operand types.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name of the function in error messages.
    pub name: &'static str,
    /// The function in CUDA C++; see [`Function::CUDA`].
    pub cuda: &'static str,
    /// The types of the operands.
    pub arguments: &'static [DType],
    /// The type of the result.
    pub output: DType,
    /// The operation, for rules that depend on the function.
    pub operation: Operation,
    /// The type of the function. Together with the operands' types, it identifies the function.
    pub id: fn() -> TypeId,
    loops: Loops,
    /// The function that appends the body as terms, for a function of `elementwise!`.
    pub body: Option<Body>,
    /// The functions that compute the partial derivatives, if they are written by hand.
    pub partials: Option<&'static [Option<&'static Call>]>,
}

impl Call {
    /// Returns the function `F` of elements of types `Args`, with the given loops.
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

    /// Returns the number of operands.
    #[inline]
    pub const fn arity(&self) -> usize {
        self.arguments.len()
    }

    /// Returns the function's loop for this processor.
    #[inline]
    pub fn run(&self) -> BlockLoop {
        self.loops.best()
    }
}

/// A function of the library, as a table by `DType as usize`.
///
/// The loops are compiled with the library, because a table is accessed by reference. If a constant
/// contained a generic function's address, each crate that uses the constant would compile the
/// function.
#[derive(Debug)]
pub struct Calls(pub [Option<Call>; DType::COUNT]);

impl Calls {
    /// Returns the function for elements of `dtype`. If the function does not support this type,
    /// returns `None`.
    #[inline]
    pub const fn get(&'static self, dtype: DType) -> Option<&'static Call> {
        self.0[dtype as usize].as_ref()
    }

    /// Returns the function for elements of `dtype`. The function must support this type.
    #[inline]
    pub const fn at(&'static self, dtype: DType) -> &'static Call {
        match self.get(dtype) {
            Some(call) => call,
            None => panic!("the function does not support the element type"),
        }
    }
}

/// The maximum number of operands of a function.
pub const MOST_OPERANDS: usize = 4;
