//! What a launch reads.

use std::ops::Range;

/// The most results that are computed in one pass.
pub(crate) const MOST_RESULTS: usize = 8;

/// Where the elements of each result stand, from its first one on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outs {
    bases: [*mut u8; MOST_RESULTS],
    count: usize,
}

// SAFETY: addresses, which only unsafe functions follow.
unsafe impl Send for Outs {}
// SAFETY: as above.
unsafe impl Sync for Outs {}

impl Outs {
    /// # Panics
    ///
    /// Where there are more than [`MOST_RESULTS`].
    pub(super) fn new(bases: impl IntoIterator<Item = *mut u8>) -> Self {
        let mut outs = Self {
            bases: [std::ptr::null_mut(); MOST_RESULTS],
            count: 0,
        };
        for base in bases {
            outs.bases[outs.count] = base;
            outs.count += 1;
        }
        outs
    }

    pub(super) fn all(&self) -> &[*mut u8] {
        &self.bases[..self.count]
    }
}

/// The elements of one or several expressions over a frame, by their numbers: of plain data, as
/// what a launch reads must be.
pub(crate) trait Source: Send + Sync {
    /// Writes the elements of `range` to where those of each result stand.
    ///
    /// # Safety
    ///
    /// The range must lie within the frame. The memory of the operands must be alive, and nothing
    /// may write to what is read there meanwhile. `outs` must have an address for each result,
    /// where all elements of the frame have room; nobody else may read or write those of `range`.
    unsafe fn write(&self, range: Range<usize>, outs: &Outs);

    /// Shows the elements of `range` block by block, each by the numbers of its elements and where
    /// they stand, a place for each result. What the operands hold there has been read by then, and
    /// is not read again.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), but `see` may write to the elements that it was shown.
    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    );

    /// A copy, for who reads later.
    fn boxed(&self) -> Box<dyn Source>;
}
