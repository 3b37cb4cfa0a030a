//! Reductions: each member reduces its part of all inputs in rank order, and sends the result to
//! the other members.
//!
//! Parts are cut into pieces. While one piece is reduced, the next pieces arrive, and the results
//! of earlier pieces are sent.

use super::MpiEngine;
use super::comm::Tag;
use super::opening::{INLINE, input_for};
use super::transfer::{Ring, Transfer, TransferDirection, WINDOW};
use crate::collective::call::{Call, Operation, Reduce};
use crate::collective::engine::{CallMemory, Work};
use crate::collective::reduce_rows::reduce_rows;
use crate::device::host_streams::HostFailure;

/// The maximum length of a piece, in bytes, if no part is longer than this length. The waits for
/// shorter pieces would cost more time than their overlap saves.
const WHOLE: usize = 2 << 20;

/// The limits of pieces, in bytes. `LONGEST` is for parts longer than [`WHOLE`]. `RING` bounds the
/// pieces of all members in the ring together.
const LONGEST: usize = 1 << 20;
const SHORTEST: usize = 16 << 10;
const RING: usize = 8 << 20;

/// The reduction of this rank's part.
struct PartReduction<'a> {
    call: &'a Call,
    reduce: Reduce,
    own: usize,
    piece: usize,
    /// The length of the part, and of its reduced prefix, in bytes.
    bytes: usize,
    reduced: usize,
    /// The input of each member.
    rows: Vec<Ring>,
    result: Ring,
}

/// Indices of the transfers by role. Each role has at most one transfer per member.
#[derive(Default)]
struct Roles {
    /// Transfers that receive the inputs of other members for this rank's part.
    input_receives: Vec<usize>,
    /// Transfers that send this rank's results.
    result_sends: Vec<usize>,
    /// Transfers that receive the results of other members. If a result overwrites an input that
    /// this rank sends, the second index is the input's transfer.
    result_receives: Vec<(usize, Option<usize>)>,
}

impl MpiEngine {
    /// Executes a reduction.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold, and the members
    /// must have agreed on the call.
    pub(super) unsafe fn reduce(
        &mut self,
        work: &Work,
        memory: CallMemory,
        reduce: Reduce,
    ) -> Result<(), HostFailure> {
        let size = work.members.size();
        let piece = piece(size, work.call.bytes());
        // The ring has one row for each other member, and one row for results that this rank does
        // not store.
        let words = size * WINDOW * piece / size_of::<u64>();
        let mut ring = std::mem::take(&mut self.ring);
        if ring.len() < words {
            // `vec![0; words]` gets zeroed pages from the system, so pages that are never accessed
            // use no physical memory.
            ring = vec![0; words];
        }
        // SAFETY: this function has the callee's contract, and the ring has `words` words. The ring
        // lives until nothing is in flight, or it is leaked.
        let outcome = unsafe { self.reduce_in(work, memory, (reduce, piece), &mut ring) };
        match outcome.as_ref().is_err_and(|failure| failure.keeps_memory) {
            true => std::mem::forget(ring),
            false => self.ring = ring,
        }
        outcome
    }

    /// # Safety
    ///
    /// The contract of [`reduce`](Self::reduce) must hold. The ring has `WINDOW` pieces for each
    /// member.
    unsafe fn reduce_in(
        &mut self,
        work: &Work,
        memory: CallMemory,
        (reduce, piece): (Reduce, usize),
        ring: &mut [u64],
    ) -> Result<(), HostFailure> {
        let (own, size) = (work.members.own, work.members.size());
        let wrap = WINDOW * piece;
        let ring: *mut u8 = ring.as_mut_ptr().cast();
        let row = |member: usize| ring.wrapping_add(member * wrap);
        let (source, bytes) = input_for(work, memory, own);
        let result = match work.call.operation {
            Operation::ReduceScatter(_) => Ring::whole(memory.target),
            // The array of a rank that is not the root must not change.
            Operation::Reduce(_, root) if root != own => Ring {
                memory: row(own),
                wrap,
            },
            _ => Ring::whole(memory.target.wrapping_add(offset(work, own))),
        };
        let rows = (0..size).map(|member| match member {
            _ if member == own => Ring::whole(source.cast_mut()),
            _ if bytes <= INLINE => Ring::whole(self.buffers.data(member).cast_mut()),
            _ => Ring {
                memory: row(member),
                wrap,
            },
        });
        let mut part = PartReduction {
            call: &work.call,
            reduce,
            own,
            piece,
            bytes,
            reduced: 0,
            rows: rows.collect(),
            result,
        };
        // SAFETY: this function has the callee's contract. Rows and result are as long as the part,
        // or rings of `WINDOW` pieces.
        let (mut transfers, roles) = unsafe { transfers(work, memory, &part) };
        let mut step = |transfers: &mut [Transfer]| {
            // SAFETY: the transfers and the roles are from `transfers`, and their memory is still
            // valid.
            unsafe { part.step(transfers, &roles) }
        };
        self.carry(work, &mut transfers, &mut step)
    }
}

/// Returns the length of a piece, which is equal on all members.
fn piece(size: usize, bytes: usize) -> usize {
    let longest = if bytes <= size * WHOLE {
        WHOLE
    } else {
        LONGEST
    };
    let share = (RING / (size * WINDOW)).max(1);
    (1 << share.ilog2()).clamp(SHORTEST, longest)
}

