//! Data that goes from ranks to ranks as it is.

use super::MpiEngine;
use super::comm::Tag;
use super::lane::{Lane, Load, Way};
use super::opening::{INLINE, given};
use crate::collective::call::Operation;
use crate::collective::engine::{Memory, Work};
use crate::device::host_streams::HostFailure;

/// Bytes that go at a time: so many that a message costs nothing beside them, so few that a rank
/// that still gives is not taken for one that does not.
pub(super) const PIECE: usize = 4 << 20;

/// The same where ranks pass on what they get, which they do with whole pieces.
const PASSED_ON: usize = 512 << 10;

/// A load whose memory is as long as it is.
fn whole(memory: *mut u8, bytes: usize, piece: usize) -> Load {
    Load {
        memory,
        wrap: usize::MAX,
        bytes,
        piece,
    }
}

impl MpiEngine {
    /// Each member gives each other one something.
    ///
    /// # Safety
    ///
    /// As for [`run`](crate::collective::engine::Engine::run); the members agreed on the call.
    pub(super) unsafe fn exchange(
        &mut self,
        work: &Work,
        memory: Memory,
    ) -> Result<(), HostFailure> {
        let (own, size) = (work.members.own, work.members.size());
        let bytes = given(work, memory, own).1;
        let taken = |from: usize| memory.target.wrapping_add(from * bytes);
        let mut lanes = Vec::with_capacity(2 * size);
        // SAFETY: by this function's contract: each place is a part of the target that is one
        // member's, and the source is another memory.
        unsafe {
            for step in (1..size).filter(|_| bytes > INLINE) {
                let (from, to) = ((own + size - step) % size, (own + step) % size);
                let load = whole(taken(from), bytes, PIECE);
                let peer = work.members.ranks[from];
                lanes.push(Lane::new(peer, (Tag::Given, Way::In), load).all_ready());
                let load = whole(given(work, memory, to).0.cast_mut(), bytes, PIECE);
                let peer = work.members.ranks[to];
                lanes.push(Lane::new(peer, (Tag::Given, Way::Out), load).all_ready());
            }
            for from in (0..size).filter(|from| *from != own && bytes <= INLINE) {
                taken(from).copy_from_nonoverlapping(self.rooms.data(from), bytes);
            }
        }
        // In the first turn that follows, while the others give.
        let own_part = work.call.own_part(own, size);
        let mut own_part = own_part.filter(|(_, _, bytes)| *bytes > 0 && !memory.is_of_device);
        let mut copy_own = |_: &mut [Lane]| {
            let Some((from, to, bytes)) = own_part.take() else {
                return false;
            };
            // SAFETY: as before: this rank's own part is nobody else's.
            unsafe {
                let (from, to) = (memory.source.add(from), memory.target.add(to));
                to.copy_from_nonoverlapping(from, bytes);
            }
            true
        };
        self.carry(work, &mut lanes, &mut copy_own)
    }

    /// The root gives all others something, along a tree of which each rank has two branches at
    /// most.
    ///
    /// # Safety
    ///
    /// As for [`exchange`](Self::exchange).
    pub(super) unsafe fn broadcast(
        &mut self,
        work: &Work,
        memory: Memory,
        root: usize,
    ) -> Result<(), HostFailure> {
        debug_assert_eq!(work.call.operation, Operation::Broadcast(root));
        let (own, size, bytes) = (work.members.own, work.members.size(), work.call.bytes());
        if bytes <= INLINE {
            if own != root {
                // SAFETY: the target is as long as the call says, and so is what came along, as the
                // opening checked.
                unsafe {
                    memory
                        .target
                        .copy_from_nonoverlapping(self.rooms.data(root), bytes);
                }
            }
            return Ok(());
        }
        let place = (own + size - root) % size;
        let peer = |place: usize| work.members.ranks[(place + root) % size];
        let data = match place {
            0 => memory.source.cast_mut(),
            _ => memory.target,
        };
        let load = whole(data, bytes, PASSED_ON);
        let mut lanes = Vec::with_capacity(3);
        // SAFETY: by this function's contract; a piece is passed on when it has come, and not
        // changed any more.
        unsafe {
            if place > 0 {
                let from = peer((place - 1) / 2);
                lanes.push(Lane::new(from, (Tag::Given, Way::In), load).all_ready());
            }
            for branch in [2 * place + 1, 2 * place + 2] {
                if branch < size {
                    lanes.push(Lane::new(peer(branch), (Tag::Given, Way::Out), load));
                }
            }
        }
        let mut pass_on = |lanes: &mut [Lane]| {
            let (has, branches) = match place {
                0 => (bytes, lanes),
                _ => match lanes.split_first_mut() {
                    Some((trunk, branches)) => (trunk.done(), branches),
                    None => return false,
                },
            };
            branches.iter_mut().for_each(|branch| branch.ready = has);
            false
        };
        self.carry(work, &mut lanes, &mut pass_on)
    }
}
