//! The times until which freed blocks were pending.

use std::collections::{BTreeMap, HashMap};

use crate::lifetimes::AllocationLifetime;
use crate::profile::{EventKind, Profile};

/// Returns, for each lifetime, the moment until which its block was pending, or 0 if it was never
/// pending.
///
/// A block is pending until [`FreeCompleted`](EventKind::FreeCompleted) covers its address.
/// Recordings of other allocators lack this event. There, a block is pending until the host waits
/// for a stream, or the block's address is allocated again.
pub(super) fn pending_until(profile: &Profile, lifetimes: &[AllocationLifetime]) -> Vec<u64> {
    let freed_by: HashMap<usize, usize> = (lifetimes.iter().enumerate())
        .filter_map(|(number, lifetime)| lifetime.freed.map(|event| (event, number)))
        .collect();
    let mut until = vec![0; lifetimes.len()];
    let mut pending: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, event) in profile.events.iter().enumerate() {
        let moment = index as u64 + 1;
        match event.kind {
            EventKind::FreePending => {
                pending.extend(freed_by.get(&index).map(|&number| (event.address, number)));
            }
            EventKind::Wait => std::mem::take(&mut pending)
                .into_values()
                .for_each(|number| until[number] = moment),
            EventKind::FreeCompleted => {
                let end = event.address.saturating_add(event.bytes);
                let mut later = pending.split_off(&event.address);
                let mut beyond = later.split_off(&end);
                pending.append(&mut beyond);
                later
                    .into_values()
                    .for_each(|number| until[number] = moment);
            }
            kind if kind.is_allocation() => {
                if let Some(number) = pending.remove(&event.address) {
                    until[number] = moment;
                }
            }
            _ => {}
        }
    }
    for number in pending.into_values() {
        until[number] = profile.events.len() as u64 + 1;
    }
    until
}
