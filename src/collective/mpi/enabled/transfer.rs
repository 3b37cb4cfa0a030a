//! Transfer of memory to or from another rank, in pieces.

use std::collections::VecDeque;

use super::comm::{Comm, MpiRequest, Tag, arrived_of};
use crate::error::{Error, ErrorKind, Result};

/// The maximum number of pieces of a transfer in flight: the current piece and the next piece. The
/// next piece then starts without delay.
pub(super) const WINDOW: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferDirection {
    Out,
    In,
}

/// A transfer of bytes between this rank and another rank, in pieces. Both ranks use pieces of
/// equal length.
///
/// Invariant: done ≤ begun ≤ ready ≤ bytes, and `in_flight` has the pieces from done to begun, in
/// order.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) peer: usize,
    tag: Tag,
    direction: TransferDirection,
    memory: Ring,
    bytes: usize,
    piece: usize,
    /// The position up to which pieces may be started.
    pub(super) ready: usize,
    begun: usize,
    done: usize,
    in_flight: VecDeque<Piece>,
}

#[derive(Debug)]
struct Piece {
    request: MpiRequest,
    length: usize,
    /// The number of received bytes, or `None` until the piece is done. For a sent piece, the
    /// number is 0.
    arrived: Option<usize>,
}

/// A ring buffer of the latest pieces: byte `i` of a transfer is at `i % wrap`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) memory: *mut u8,
    pub(super) wrap: usize,
}

impl Ring {
    /// Returns a ring that never wraps, for memory as long as the transfer.
    pub(super) fn whole(memory: *mut u8) -> Self {
        Self {
            memory,
            wrap: usize::MAX,
        }
    }

    pub(super) fn at(&self, byte: usize) -> *mut u8 {
        self.memory.wrapping_add(byte % self.wrap)
    }
}

impl Transfer {
    /// Creates a transfer of `bytes` bytes, in pieces of `piece` bytes. No piece is ready.
    ///
    /// # Safety
    ///
    /// The memory has `bytes` bytes, or the ring's `wrap` bytes if these are fewer. The memory is
    /// readable, and for a receiving transfer also writable. While a piece is ready and not done,
    /// nothing else writes to its memory. In a receiving transfer, nothing else reads the piece
    /// either. The memory stays valid until all pieces are done or cancelled.
    pub(super) unsafe fn new(
        peer: usize,
        (tag, direction): (Tag, TransferDirection),
        memory: Ring,
        (bytes, piece): (usize, usize),
    ) -> Self {
        Self {
            peer,
            tag,
            direction,
            memory,
            bytes,
            piece,
            ready: 0,
            begun: 0,
            done: 0,
            in_flight: VecDeque::with_capacity(WINDOW),
        }
    }

    /// Marks the whole transfer as ready.
    pub(super) fn all_ready(mut self) -> Self {
        self.ready = self.bytes;
        self
    }

    /// Returns the length of the transferred prefix, in bytes.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done == self.bytes
    }

    /// Returns true if the transfer sends this rank's input.
    pub(super) fn sends_input(&self) -> bool {
        self.direction == TransferDirection::Out && self.tag == Tag::Input
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Starts the ready pieces of all transfers, and tests the pieces in flight. Returns true if
    /// any piece was started or is done.
    pub(super) fn advance(transfers: &mut [Self], comm: &Comm) -> Result<bool> {
        let mut has_moved = false;
        for transfer in transfers.iter_mut() {
            has_moved |= transfer.begin(comm)?;
        }
        let in_flight = transfers
            .iter_mut()
            .flat_map(|transfer| &mut transfer.in_flight);
        let arrived = arrived_of(in_flight.map(|piece| &mut piece.request))?;
        if arrived.is_empty() {
            return Ok(has_moved);
        }
        let mut in_flight: Vec<&mut Piece> = transfers
            .iter_mut()
            .flat_map(|transfer| &mut transfer.in_flight)
            .collect();
        for (place, bytes) in arrived {
            in_flight[place].arrived = Some(bytes);
        }
        for transfer in transfers {
            transfer.count_arrived()?;
        }
        Ok(true)
    }

    /// Counts the leading pieces that are done. A piece after an unfinished piece does not count
    /// yet.
    fn count_arrived(&mut self) -> Result<()> {
        while let Some(piece) = self.in_flight.front() {
            let Some(arrived) = piece.arrived else {
                break;
            };
            if self.direction == TransferDirection::In && arrived != piece.length {
                let (peer, expected) = (self.peer, piece.length);
                let text = format!("rank {peer} sent {arrived} bytes, expected {expected}");
                return Err(Error::new(ErrorKind::Communication, text));
            }
            self.done += piece.length;
            self.in_flight.pop_front();
        }
        Ok(())
    }

    fn begin(&mut self, comm: &Comm) -> Result<bool> {
        let before = self.begun;
        while self.begun < self.bytes && self.in_flight.len() < WINDOW {
            let length = self.piece.min(self.bytes - self.begun);
            if self.begun + length > self.ready {
                break;
            }
            // SAFETY: the address is inside of the memory. By the contract of `new`, this transfer
            // alone uses the piece while it is in flight.
            let request = unsafe {
                let place = self.memory.at(self.begun);
                match self.direction {
                    TransferDirection::Out => comm.send(self.tag, self.peer, (place, length))?,
                    TransferDirection::In => comm.receive(self.tag, self.peer, (place, length))?,
                }
            };
            self.in_flight.push_back(Piece {
                request,
                length,
                arrived: None,
            });
            self.begun += length;
        }
        Ok(self.begun > before)
    }

    /// Cancels the pieces in flight. Returns true if MPI has certainly finished with the memory.
    pub(super) fn cancel(&mut self) -> bool {
        self.ready = self.begun;
        self.in_flight.retain_mut(|piece| !piece.request.cancel());
        self.in_flight.is_empty()
    }
}
