//! Placement: from which end of a free block a request is cut.
//!
//! Blocks of one size, and blocks handed out close together, tend to be freed together. A network
//! allocates consecutive temporaries and frees them consecutively, while the data around them
//! stays. Neighbours that are freed together leave one hole instead of two. So a block is cut from
//! the end whose neighbour has its size. If both or neither have this size, the end whose neighbour
//! was handed out recently is preferred, else the front. The wilderness of a range is used last,
//! and from its front. Compared with always cutting from the front, this lowers the peak of
//! synthetic training graphs by 1.5 %. This is the mean of 76 graphs, half of which cannot improve.
//! Placement changes nothing if lifetimes have no pattern.

use crate::pool::blocks::{BlockState, BlockTable};

/// The number of last takes whose blocks are recent neighbours: some operations of a network.
/// Values between 100 and 250 differ little.
const RECENT_TAKES: u32 = 120;

/// Returns whether a block of `bytes`, in the take with this number, is cut from the front of the
/// free block `hole`.
#[inline]
pub(super) fn cuts_from_front(blocks: &BlockTable, hole: u32, bytes: u64, take: u32) -> bool {
    let hole = blocks.get(hole);
    if hole.state == BlockState::Wilderness {
        return true;
    }
    let affinity = |neighbour| affinity(blocks, neighbour, bytes, take);
    affinity(hole.before) >= affinity(hole.after)
}

/// Returns how strongly a block of `bytes` prefers a neighbour.
#[inline]
fn affinity(blocks: &BlockTable, neighbour: u32, bytes: u64, take: u32) -> u32 {
    if !blocks.is(neighbour, BlockState::Used) {
        return 0;
    }
    let neighbour = blocks.get(neighbour);
    let is_recent = take.wrapping_sub(neighbour.taken_at()) < RECENT_TAKES;
    2 * u32::from(neighbour.bytes == bytes) + u32::from(is_recent)
}
