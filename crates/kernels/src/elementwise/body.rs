//! The bodies of written functions as subgraphs of an expression graph. `elementwise!` declares
//! written functions. [`written`](super::written) appends the bodies to the graph.

use super::call::Call;
use crate::DType;
use crate::element::plain::Bits;

/// An expression graph that a body is appended to. A node is identified by its index.
pub trait Graph {
    /// Appends a scalar value, and returns the index of its node.
    fn scalar(&mut self, dtype: DType, bits: Bits) -> u32;

    /// Appends a function of earlier nodes, and returns the index of its node.
    fn call(&mut self, call: &'static Call, operands: &[u32]) -> u32;

    /// Returns the type of a node's elements.
    fn dtype(&self, node: u32) -> DType;
}

/// A node of a body.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub(super) number: u32,
    /// `true` if the node is computed only from literals. Literals are `f64` or `i64` until they
    /// are combined with a typed term.
    pub(super) is_literal: bool,
}

/// The graph that a body is appended to, with the nodes of the arguments.
pub struct Terms<'a> {
    pub(super) graph: &'a mut dyn Graph,
    /// The indices of the arguments' nodes.
    pub(super) arguments: &'a [u32],
    /// `true` if a term has no equivalent among the functions of arrays.
    pub(super) is_opaque: bool,
}

impl<'a> Terms<'a> {
    /// Returns a builder that appends a body to `graph`. `arguments` are the indices of the
    /// arguments' nodes.
    pub fn new(graph: &'a mut dyn Graph, arguments: &'a [u32]) -> Self {
        Self {
            graph,
            arguments,
            is_opaque: false,
        }
    }
}

impl std::fmt::Debug for Terms<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terms of {:?}", self.arguments)
    }
}

/// A function that appends the terms of a body. If all terms have equivalents among the functions
/// of arrays, returns the index of the result's node.
pub type Body = fn(&mut Terms<'_>) -> Option<u32>;
