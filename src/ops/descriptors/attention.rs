//! The sizes of an attention.

use crate::array::Shape;

/// The lengths of the axes of an attention's operands.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct AttentionSizes {
    /// The leading axes that all operands broadcast to.
    pub(in crate::ops) heads: Shape,
    pub(in crate::ops) queries: usize,
    pub(in crate::ops) keys: usize,
    /// The width of queries and keys.
    pub(in crate::ops) depth: usize,
    /// The width of values.
    pub(in crate::ops) width: usize,
}

impl AttentionSizes {
    /// Returns the factor of the scores.
    pub(in crate::ops) fn scale(&self) -> f64 {
        1.0 / (self.depth as f64).sqrt()
    }

    /// Returns the shape of matrices of `rows` and `columns`, one for each head.
    pub(in crate::ops) fn shape(&self, rows: usize, columns: usize) -> Shape {
        let heads = self.heads.dims().iter().copied();
        heads.chain([rows, columns]).collect()
    }
}

#[cfg(feature = "cuda")]
impl AttentionSizes {
    /// Returns the number of heads.
    pub(in crate::ops) fn head_count(&self) -> usize {
        self.heads.dims().iter().product()
    }
}
