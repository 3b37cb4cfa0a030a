//! How long freed blocks were pending.

use std::collections::HashMap;

use crate::lifetimes::Lifetime;
use crate::profile::{EventKind, Profile};

/// For each lifetime the moment until which its block was pending; 0 where it never was.
///
/// A block is pending until the recording says that other streams are done with it. Where it does not, as those of other
/// allocators, until the host waits for a stream, or until its address serves again.
pub(super) fn pending_until(profile: &Profile, lifetimes: &[Lifetime]) -> Vec<u64> {
    let freed_by: HashMap<usize, usize> = (lifetimes.iter().enumerate())
        .filter_map(|(number, lifetime)| lifetime.freed.map(|event| (event, number)))
        .collect();
    let mut until = vec![0; lifetimes.len()];
    let mut pending: HashMap<u64, usize> = HashMap::new();
    for (index, event) in profile.events.iter().enumerate() {
        let moment = index as u64 + 1;
        match event.kind {
            EventKind::FreePending => {
                pending.extend(freed_by.get(&index).map(|&number| (event.address, number)));
            }
            EventKind::Wait => pending
                .drain()
                .for_each(|(_, number)| until[number] = moment),
            kind if kind.is_allocation() || kind == EventKind::FreeCompleted => {
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
