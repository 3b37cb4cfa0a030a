//! Collectives that transfer data unchanged.

use super::MpiEngine;
use super::comm::Tag;
use super::opening::{INLINE, input_for};
use super::transfer::{Ring, Transfer, TransferDirection};
use crate::collective::call::Operation;
use crate::collective::engine::{CallMemory, Work};
use crate::device::host_streams::HostFailure;

/// The length of a piece, in bytes. Pieces are long enough that the cost of a message is
/// negligible. They are short enough that a slow transfer makes progress before the timeout.
pub(super) const PIECE: usize = 4 << 20;

/// The length of a forwarded piece, in bytes. A rank forwards only whole pieces. Therefore data in
/// shorter pieces reaches the last rank earlier.
const FORWARDED_PIECE: usize = 512 << 10;

impl MpiEngine {
    /// Sends one block of data from each member to each other member.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold, and the members
    /// must have agreed on the call.
    pub(super) unsafe fn exchange(
        &mut self,
        work: &Work,
        memory: CallMemory,
    ) -> Result<(), HostFailure> {
        let (own, size) = (work.members.own, work.members.size());
        let bytes = input_for(work, memory, own).1;
        let taken = |from: usize| memory.target.wrapping_add(from * bytes);
        let mut transfers = Vec::with_capacity(2 * size);
        // SAFETY: by this function's contract, source and target are valid and separate. Each
        // received block is in its member's part of the target.
        unsafe {
            for step in (1..size).filter(|_| bytes > INLINE) {
                let (from, to) = ((own + size - step) % size, (own + step) % size);
                let given = input_for(work, memory, to).0.cast_mut();
                for (member, direction, memory) in [
                    (from, TransferDirection::In, taken(from)),
                    (to, TransferDirection::Out, given),
                ] {
                    let (peer, way) = (work.members.ranks[member], (Tag::Input, direction));
                    let transfer = Transfer::new(peer, way, Ring::whole(memory), (bytes, PIECE));
                    transfers.push(transfer.all_ready());
                }
            }
            for from in (0..size).filter(|from| *from != own && bytes <= INLINE) {
                taken(from).copy_from_nonoverlapping(self.buffers.data(from), bytes);
            }
        }
        // This rank's own part is copied in the first iteration, while other ranks send.
        let own_part = work.call.own_part(own, size);
        let mut own_part = own_part.filter(|(_, _, bytes)| *bytes > 0 && !memory.is_of_device);
        let mut copy_own = |_: &mut [Transfer]| {
            let Some((from, to, bytes)) = own_part.take() else {
                return false;
            };
            // SAFETY: by this function's contract, source and target are valid. No transfer uses
            // this rank's own part.
            unsafe {
                let (from, to) = (memory.source.add(from), memory.target.add(to));
                to.copy_from_nonoverlapping(from, bytes);
            }
            true
        };
        self.carry(work, &mut transfers, &mut copy_own)
    }

    /// Broadcasts from the root along a binary tree.
    ///
    /// # Safety
    ///
    /// The contract of [`exchange`](Self::exchange) must hold.
    pub(super) unsafe fn broadcast(
        &mut self,
        work: &Work,
        memory: CallMemory,
        root: usize,
    ) -> Result<(), HostFailure> {
        debug_assert_eq!(work.call.operation, Operation::Broadcast(root));
        let (own, size, bytes) = (work.members.own, work.members.size(), work.call.bytes());
        if bytes <= INLINE {
            if own != root {
                // SAFETY: the target has the bytes of the call. The opening has checked that the
                // header's data has as many bytes.
                unsafe {
                    memory
                        .target
                        .copy_from_nonoverlapping(self.buffers.data(root), bytes);
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
        // SAFETY: by this function's contract, the memory is valid. A piece is forwarded only after
        // it has arrived, and does not change afterwards.
        let transfer = |place: usize, direction: TransferDirection| unsafe {
            let way = (Tag::Input, direction);
            Transfer::new(
                peer(place),
                way,
                Ring::whole(data),
                (bytes, FORWARDED_PIECE),
            )
        };
        let mut transfers = Vec::with_capacity(3);
        if place > 0 {
            transfers.push(transfer((place - 1) / 2, TransferDirection::In).all_ready());
        }
        let branches = [2 * place + 1, 2 * place + 2].into_iter();
        let branches = branches.filter(|branch| *branch < size);
        transfers.extend(branches.map(|branch| transfer(branch, TransferDirection::Out)));
        let mut forward = |transfers: &mut [Transfer]| {
            let (has, branches) = match place {
                0 => (bytes, transfers),
                _ => match transfers.split_first_mut() {
                    Some((trunk, branches)) => (trunk.done(), branches),
                    None => return false,
                },
            };
            branches.iter_mut().for_each(|branch| branch.ready = has);
            false
        };
        self.carry(work, &mut transfers, &mut forward)
    }
}
