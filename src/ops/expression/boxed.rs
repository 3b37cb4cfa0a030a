//! Boxed expressions, whose type depends only on the element type.

use std::marker::PhantomData;

use super::any_lazy::AnyLazy;
use super::expr::sealed::Sealed;
use super::expr::{Expr, Lazy};
use super::not_yet::Expression;
use super::tree::{Node, Operand, Tree};
use crate::array::AnyElement;
use cachescope_kernels::elementwise::run::Unfused;

/// The type of an expression that was [boxed](Lazy::boxed).
#[derive(Clone, Debug)]
pub struct Boxed<T: AnyElement> {
    erased: AnyLazy,
    element: PhantomData<fn() -> T>,
}

/// A type-erased expression of elements of `T`, which [`Lazy::boxed`] returns. It suits the fields
/// of structures, the results of branches and closures, and sums that a loop builds.
pub type BoxedLazy<T> = Lazy<Boxed<T>>;

impl<E: Expr> Lazy<E> {
    /// Returns the expression as a type that depends only on the element type, like a boxed
    /// [`Iterator`].
    ///
    /// The library's loops evaluate a boxed expression in one pass, block by block. If its
    /// operations are expensive or few, a boxed expression is nearly as fast as an unboxed
    /// expression. If many cheap operations run on data in the cache, a boxed expression is a few
    /// times slower. The time and memory for boxing are proportional to the number of operations
    /// and operands.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, BoxedLazy};
    ///
    /// /// What a layer does with its input.
    /// fn activation(x: &Array<f32>, name: &str) -> BoxedLazy<f32> {
    ///     match name {
    ///         "relu" => x.relu().boxed(),
    ///         _ => (x * x.sigmoid()).boxed(),
    ///     }
    /// }
    /// let x = Array::from_slice(&[-1.0, 2.0], 2)?;
    /// let mut sum = x.lazy().boxed();
    /// for power in 2..4 {
    ///     sum = (sum + x.powi(power)).boxed();
    /// }
    /// assert_eq!(sum.eval()?.to_vec()?, [-1.0, 14.0]);
    /// assert_eq!(activation(&x, "relu").eval()?.to_vec()?, [0.0, 2.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn boxed(&self) -> BoxedLazy<E::Item> {
        let expr = Boxed {
            erased: AnyLazy::of_tree(&self.expr, E::Item::DTYPE),
            element: PhantomData,
        };
        Lazy { expr }
    }
}

impl<T: AnyElement> Sealed for Boxed<T> {}

impl<T: AnyElement> Expr for Boxed<T> {
    type Item = T;
    type Kind = Expression;
    type Run = Unfused<T>;

    const FUSES: bool = false;

    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        self.erased.walk(see);
    }

    fn dense(&self) -> Unfused<T> {
        unreachable!("a boxed expression does not fuse")
    }
}
