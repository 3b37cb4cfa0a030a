//! Sources of elements for launches.

use std::ops::Range;

use crate::ops::expression::graph::MOST_RESULTS;

/// The address of each result's first element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    bases: [*mut u8; MOST_RESULTS],
    count: usize,
}

// SAFETY: only unsafe functions dereference the addresses.
unsafe impl Send for Outputs {}
// SAFETY: only unsafe functions dereference the addresses.
unsafe impl Sync for Outputs {}

impl Outputs {
    /// Returns outputs at the addresses `bases`.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`MOST_RESULTS`] addresses.
    pub(super) fn new(bases: impl IntoIterator<Item = *mut u8>) -> Self {
        let mut outputs = Self {
            bases: [std::ptr::null_mut(); MOST_RESULTS],
            count: 0,
        };
        for base in bases {
            outputs.bases[outputs.count] = base;
            outputs.count += 1;
        }
        outputs
    }

    pub(super) fn all(&self) -> &[*mut u8] {
        &self.bases[..self.count]
    }
}

/// The elements of one or several expressions over an index space, by element index. A source is
/// plain data, because a launch must read only plain data.
pub(crate) trait ElementSource: Send + Sync {
    /// Writes the elements of `range` to their positions in each result.
    ///
    /// # Safety
    ///
    /// The range must be within the index space. The memory of the operands must be alive, and
    /// nothing may write to the elements that are read. `outputs` must have an address for each
    /// result, with space for all elements of the index space. Nothing else may read or write the
    /// elements of `range` in `outputs`.
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs);

    /// Calls `see` with each block of `range`. `see` receives the indices of the block's elements,
    /// and the address of the elements for each result. When `see` is called, the operands of the
    /// block have been read. These operands are not read again.
    ///
    /// # Safety
    ///
    /// The contract of [`write`](Self::write) applies, except that `see` may write to the elements
    /// of its block.
    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    );

    /// Returns a copy for a launch that runs later.
    fn boxed(&self) -> Box<dyn ElementSource>;
}
