//! What an assigned expression and its target have to do with each other's memory.

use super::expr::Expr;
use crate::array::{Array, Element};

/// How an expression and the array that it is assigned to share memory.
pub(super) struct Aliasing {
    /// Nothing but the expression holds the array's memory, and the array reaches no element of it
    /// twice.
    pub(super) is_exclusive: bool,
    /// The expression reads the memory in another order than the array.
    pub(super) is_crosswise: bool,
    /// The array and every operand are dense, and of one shape.
    pub(super) is_dense: bool,
}

impl Aliasing {
    #[inline]
    pub(super) fn of<T: Element, E: Expr<Item = T>>(target: &Array<T>, expr: &E) -> Self {
        let (buffer, layout) = (target.buffer(), target.layout());
        let mut handles = 1;
        let mut is_crosswise = false;
        let mut is_dense = layout.is_contiguous();
        expr.operands(&mut |operand| {
            let other = operand.layout;
            if operand.buffer.is_same(buffer) {
                handles += 1;
                is_crosswise |= other != layout;
            }
            is_dense &= other.is_contiguous() && other.shape() == layout.shape();
        });
        Self {
            is_exclusive: buffer.holders() == handles && !layout.repeats(),
            is_crosswise,
            is_dense,
        }
    }
}
