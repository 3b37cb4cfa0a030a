//! Recycle: idle blocks stay in the free lists.

use super::{CachePolicy, Policy};

/// Serves from the free lists.
pub(in crate::cache) struct Recycle;

impl CachePolicy for Recycle {
    fn fast_path(&self) -> Policy {
        Policy::Recycle
    }
}
