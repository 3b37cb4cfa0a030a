//! The line of a handle, in builds that do not store it.

use std::panic::Location;

/// The line that made a handle, not stored. The module `enabled` documents the functions.
pub(in crate::buffer) struct SharedAt;

impl SharedAt {
    #[inline(always)]
    pub(in crate::buffer) fn first() -> Self {
        Self
    }

    #[inline(always)]
    pub(in crate::buffer) fn share(&self, _block: usize) -> Self {
        Self
    }

    #[inline(always)]
    pub(in crate::buffer) fn share_as_view(&self, _block: usize) -> Self {
        Self
    }

    /// Returns false: this build does not record which handles belong to views.
    #[inline(always)]
    pub(in crate::buffer) fn is_view(&self, _holders: usize) -> bool {
        false
    }

    /// Returns `None`: this build stores no lines.
    #[inline(always)]
    pub(in crate::buffer) fn other<'a>(
        &'a self,
        _block: usize,
        _except: impl Iterator<Item = &'a Self>,
    ) -> Option<&'static Location<'static>> {
        None
    }
}
