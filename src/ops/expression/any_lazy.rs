//! Expressions whose element type is known at run time.

use super::elementwise::cast::cast;
use super::elementwise::select::Select;
use super::tree::{Node, Operand, Tree};
use super::vocabulary::vocabulary;
use crate::array::{AnyArray, DType, bits_of_number};
use cachescope_kernels::elementwise::call::{Call, Calls};

/// A type-erased expression. A boxed [`Lazy`](super::expr::Lazy) is a typed handle on it. The
/// library's operations are built from type-erased expressions, so that the operations are compiled
/// once.
///
/// The operands of an operator must have equal element types.
#[derive(Clone, Debug)]
pub(crate) struct AnyLazy {
    // The nodes. Each node is after its operands. A list needs no deep recursion for a long
    // expression.
    nodes: Vec<Node<AnyArray>>,
    dtype: DType,
}

impl AnyLazy {
    /// Returns the expression of `tree`, whose elements are of `dtype`.
    pub(super) fn of_tree(tree: &dyn Tree, dtype: DType) -> Self {
        let mut nodes = Vec::new();
        tree.walk(&mut |node| nodes.push(node.map(Operand::share)));
        Self { nodes, dtype }
    }

    /// Returns an expression with one value for every element.
    pub(crate) fn number(dtype: DType, value: f64) -> Self {
        Self {
            nodes: vec![Node::Scalar(dtype, bits_of_number(dtype, value))],
            dtype,
        }
    }

    /// Returns an expression with the element of `yes` where `mask` is true, and the element of
    /// `no` elsewhere.
    pub(crate) fn select(mask: Self, yes: Self, no: Self) -> Self {
        let select = Select::CALLS.at(yes.dtype);
        mask.call(select, [yes, no])
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn cast(self, dtype: DType) -> Self {
        match self.dtype == dtype {
            true => self,
            false => {
                let cast = cast(self.dtype, dtype);
                self.call(cast, [])
            }
        }
    }

    /// Returns an expression with one value, of the type of this expression.
    fn constant(&self, value: f64) -> Self {
        Self::number(self.dtype, value)
    }

    /// Applies the function in `calls` for this type to this expression and `others`.
    fn apply<const N: usize>(self, calls: &'static Calls, others: [Self; N]) -> Self {
        let call = calls.at(self.dtype);
        self.call(call, others)
    }

    /// # Panics
    ///
    /// Panics if the operands do not have the function's argument types. The function's loop relies
    /// on this check.
    fn call<const N: usize>(mut self, call: &'static Call, others: [Self; N]) -> Self {
        let (own, rest) = (call.arguments[0], &call.arguments[1..]);
        assert!(
            own == self.dtype && others.iter().map(|other| &other.dtype).eq(rest),
            "{} takes elements of {:?}",
            call.name,
            call.arguments
        );
        for other in others {
            self.nodes.extend(other.nodes);
        }
        self.nodes.push(Node::Call(call));
        self.dtype = call.output;
        self
    }
}

vocabulary! { [] AnyLazy }

impl AnyArray {
    #[track_caller]
    pub(crate) fn lazy(&self) -> AnyLazy {
        AnyLazy {
            nodes: vec![Node::Array(self.share())],
            dtype: self.dtype,
        }
    }
}

impl Tree for AnyLazy {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        for node in &self.nodes {
            see(node.map(AnyArray::operand));
        }
    }

    fn as_operand(&self) -> Option<Operand<'_>> {
        match &self.nodes[..] {
            [Node::Array(array)] => Some(array.operand()),
            _ => None,
        }
    }
}
