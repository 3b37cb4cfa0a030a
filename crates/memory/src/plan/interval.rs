//! The buffers of a plan.

/// A buffer to place: its size, and the interval of steps in which it is live.
///
/// Every offset of a plan is a sum of sizes. To get offsets that are multiples of an alignment,
/// round the sizes up to the alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInterval {
    /// The first step of the lifetime.
    pub lower: u64,
    /// The step after the last step; not below `lower`.
    pub upper: u64,
    /// The size. The sizes of all buffers sum to less than 2⁶³.
    pub size_bytes: u64,
}

impl BufferInterval {
    /// Returns whether the buffer has both a size and a lifetime.
    #[doc(hidden)]
    pub fn occupies(&self) -> bool {
        self.lower < self.upper && self.size_bytes > 0
    }
}