/// Returns the offset of a member's part in the inputs, in bytes.
fn offset(work: &Work, member: usize) -> usize {
    let nowhere = CallMemory {
        is_of_device: false,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };
    input_for(work, nowhere, member).0.addr()
}

/// Creates the transfers of a reduction. Data that was sent with the headers needs no transfer.
///
/// # Safety
///
/// The contract of [`reduce`](MpiEngine::reduce) must hold. The part's rows and result are as long
/// as the part, or rings.
unsafe fn transfers(
    work: &Work,
    memory: CallMemory,
    part: &PartReduction<'_>,
) -> (Vec<Transfer>, Roles) {
    let (own, size) = (work.members.own, work.members.size());
    let in_place = memory.source == memory.target.cast_const();
    let root = match work.call.operation {
        Operation::Reduce(_, root) => Some(root),
        _ => None,
    };
    let has_results = !matches!(work.call.operation, Operation::ReduceScatter(_));
    // SAFETY: the memory is valid by this function's contract. A piece becomes ready when its data
    // is written, or when nothing reads the memory that it overwrites.
    let transfer = |peer, tag, direction, memory, bytes| unsafe {
        Transfer::new(peer, (tag, direction), memory, (bytes, part.piece))
    };
    let (mut transfers, mut roles) = (Vec::with_capacity(4 * size), Roles::default());
    for step in 1..size {
        let (from, to) = ((own + size - step) % size, (own + step) % size);
        let (from_peer, to_peer) = (work.members.ranks[from], work.members.ranks[to]);
        if part.bytes > INLINE {
            roles.input_receives.push(transfers.len());
            let row = part.rows[from];
            let input = transfer(
                from_peer,
                Tag::Input,
                TransferDirection::In,
                row,
                part.bytes,
            );
            transfers.push(input);
        }
        let (source, bytes) = input_for(work, memory, to);
        if bytes > INLINE {
            let row = Ring::whole(source.cast_mut());
            let input = transfer(to_peer, Tag::Input, TransferDirection::Out, row, bytes);
            transfers.push(input.all_ready());
        }
        if has_results && root.is_none_or(|root| root == to) && part.bytes > 0 {
            roles.result_sends.push(transfers.len());
            let (way, row) = (TransferDirection::Out, part.result);
            transfers.push(transfer(to_peer, Tag::Reduced, way, row, part.bytes));
        }
    }
    for from in (0..size).filter(|from| *from != own && has_results) {
        let bytes = input_for(work, memory, from).1;
        if bytes == 0 || root.is_some_and(|root| root != own) {
            continue;
        }
        let peer = work.members.ranks[from];
        let sends_input = |transfer: &Transfer| transfer.peer == peer && transfer.sends_input();
        roles.result_receives.push((
            transfers.len(),
            transfers.iter().position(sends_input).filter(|_| in_place),
        ));
        // A piece becomes ready when the input that it overwrites has been sent.
        let row = Ring::whole(memory.target.wrapping_add(offset(work, from)));
        transfers.push(transfer(
            peer,
            Tag::Reduced,
            TransferDirection::In,
            row,
            bytes,
        ));
    }
    (transfers, roles)
}

impl PartReduction<'_> {
    /// If the next piece has arrived from all members, reduces it. Also marks pieces as ready.
    /// Returns true if a piece was reduced.
    ///
    /// # Safety
    ///
    /// [`transfers`] returned the transfers and the roles, and their memory is still valid.
    unsafe fn step(&mut self, transfers: &mut [Transfer], roles: &Roles) -> bool {
        let end = (self.reduced + self.piece).min(self.bytes);
        let has_arrived = roles
            .input_receives
            .iter()
            .all(|take| transfers[*take].done() >= end);
        // In a ring, a result overwrites the result `wrap` bytes before it.
        let has_left = self.result.wrap == usize::MAX
            || roles
                .result_sends
                .iter()
                .all(|pass| transfers[*pass].done() + self.result.wrap >= end);
        let reduces = self.reduced < end && has_arrived && has_left;
        if reduces {
            let width = self.call.dtype.size_bytes();
            let rows: Vec<*const u8> = self
                .rows
                .iter()
                .map(|row| row.at(self.reduced).cast_const())
                .collect();
            let (target, count) = (self.result.at(self.reduced), (end - self.reduced) / width);
            // SAFETY: all rows have arrived up to `end`. Pieces are whole, aligned elements,
            // because rings and parts are aligned. Nothing uses the target, because its earlier
            // results have been sent.
            unsafe { reduce_rows((self.reduce, self.call.dtype), &rows, &[target], count) };
            self.reduced = end;
        }
        let ahead = self.rows.iter().enumerate();
        let ahead = ahead.filter(|(member, _)| *member != self.own);
        let ahead = ahead.map(|(_, row)| row.wrap).min().unwrap_or(usize::MAX);
        for take in &roles.input_receives {
            let transfer = &mut transfers[*take];
            transfer.ready = self.reduced.saturating_add(ahead).min(transfer.bytes());
        }
        for pass in &roles.result_sends {
            transfers[*pass].ready = self.reduced;
        }
        for (get, gave) in &roles.result_receives {
            transfers[*get].ready = match gave {
                Some(gave) => transfers[*gave].done(),
                None => transfers[*get].bytes(),
            };
        }
        reduces
    }
}
