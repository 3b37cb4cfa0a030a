//! Release: as Recycle inside the scope; nothing idle stays after the exit.

use super::{CachePolicy, Policy};

/// Serves from the free lists, which the exit empties.
pub(in crate::cache) struct Release;

impl CachePolicy for Release {
    fn fast_path(&self) -> Policy {
        Policy::Recycle
    }

    fn keeps_idle(&self) -> bool {
        false
    }
}
