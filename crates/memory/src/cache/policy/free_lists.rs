//! Recycle and Release: idle blocks are in the free lists.

use super::{CachePolicy, Policy};

/// The policies that serve requests from the free lists.
#[derive(Default)]
pub(in crate::cache) struct FreeLists {
    /// True under Release: the exit empties the lists.
    pub(super) releases: bool,
}

impl CachePolicy for FreeLists {
    fn fast_path(&self) -> Policy {
        Policy::Recycle
    }

    fn keeps_idle(&self) -> bool {
        !self.releases
    }
}
