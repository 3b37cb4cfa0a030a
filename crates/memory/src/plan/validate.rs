//! Validation of plans.

use std::collections::BTreeMap;
use std::fmt;

use super::BufferInterval;

/// The reason why offsets are not a valid plan. The numbers are indices into the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// Different numbers of offsets and buffers.
    Count,
    /// A buffer that ends beyond the slab.
    Outside(usize),
    /// Two buffers that overlap in both time and space.
    Overlap(usize, usize),
    /// A buffer whose offset is not a multiple of its alignment.
    Unaligned(usize),
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => write!(f, "the numbers of offsets and buffers differ"),
            Self::Outside(index) => write!(f, "buffer {index} ends outside the slab"),
            Self::Unaligned(index) => write!(f, "the offset of buffer {index} is not aligned"),
            Self::Overlap(one, other) => write!(f, "buffers {one} and {other} overlap"),
        }
    }
}

impl std::error::Error for Conflict {}

/// Checks a plan by a sweep over time. The live buffers are sorted by offset, so only neighbours
/// can overlap.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::plan::{BufferInterval, Conflict, validate};
///
/// let buffer = |lower, upper, size_bytes| BufferInterval { lower, upper, size_bytes };
/// let buffers = [buffer(0, 2, 512), buffer(1, 3, 512)];
/// assert_eq!(validate(&buffers, &[0, 512], 1024), Ok(()));
/// assert_eq!(validate(&buffers, &[0, 512], 512), Err(Conflict::Outside(1)));
/// assert!(matches!(validate(&buffers, &[0, 0], 1024), Err(Conflict::Overlap(..))));
/// ```
///
/// # Errors
///
/// The first [`Conflict`] in time.
pub fn validate(
    buffers: &[BufferInterval],
    offsets: &[u64],
    slab_bytes: u64,
) -> Result<(), Conflict> {
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
    // Ends are `false`, so they are sorted before starts, because lifetimes are half open.
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
