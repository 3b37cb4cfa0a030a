//! The data that a launch reads.

use std::ops::Range;

use crate::ops::expression::graph::MOST_RESULTS;

/// The address of each result's first element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    bases: [*mut u8; MOST_RESULTS],
    count: usize,
}

// SAFETY: addresses, which only unsafe functions dereference.
unsafe impl Send for Outputs {}
// SAFETY: as above.
unsafe impl Sync for Outputs {}

impl Outputs {
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

/// The elements of one or several expressions over an index space, by their numbers. A source is
/// plain data, as everything that a launch reads must be.
pub(crate) trait ElementSource: Send + Sync {
    /// Writes the elements of `range` to their positions in each result.
    ///
    /// # Safety
    ///
    /// The range must lie within the index space. The memory of the operands must be alive, and
    /// nothing may write meanwhile to the elements that are read. `outputs` must have an address
    /// for each result, with room for all elements of the index space. Nobody else may read or
    /// write the elements of `range` in `outputs`.
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs);

    /// Calls `see` with each block of `range`: the numbers of its elements, and their address for
    /// each result. Before the call, the operands of the block have been read. They are not read
    /// again.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), but `see` may write to the elements that it was shown.
    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    );

    /// Returns a copy for a launch that runs later.
    fn boxed(&self) -> Box<dyn ElementSource>;
}
