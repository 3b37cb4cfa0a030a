//! Release: as Recycle inside the scope; nothing idle stays after the exit.

use std::marker::PhantomData;

use super::{CachePolicy, Policy};
use crate::memory::header::Home;

/// Serves from the free lists, which the exit empties.
pub(in crate::cache) struct Release<H: Home>(PhantomData<fn(H)>);

impl<H: Home> Release<H> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<H: Home> CachePolicy<H> for Release<H> {
    fn fast_path(&self) -> Policy {
        Policy::Recycle
    }

    fn keeps_idle(&self) -> bool {
        false
    }
}
