//! Functions of single elements as types, and their application to operands.

use std::marker::PhantomData;

use super::body::Body;
use super::call::Call;
use super::loops::{Arguments, Loops};
use super::operation::Operation;
use crate::AnyElement;
use crate::element::scalar::pass::Pass;

/// A function of single elements, as a type without values. `Args` is the tuple of the operands'
/// element types.
///
/// The function has two forms with equal results: `apply` on the host, and `CUDA` on a GPU.
pub trait Function<Args: Arguments>: Copy + Send + Sync + 'static {
    /// The name of the function in error messages.
    const NAME: &'static str;

    /// The function in CUDA C++: an expression of the arguments, which are named `a`, `b`, `c` and
    /// `d` in order. `R` is the type of the result. Values of `f16` and `bf16` are passed as
    /// `float`, and the result is rounded once.
    const CUDA: &'static str;

    /// `true` if `apply` may flag an element as rare; see [`Pass`].
    const RARE: bool = false;

    /// `true` if the library's loop is also compiled for AVX-512.
    #[doc(hidden)]
    const WIDE: bool = false;

    /// The function as a value. For a function of the library, the value is stored in a table.
    #[doc(hidden)]
    const CALL: &'static Call =
        &Call::of::<Self, Args>(Operation::Written, Loops::of::<Self, Args>());

    /// The function that appends the body as terms, for a function of `elementwise!`.
    const BODY: Option<Body> = None;

    /// The functions that compute the partial derivatives, if they are written by hand. There is a
    /// function or `None` for each argument.
    const PARTIALS: Option<&'static [Option<&'static Call>]> = None;

    /// The type of the result.
    type Output: AnyElement;

    /// Returns the result for one element of each argument.
    fn apply<L: Pass>(pass: &mut L, args: Args) -> Self::Output;
}

/// Returns the function `F` of elements of types `Args`.
#[must_use]
pub const fn call_of<F: Function<Args>, Args: Arguments>() -> &'static Call {
    F::CALL
}

/// A scalar operand. Its value applies to all elements.
#[derive(Clone, Copy, Debug)]
pub struct Scalar<T>(pub T);

/// The function `F`, applied to a tuple of other nodes.
#[derive(Debug)]
pub struct Apply<F, X> {
    function: PhantomData<F>,
    /// The operands.
    pub operands: X,
}

impl<F, X> Apply<F, X> {
    /// Returns the function `F`, applied to `operands`.
    #[inline(always)]
    pub fn new(operands: X) -> Self {
        Self {
            function: PhantomData,
            operands,
        }
    }
}

// `Clone` and `Copy` are not derived, because derived implementations would require `F: Clone` and
// `F: Copy`.
impl<F, X: Clone> Clone for Apply<F, X> {
    #[inline(always)]
    fn clone(&self) -> Self {
        Self::new(self.operands.clone())
    }
}

impl<F, X: Copy> Copy for Apply<F, X> {}
