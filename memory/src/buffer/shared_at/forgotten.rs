//! The line of a handle, where none is kept.

use std::panic::Location;

/// The line that made a handle, which is not known.
pub(in crate::buffer) struct SharedAt;

impl SharedAt {
    /// Of the first handle on a block.
    #[inline(always)]
    pub(in crate::buffer) fn first() -> Self {
        Self
    }

    /// Of another handle on the block that is at `_block`, made from the one of this.
    #[inline(always)]
    pub(in crate::buffer) fn share(&self, _block: usize) -> Self {
        Self
    }

    /// Like [`share`](Self::share).
    #[inline(always)]
    pub(in crate::buffer) fn share_as_view(&self, _block: usize) -> Self {
        Self
    }

    /// Returns false: this build does not record which handles belong to views.
    #[inline(always)]
    pub(in crate::buffer) fn is_view(&self, _holders: usize) -> bool {
        false
    }

    /// The line that made a handle on the block at `_block`, other than these and the one of this.
    #[inline(always)]
    pub(in crate::buffer) fn other<'a>(
        &'a self,
        _block: usize,
        _except: impl Iterator<Item = &'a Self>,
    ) -> Option<&'static Location<'static>> {
        None
    }
}
