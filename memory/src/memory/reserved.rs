//! The reserved addresses, for reports. They are stored beside the pool, which knows only offsets.

use std::collections::BTreeMap;

/// Reserved memory by address.
///
/// Invariant: the parts neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct Reserved(BTreeMap<u64, u64>);

impl Reserved {
    /// Adds memory that was not reserved.
    pub(super) fn insert(&mut self, address: u64, bytes: u64) {
        let (mut address, mut bytes) = (address, bytes);
        if let Some((&before, &length)) = self.0.range(..address).next_back()
            && before + length == address
        {
            self.0.remove(&before);
            (address, bytes) = (before, length + bytes);
        }
        if let Some(length) = self.0.remove(&(address + bytes)) {
            bytes += length;
        }
        self.0.insert(address, bytes);
    }

    /// Removes memory, all of which was reserved.
    pub(super) fn remove(&mut self, address: u64, bytes: u64) {
        let Some((&before, &length)) = self.0.range(..=address).next_back() else {
            debug_assert!(false, "{address:#x} was not reserved");
            return;
        };
        let (begin, end) = (before + length, address + bytes);
        debug_assert!(end <= begin, "{address:#x} was not reserved as a whole");
        self.0.remove(&before);
        if before < address {
            self.0.insert(before, address - before);
        }
        if end < begin {
            self.0.insert(end, begin - end);
        }
    }

    /// Iterates over the address and length of each part, by address.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&address, &bytes)| (address, bytes))
    }
}
