//! Placement: the choice of the end of a free block from which a request is cut.
//!
//! Blocks of one size, and blocks handed out in close succession, tend to be freed together. A
//! network allocates consecutive temporaries and frees them consecutively, while the data around
//! them stays. Neighbours that are freed together leave one hole instead of two. So a new block is
//! cut from the end whose neighbour has the size of the new block. If both neighbours or neither
//! neighbour has this size, the end with a recently handed out neighbour is preferred. Otherwise
//! the front is preferred. The wilderness of a range is used last, and from its front. Compared
//! with always cutting from the front, placement lowers the peak of synthetic training graphs by
//! 1.5 %. This figure is the mean of 76 graphs. Half of these graphs cannot improve. If lifetimes
//! have no pattern, placement changes nothing.

use crate::pool::blocks::{BlockState, BlockTable};

/// The number of most recent takes whose blocks count as recent neighbours. A few operations of a
/// network take about as many blocks. Values between 100 and 250 differ little.
const RECENT_TAKES: u32 = 120;

/// Returns whether the take with the number `take` cuts its block of `bytes` from the front of
/// `hole`.
#[inline]
pub(super) fn cuts_from_front(blocks: &BlockTable, hole: u32, bytes: u64, take: u32) -> bool {
    let hole = blocks.get(hole);
    if hole.state == BlockState::Wilderness {
        return true;
    }
    let affinity = |neighbour| affinity(blocks, neighbour, bytes, take);
    affinity(hole.before) >= affinity(hole.after)
}

/// Returns the preference of a block of `bytes` for a neighbour, from 0 to 3.
#[inline]
fn affinity(blocks: &BlockTable, neighbour: u32, bytes: u64, take: u32) -> u32 {
    if !blocks.is(neighbour, BlockState::Used) {
        return 0;
    }
    let neighbour = blocks.get(neighbour);
    let is_recent = take.wrapping_sub(neighbour.taken_at()) < RECENT_TAKES;
    2 * u32::from(neighbour.bytes == bytes) + u32::from(is_recent)
}
