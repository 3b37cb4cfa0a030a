//! Release: as Recycle inside the scope; nothing idle stays after the exit.

use std::marker::PhantomData;

use super::{CachePolicy, Policy};
use crate::cache::store::Store;
use crate::device::StreamId;
use crate::memory::header::{Header, Home};

/// Serves from the free lists, which the exit empties.
pub(in crate::cache) struct Release<H: Home>(PhantomData<fn(H)>);

impl<H: Home> Release<H> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<H: Home> CachePolicy<H> for Release<H> {
    fn hot(&self) -> Policy {
        Policy::Recycle
    }

    fn allocate(
        &mut self,
        store: &mut Store<H>,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header<H>>> {
        store.pop_exact(rounded_bytes, stream)
    }

    fn keeps_idle(&self) -> bool {
        false
    }
}
