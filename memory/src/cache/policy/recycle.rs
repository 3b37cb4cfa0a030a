//! Recycle: idle blocks stay in the free lists.

use std::marker::PhantomData;

use super::{CachePolicy, Policy};
use crate::memory::header::Home;

/// Serves from the free lists.
pub(in crate::cache) struct Recycle<H: Home>(PhantomData<fn(H)>);

impl<H: Home> Recycle<H> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<H: Home> CachePolicy<H> for Recycle<H> {
    fn fast_path(&self) -> Policy {
        Policy::Recycle
    }
}
