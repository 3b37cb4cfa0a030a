//! Type-erased arrays as operands of expressions.

use super::tree::Operand;
use crate::array::{AnyArray, Layout, check_within};

impl AnyArray {
    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand {
            buffer: &self.buffer,
            layout: &self.layout,
            dtype: self.dtype,
        }
    }
}

impl<'a> Operand<'a> {
    /// Returns the array with the layout `layout` over its memory.
    ///
    /// # Panics
    ///
    /// Panics if the layout reaches beyond the buffer. Every kernel relies on this check.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) fn viewed(self, layout: &'a Layout) -> Self {
        check_within(self.buffer, layout, self.dtype);
        Self { layout, ..self }
    }

    #[track_caller]
    pub(crate) fn share(&self) -> AnyArray {
        AnyArray {
            buffer: self.buffer.share(),
            layout: *self.layout,
            dtype: self.dtype,
        }
    }
}
