//! The policies Recycle and Release, which use only the free lists.

use super::{CachePolicy, Policy};

#[derive(Default)]
pub(in crate::cache) struct FreeLists {
    /// True under Release, where the exit empties the lists.
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
