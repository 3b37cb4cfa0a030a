//! The start of a collective call: each member sends the header of its call to every other member.
//!
//! Small data is sent with the header, so that a small call needs one message between each pair of
//! ranks. A large call transfers its data after all ranks have entered the call.

use super::MpiEngine;
use super::comm::{MpiRequest, Tag, arrived_of};
use super::peers::{Wait, WaitTarget};
use crate::collective::absence::deadlocked;
use crate::collective::call::{Call, Operation, part_of};
use crate::collective::engine::{CallMemory, Work};
use crate::collective::header::{HEADER_WORDS, MessageHeader};
use crate::error::{Error, ErrorKind, Result};

/// The maximum number of bytes that are sent with a header. MPI libraries send a message of this
/// length eagerly.
pub(super) const INLINE: usize = 3584;

/// The maximum number of words in a header's message, including the data.
const BUFFER_WORDS: usize = HEADER_WORDS + INLINE / size_of::<u64>();

const HEADER_BYTES: usize = HEADER_WORDS * size_of::<u64>();

/// Buffers for one message from and to each member, reused between calls.
#[derive(Debug, Default)]
pub(super) struct HeaderBuffers {
    words: Vec<u64>,
}

impl HeaderBuffers {
    fn fit(&mut self, size: usize) {
        let length = self.words.len().max(2 * size * BUFFER_WORDS);
        self.words.resize(length, 0);
    }

    fn place(&mut self, index: usize) -> *mut u8 {
        self.words[index * BUFFER_WORDS..][..BUFFER_WORDS]
            .as_mut_ptr()
            .cast()
    }

    /// Returns the data that a member sent with the header of the current call. The address is
    /// aligned for every element type.
    pub(super) fn data(&self, from: usize) -> *const u8 {
        self.words[from * BUFFER_WORDS + HEADER_WORDS..]
            .as_ptr()
            .cast()
    }
}

/// Returns the address and the length in bytes of this rank's input for a member.
pub(super) fn input_for(work: &Work, memory: CallMemory, to: usize) -> (*const u8, usize) {
    let (call, members) = (&work.call, &work.members);
    let (own, size, bytes) = (members.own, members.size(), call.bytes());
    let (start, length) = match call.operation {
        Operation::AllReduce(_) | Operation::Reduce(..) => {
            let (part, width) = (part_of(call.count(), to, size), call.dtype.size_bytes());
            (part.start * width, part.len() * width)
        }
        Operation::ReduceScatter(_) | Operation::AllToAll => (to * (bytes / size), bytes / size),
        Operation::AllGather => (0, bytes),
        Operation::Broadcast(root) if root == own => (0, bytes),
        _ => (0, 0),
    };
    (memory.source.wrapping_add(start), length)
}

impl MpiEngine {
    /// Enters a call, and waits for all members. If the members' calls differ, the inner result is
    /// an error.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold.
    ///
    /// # Errors
    ///
    /// An error if a member does not arrive.
    pub(super) unsafe fn open(&mut self, work: &Work, memory: CallMemory) -> Result<Result<()>> {
        let header = MessageHeader {
            group: work.members.group,
            number: self.peers.deadlocks.count_call(work.members.group),
            call: work.call,
        };
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.fit(work.members.size());
        let mut in_flight = InFlight::default();
        // SAFETY: this function has the callee's contract. The buffers live until nothing is in
        // flight, or they are leaked.
        let calls =
            unsafe { self.exchange_headers(work, memory, header, &mut buffers, &mut in_flight) };
        self.peers.deadlocks.end_wait();
        if calls.is_err() && !in_flight.cancel() {
            std::mem::forget(buffers);
        } else {
            self.buffers = buffers;
        }
        let (calls, polls) = calls?;
        let calls = work.members.ranks.iter().copied().zip(&calls);
        let agreed = work.call.check_same(calls);
        // If the calls differ, all ranks already report the difference. The error of a rank that
        // failed because of the difference adds no information.
        if agreed.is_ok() {
            self.peers.check_members(&self.comm, work, polls)?;
        }
        Ok(agreed)
    }

