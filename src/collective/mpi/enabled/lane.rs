//! Memory that goes to another rank, or comes from one, piece by piece.

use std::collections::VecDeque;

use super::comm::{Comm, Request, Tag, arrived_of};
use crate::error::{Error, ErrorKind, Result};

/// Pieces of a lane that are in flight at once: one, and the one that follows without a wait.
pub(super) const WINDOW: usize = 2;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

/// A row of bytes between this rank and another, in pieces of one length, which both ranks know.
///
/// Invariant: done ≤ begun ≤ ready ≤ bytes, and `flight` has the pieces from done to begun, in
/// order.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) peer: usize,
    tag: Tag,
    way: Way,
    memory: *mut u8,
    /// After so many bytes the memory begins again.
    wrap: usize,
    bytes: usize,
    piece: usize,
    /// Up to where pieces may be begun.
    pub(super) ready: usize,
    begun: usize,
    done: usize,
    flight: VecDeque<Piece>,
}

/// A piece in flight.
#[derive(Debug)]
struct Piece {
    request: Request,
    length: usize,
    /// How many bytes came, as soon as it is done; of a piece that goes out, none.
    arrived: Option<usize>,
}

/// What a lane carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) memory: *mut u8,
    pub(super) wrap: usize,
    pub(super) bytes: usize,
    pub(super) piece: usize,
}

impl Lane {
    /// A lane of which nothing is ready.
    ///
    /// # Safety
    ///
    /// The memory, of `bytes` bytes, or of `wrap` where that is less, is readable, and writable
    /// where it comes in. From when a piece is ready until it is done, nothing else changes it, nor
    /// uses it where it comes in. It stays until all is done or taken back.
    pub(super) unsafe fn new(peer: usize, (tag, way): (Tag, Way), load: Load) -> Self {
        let Load {
            memory,
            wrap,
            bytes,
            piece,
        } = load;
        Self {
            peer,
            tag,
            way,
            memory,
            wrap,
            bytes,
            piece,
            ready: 0,
            begun: 0,
            done: 0,
            flight: VecDeque::with_capacity(WINDOW),
        }
    }

    /// The same lane, of which all is ready.
    pub(super) fn all_ready(mut self) -> Self {
        self.ready = self.bytes;
        self
    }

    /// How many bytes, from the first on, have come or gone.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done == self.bytes
    }

    /// Whether this rank gives by it what others reduce.
    pub(super) fn gives(&self) -> bool {
        self.way == Way::Out && self.tag == Tag::Given
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins what is ready of all lanes, and looks what is done. Answers whether there was any of
    /// it.
    pub(super) fn turn(lanes: &mut [Self], comm: &Comm) -> Result<bool> {
        let mut has_moved = false;
        for lane in lanes.iter_mut() {
            has_moved |= lane.begin(comm)?;
        }
        let flight = lanes.iter_mut().flat_map(|lane| &mut lane.flight);
        let arrived = arrived_of(flight.map(|piece| &mut piece.request))?;
        if arrived.is_empty() {
            return Ok(has_moved);
        }
        let mut flight: Vec<&mut Piece> =
            lanes.iter_mut().flat_map(|lane| &mut lane.flight).collect();
        for (place, bytes) in arrived {
            flight[place].arrived = Some(bytes);
        }
        for lane in lanes {
            lane.take_in()?;
        }
        Ok(true)
    }

    /// Counts the pieces that are done, and none that comes after one that is not.
    fn take_in(&mut self) -> Result<()> {
        while let Some(piece) = self.flight.front() {
            let Some(arrived) = piece.arrived else {
                break;
            };
            if self.way == Way::In && arrived != piece.length {
                return Err(other_length(self.peer, piece.length, arrived));
            }
            self.done += piece.length;
            self.flight.pop_front();
        }
        Ok(())
    }

    fn begin(&mut self, comm: &Comm) -> Result<bool> {
        let before = self.begun;
        while self.begun < self.bytes && self.flight.len() < WINDOW {
            let length = self.piece.min(self.bytes - self.begun);
            if self.begun + length > self.ready {
                break;
            }
            // SAFETY: the place lies in the memory, and by the contract of `new` it is this lane's
            // while the piece is in flight.
            let request = unsafe {
                let place = self.memory.add(self.begun % self.wrap);
                match self.way {
                    Way::Out => comm.send(self.tag, self.peer, (place, length))?,
                    Way::In => comm.receive(self.tag, self.peer, (place, length))?,
                }
            };
            self.flight.push_back(Piece {
                request,
                length,
                arrived: None,
            });
            self.begun += length;
        }
        Ok(self.begun > before)
    }

    /// Takes back what is in flight. Answers whether MPI is through with the memory for certain.
    pub(super) fn take_back(&mut self) -> bool {
        self.ready = self.begun;
        self.flight.retain_mut(|piece| !piece.request.take_back());
        self.flight.is_empty()
    }
}

#[cold]
fn other_length(peer: usize, expected: usize, arrived: usize) -> Error {
    let text = format!("rank {peer} sent {arrived} bytes where {expected} were to come");
    Error::new(ErrorKind::Communication, text)
}
