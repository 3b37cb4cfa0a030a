//! A list of nodes that is stored inline while it is short.

use std::ops::Deref;

use super::graph::{GraphNode, NodeKind};
use super::node_shapes::NodeShape;
use crate::array::{DType, Shape, bits_of};

/// The maximum number of nodes that are stored inline.
const INLINE_NODES: usize = 6;

/// Nodes in order. Unlike a `SmallVec`, the list is covariant in the lifetime of its nodes.
#[derive(Clone, Debug)]
pub(super) struct NodeList<'a> {
    inline: [GraphNode<'a>; INLINE_NODES],
    count: usize,
    // All nodes, if their number exceeds `INLINE_NODES`. Otherwise empty.
    spilled: Vec<GraphNode<'a>>,
}

impl<'a> NodeList<'a> {
    pub(super) fn new() -> Self {
        let unused = GraphNode {
            kind: NodeKind::Scalar(const { bits_of(false) }),
            dtype: DType::Bool,
            shape: NodeShape::Borrowed(&Shape::SCALAR),
        };
        Self {
            inline: [unused; INLINE_NODES],
            count: 0,
            spilled: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, node: GraphNode<'a>) {
        match self.inline.get_mut(self.count) {
            Some(place) => *place = node,
            None => {
                if self.count == INLINE_NODES {
                    self.spilled.extend_from_slice(&self.inline);
                }
                self.spilled.push(node);
            }
        }
        self.count += 1;
    }

    pub(super) fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count > INLINE_NODES {
            self.spilled.pop();
        } else {
            self.spilled.clear();
        }
    }
}

impl<'a> Deref for NodeList<'a> {
    type Target = [GraphNode<'a>];

    #[inline]
    fn deref(&self) -> &[GraphNode<'a>] {
        match self.inline.get(..self.count) {
            Some(nodes) => nodes,
            None => &self.spilled,
        }
    }
}