    /// Sends a header to each member, and receives a header from each member. Returns the members'
    /// calls in group order, and the number of times that MPI was polled.
    ///
    /// # Safety
    ///
    /// The contract of [`open`](Self::open) must hold. The buffers are neither moved nor used while
    /// a message is in flight.
    unsafe fn exchange_headers(
        &mut self,
        work: &Work,
        memory: CallMemory,
        header: MessageHeader,
        buffers: &mut HeaderBuffers,
        in_flight: &mut InFlight,
    ) -> Result<(Vec<Call>, usize)> {
        let members = &*work.members;
        let (own, size) = (members.own, members.size());
        for step in 1..size {
            let from = (own + size - step) % size;
            let place = (buffers.place(from), BUFFER_WORDS * size_of::<u64>());
            // SAFETY: this message alone uses the buffer until the message is done.
            let request = unsafe { self.comm.receive(Tag::Header, members.ranks[from], place) }?;
            in_flight.incoming.push((from, request));
        }
        let words = header.words();
        for step in 1..size {
            let to = (own + step) % size;
            let place = buffers.place(size + to);
            let (data, length) = input_for(work, memory, to);
            let length = if length <= INLINE { length } else { 0 };
            // SAFETY: this message alone uses the buffer, which has `HEADER_WORDS` words and
            // `INLINE` bytes. By `open`'s contract, the data is readable.
            let request = unsafe {
                place.copy_from_nonoverlapping(words.as_ptr().cast(), HEADER_BYTES);
                place
                    .add(HEADER_BYTES)
                    .copy_from_nonoverlapping(data, length);
                let message = (place.cast_const(), HEADER_BYTES + length);
                self.comm.send(Tag::Header, members.ranks[to], message)
            }?;
            in_flight.outgoing.push((to, request));
        }
        let mut calls = vec![work.call; size];
        let mut wait = Wait::new(work, WaitTarget::Arrival);
        let mut polls = 0;
        while !in_flight.is_over() {
            polls += 1;
            let (has_moved, arrived) = in_flight.advance()?;
            for (from, bytes) in arrived {
                let header_received = MessageHeader::of(
                    &buffers.words[from * BUFFER_WORDS..][..bytes / size_of::<u64>()],
                )?;
                if (header_received.group, header_received.number) != (header.group, header.number)
                {
                    let (own, other) = (members.ranks[own], members.ranks[from]);
                    return Err(deadlocked(work.call.operation.name(), own, other));
                }
                check_length(work, header_received.call, from, bytes)?;
                calls[from] = header_received.call;
            }
            match has_moved {
                true => wait.progressed(),
                false => {
                    let missing = || in_flight.missing(&members.ranks);
                    self.peers.pause(&self.comm, &mut wait, missing)?;
                }
            }
        }
        Ok((calls, polls))
    }
}

/// Returns an error if a message of an equal call has data of an unexpected length.
fn check_length(work: &Work, call: Call, from: usize, bytes: usize) -> Result<()> {
    if call != work.call {
        return Ok(());
    }
    // The length of the input of rank `from` for this rank.
    let length = match call.operation {
        Operation::Broadcast(root) if root == from => call.bytes(),
        Operation::Broadcast(_) => 0,
        _ => {
            let nothing = CallMemory {
                is_of_device: false,
                source: std::ptr::null(),
                target: std::ptr::null_mut(),
            };
            input_for(work, nothing, work.members.own).1
        }
    };
    let length = if length <= INLINE { length } else { 0 };
    if bytes == HEADER_BYTES + length {
        return Ok(());
    }
    let from = work.members.ranks[from];
    let expected = HEADER_BYTES + length;
    let text = format!("rank {from} sent {bytes} bytes with a header, expected {expected}");
    Err(Error::new(ErrorKind::Communication, text))
}

/// The messages of an opening that are in flight, with their members.
#[derive(Debug, Default)]
struct InFlight {
    incoming: Vec<(usize, MpiRequest)>,
    outgoing: Vec<(usize, MpiRequest)>,
}

impl InFlight {
    fn is_over(&self) -> bool {
        self.incoming.is_empty() && self.outgoing.is_empty()
    }

    /// Removes the messages that are done. Returns whether any message was done, and the senders
    /// and the lengths of the messages that arrived.
    fn advance(&mut self) -> Result<(bool, Vec<(usize, usize)>)> {
        let all = self.incoming.iter_mut().chain(&mut self.outgoing);
        let mut arrived = arrived_of(all.map(|(_, request)| request))?;
        // Removals go from the last to the first, so that they do not change the remaining indices.
        arrived.sort_unstable_by_key(|(place, _)| std::cmp::Reverse(*place));
        let (has_moved, count) = (!arrived.is_empty(), self.incoming.len());
        let mut header_received = Vec::new();
        for (place, bytes) in arrived {
            if place < count {
                header_received.push((self.incoming.remove(place).0, bytes));
            } else {
                self.outgoing.remove(place - count);
            }
        }
        Ok((has_moved, header_received))
    }

    /// Returns the ranks whose header has not arrived. If all headers have arrived, returns the
    /// ranks that have not received this rank's header.
    fn missing(&self, ranks: &[usize]) -> Vec<usize> {
        let late = match self.incoming.is_empty() {
            true => &self.outgoing,
            false => &self.incoming,
        };
        let mut late: Vec<usize> = late.iter().map(|(member, _)| ranks[*member]).collect();
        late.sort_unstable();
        late
    }

    /// Cancels all messages. Returns true if MPI has certainly finished with the memory.
    fn cancel(&mut self) -> bool {
        let all = self.incoming.iter_mut().chain(&mut self.outgoing);
        all.filter_map(|(_, request)| (!request.cancel()).then_some(()))
            .count()
            == 0
    }
}
