//! The call site of a handle, in builds that do not store call sites.

use std::panic::Location;

/// The call site that created a handle, which is not stored. The module `enabled` documents the
/// functions.
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

    /// Returns false, because this build does not record which handles belong to views.
    #[inline(always)]
    pub(in crate::buffer) fn is_view(&self, _holders: usize) -> bool {
        false
    }

    /// Returns `None`, because this build stores no call sites.
    #[inline(always)]
    pub(in crate::buffer) fn other<'a>(
        &'a self,
        _block: usize,
        _except: impl Iterator<Item = &'a Self>,
    ) -> Option<&'static Location<'static>> {
        None
    }
}
