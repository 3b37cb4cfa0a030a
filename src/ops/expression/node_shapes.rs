//! The shapes of nodes. If an array has a node's shape, the shape is borrowed from the array.

use smallvec::SmallVec;

use super::graph::ExpressionGraph;
use crate::array::{Shape, broadcast_pair, broadcast_shapes};
use crate::error::{Error, Result};
use cachescope_kernels::elementwise::call::MOST_OPERANDS;

#[derive(Clone, Copy, Debug)]
pub(super) enum NodeShape<'a> {
    /// The shape of an array, or of a single value.
    Borrowed(&'a Shape),
    /// The index of a shape in the expression graph's list of shapes.
    Own(usize),
}

/// Returns whether `shape` broadcasts to `to`. If so, `to` is the common shape of the two shapes.
#[inline]
fn broadcasts_to(shape: &Shape, to: &Shape) -> bool {
    let mut lengths = shape.dims().iter().rev().zip(to.dims().iter().rev());
    shape.ndim() <= to.ndim() && lengths.all(|(own, to)| own == to || *own == 1)
}

impl<'a> ExpressionGraph<'a> {
    #[inline]
    #[track_caller]
    pub(super) fn common_shape(
        &mut self,
        operation: &str,
        operands: &[u32],
    ) -> Result<NodeShape<'a>> {
        let Some((&first, rest)) = operands.split_first() else {
            return Ok(NodeShape::Borrowed(&Shape::SCALAR));
        };
        let mut common = self.nodes[first as usize].shape;
        for &operand in rest {
            let own = self.nodes[operand as usize].shape;
            let (one, other) = (self.resolve(&common), self.resolve(&own));
            if broadcasts_to(other, one) {
                continue;
            }
            if broadcasts_to(one, other) {
                common = own;
                continue;
            }
            match broadcast_pair(one, other) {
                Some(both) if both.checked_len().is_ok() => {
                    self.shapes.push(both);
                    common = NodeShape::Own(self.shapes.len() - 1);
                }
                _ => return Err(self.not_broadcast(operation, operands)),
            }
        }
        Ok(common)
    }

    #[inline]
    fn resolve<'b>(&'b self, shape: &NodeShape<'b>) -> &'b Shape {
        match *shape {
            NodeShape::Borrowed(shape) => shape,
            NodeShape::Own(number) => &self.shapes[number],
        }
    }

    #[inline]
    pub(in crate::ops) fn shape_of(&self, number: usize) -> &Shape {
        self.resolve(&self.nodes[number].shape)
    }

    /// Returns the shape of the first result.
    #[inline]
    pub(in crate::ops) fn shape(&self) -> &Shape {
        self.shape_of(self.results[0])
    }

    #[cold]
    #[track_caller]
    fn not_broadcast(&self, operation: &str, operands: &[u32]) -> Error {
        let shapes = operands
            .iter()
            .map(|&operand| self.shape_of(operand as usize));
        let shapes: SmallVec<[&Shape; MOST_OPERANDS]> = shapes.collect();
        let common = broadcast_shapes(operation, &shapes);
        common.expect_err("the shapes do not broadcast")
    }
}
