//! The live blocks of a device while a snapshot's entries are read.

use crate::trace::Parsed;
use std::collections::{BTreeMap, HashSet};

use super::entries::EntryPath;

pub(super) struct LiveBlock<T> {
    pub(super) value: T,
    /// The step at which the free of the block was requested.
    pub(super) freed_at: Option<u64>,
    bytes: u64,
    /// The step at which the block was allocated; 0 if it was allocated before the recording.
    since: u64,
}

/// The live blocks of a device, each with a value.
///
/// Invariant: no two blocks overlap.
pub(super) struct LiveBlocks<T> {
    blocks: BTreeMap<u64, LiveBlock<T>>,
    /// Every address that was ever live.
    known: HashSet<u64>,
}

impl<T> LiveBlocks<T> {
    pub(super) fn new() -> Self {
        Self {
            blocks: BTreeMap::new(),
            known: HashSet::new(),
        }
    }

    /// Returns whether a block was ever live at the address.
    pub(super) fn is_known(&self, address: u64) -> bool {
        self.known.contains(&address)
    }

    /// Records an address. Returns whether it is new: no block was live at the address before.
    pub(super) fn note(&mut self, address: u64) -> bool {
        self.known.insert(address)
    }

    /// Adds a block that is live from step `since` on. A version of PyTorch that does not record
    /// the completion of frees leaves freed blocks live. So each overlapped block is removed and
    /// passed to `ended`, with the step of its requested free.
    ///
    /// # Errors
    ///
    /// Returns a message if the free of an overlapped block was not requested.
    pub(super) fn insert(
        &mut self,
        address: u64,
        bytes: u64,
        since: u64,
        value: T,
        mut ended: impl FnMut(T, u64),
    ) -> Parsed<()> {
        let end = address.saturating_add(bytes.max(1));
        // Live blocks do not overlap, so only the last blocks that start before `end` can overlap
        // the new block.
        while let Some((&other, live)) = self.blocks.range(..end).next_back()
            && other.saturating_add(live.bytes.max(1)) > address
        {
            let Some(freed_at) = live.freed_at else {
                let since = match live.since {
                    0 => "before the recording".into(),
                    entry => format!("entry {entry}"),
                };
                return Err(format!(
                    "{address:#x} overlaps the block at {other:#x}, which is alive since {since}"
                ));
            };
            if let Some(live) = self.blocks.remove(&other) {
                ended(live.value, freed_at);
            }
        }
        self.known.insert(address);
        self.blocks.insert(
            address,
            LiveBlock {
                value,
                freed_at: None,
                bytes,
                since,
            },
        );
        Ok(())
    }

    /// Returns the block at `address` whose free an entry requests in step `step`.
    ///
    /// # Errors
    ///
    /// Returns a message with `place` if no block is live at `address`, or if its free was already
    /// requested.
    pub(super) fn request_free(
        &mut self,
        place: EntryPath,
        address: u64,
        step: u64,
    ) -> Parsed<&mut LiveBlock<T>> {
        let live = self.freed(place, address)?;
        if let Some(requested) = live.freed_at {
            return Err(format!(
                "{place}: the free of {address:#x} was requested already, by entry {requested}"
            ));
        }
        live.freed_at = Some(step);
        Ok(live)
    }

    /// Returns the block at `address` whose free an entry completes.
    ///
    /// # Errors
    ///
    /// Returns a message with `place` if no block is live at `address`.
    pub(super) fn freed(&mut self, place: EntryPath, address: u64) -> Parsed<&mut LiveBlock<T>> {
        let live = self.blocks.get_mut(&address);
        live.ok_or_else(|| format!("{place}: {address:#x} was freed already"))
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<LiveBlock<T>> {
        self.blocks.remove(&address)
    }
}
