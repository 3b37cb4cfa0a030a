//! Whether a plan is one.

use std::collections::BTreeMap;
use std::fmt;

use super::Buffer;

/// Why offsets are no plan: the places in the input of the buffers that are in each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// There are not as many offsets as buffers.
    Count,
    /// This buffer ends outside the slab.
    Outside(usize),
    /// These two share a byte at a moment when both live.
    Overlap(usize, usize),
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => write!(f, "not as many offsets as buffers"),
            Self::Outside(index) => write!(f, "buffer {index} ends outside the slab"),
            Self::Overlap(one, other) => write!(f, "buffers {one} and {other} overlap"),
        }
    }
}

impl std::error::Error for Conflict {}

/// Sweeps through time with the living buffers sorted by offset, where only neighbours can overlap.
///
/// # Errors
///
/// The first [`Conflict`] in time.
pub fn validate(buffers: &[Buffer], offsets: &[u64], slab_bytes: u64) -> Result<(), Conflict> {
    if buffers.len() != offsets.len() {
        return Err(Conflict::Count);
    }
    let end = |index: usize| offsets[index].checked_add(buffers[index].size_bytes);
    let mut events = Vec::new();
    let placed = buffers.iter().enumerate();
    for (index, buffer) in placed.filter(|(_, buffer)| buffer.occupies()) {
        if end(index).is_none_or(|end| end > slab_bytes) {
            return Err(Conflict::Outside(index));
        }
        events.push((buffer.lower, true, index));
        events.push((buffer.upper, false, index));
    }
    // Ends, which sort as false, come first: lifetimes are half open.
    events.sort_unstable();
    let mut living: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, begins, index) in events {
        let offset = offsets[index];
        if !begins {
            living.remove(&offset);
            continue;
        }
        let below = living.range(..=offset).next_back();
        let above = living.range(offset..).next();
        for (_, &other) in below.into_iter().chain(above) {
            if end(other) > Some(offset) && end(index) > Some(offsets[other]) {
                return Err(Conflict::Overlap(other, index));
            }
        }
        living.insert(offset, index);
    }
    Ok(())
}
