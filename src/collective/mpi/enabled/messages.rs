//! Point-to-point messages. The data is copied, so that the rank can continue during the send.

use std::collections::{HashMap, VecDeque};

use super::MpiEngine;
use super::comm::{Comm, MpiRequest, Tag, retain_pending};
use super::movement::PIECE;
use super::opening::INLINE;
use super::peers::{Wait, WaitTarget};
use super::transfer::{Ring, Transfer, TransferDirection};
use crate::collective::call::Call;
use crate::collective::engine::{CallMemory, Work};
use crate::collective::header::{HEADER_WORDS, MessageHeader};
use crate::device::host_streams::HostFailure;
use crate::error::Result;

/// The messages that a rank is sending, and the messages that arrived before their receive.
#[derive(Debug, Default)]
pub(super) struct Messages {
    outgoing: Vec<OutgoingMessage>,
    /// The received messages, by group and by the sender's world rank.
    arrived: HashMap<(u64, usize), VecDeque<ReceivedMessage>>,
}

/// A message that is being sent, and its MPI requests.
#[derive(Debug)]
struct OutgoingMessage {
    in_flight: Vec<MpiRequest>,
    words: Vec<u64>,
}

#[derive(Debug)]
struct ReceivedMessage {
    call: Call,
    words: Vec<u64>,
}

const HEADER_BYTES: usize = HEADER_WORDS * size_of::<u64>();

fn words(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(size_of::<u64>())]
}

impl Messages {
    /// Returns true if no message is being sent.
    pub(super) fn are_all_sent(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Removes the messages that have been sent.
    pub(super) fn reap(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        self.outgoing.retain_mut(|message| {
            let reaped = retain_pending(&mut message.in_flight, |request| request);
            if reaped.is_err() {
                outcome = reaped;
            }
            !message.in_flight.is_empty()
        });
        outcome
    }

    /// Removes the messages of a group that this rank has dropped.
    pub(super) fn forget(&mut self, group: u64) {
        self.arrived.retain(|(own, _), _| *own != group);
    }

    /// Leaks the messages that MPI may still read.
    pub(super) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.outgoing));
    }
}

impl OutgoingMessage {
    /// Starts all sends of this message at once, so that the pieces of two messages do not mix.
    fn begin(&mut self, comm: &Comm, to: usize, bytes: usize) -> Result<()> {
        let first = self.words.as_ptr().cast::<u8>();
        let inline = if bytes <= INLINE { bytes } else { 0 };
        // SAFETY: the words belong to this message, which lives until all requests are done.
        let header = unsafe { comm.send(Tag::Message, to, (first, HEADER_BYTES + inline)) }?;
        self.in_flight.push(header);
        for start in (inline..bytes).step_by(PIECE) {
            let length = PIECE.min(bytes - start);
            let place = first.wrapping_add(HEADER_BYTES + start);
            // SAFETY: the words belong to this message, which lives until all requests are done.
            self.in_flight
                .push(unsafe { comm.send(Tag::Body, to, (place, length)) }?);
        }
        Ok(())
    }
}

impl MpiEngine {
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold.
    pub(super) unsafe fn send(&mut self, work: &Work, memory: CallMemory, to: usize) -> Result<()> {
        let to = work.members.ranks[to];
        self.peers.check_receiver(&self.comm, to)?;
        self.messages.reap()?;
        let header = MessageHeader {
            group: work.members.group,
            number: 0,
            call: work.call,
        };
        let bytes = work.call.bytes();
        let mut message = OutgoingMessage {
            in_flight: Vec::new(),
            words: words(HEADER_BYTES + bytes),
        };
        message.words[..HEADER_WORDS].copy_from_slice(&header.words());
        // SAFETY: the source has the `bytes` bytes of the call. The message has `bytes` bytes after
        // its header.
        unsafe {
            let data = message.words[HEADER_WORDS..].as_mut_ptr().cast::<u8>();
            data.copy_from_nonoverlapping(memory.source, bytes);
        }
        let outcome = message.begin(&self.comm, to, bytes);
        // The message is also stored after an error, because requests in flight still use its
        // memory.
        self.messages.outgoing.push(message);
        outcome
    }

    /// Receives the next message of a member. If the message has another type or shape than the
    /// call, the inner result is an error. The message is then lost.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold.
    ///
    /// # Errors
    ///
    /// An error if no message arrives.
    pub(super) unsafe fn receive(
        &mut self,
        work: &Work,
        memory: CallMemory,
        from: usize,
    ) -> Result<Result<()>, HostFailure> {
        let from = work.members.ranks[from];
        let group = work.members.group;
        let arrived = self.messages.arrived.get_mut(&(group, from));
        if let Some(message) = arrived.and_then(VecDeque::pop_front) {
            // SAFETY: this function has the contract of `deliver`.
            return Ok(unsafe { message.deliver(work, memory, from) });
        }
        loop {
            let (header, data) = self.receive_header(work, from)?;
            let (call, bytes) = (header.call, header.call.bytes());
            let is_expected =
                header.group == group && work.call.check_received(&call, from).is_ok();
            if is_expected && bytes > INLINE {
                let place = memory.target;
                // SAFETY: by this function's contract, the target has the bytes of the call. The
                // message has as many bytes, as checked.
                unsafe { self.receive_body(work, from, (place, bytes)) }?;
                return Ok(Ok(()));
            }
            let mut message = ReceivedMessage { call, words: data };
            if bytes > INLINE {
                message.words = words(bytes);
                let place = message.words.as_mut_ptr().cast();
                // SAFETY: the words belong to the message. If MPI may still write to the message,
                // it is leaked.
                let outcome = unsafe { self.receive_body(work, from, (place, bytes)) };
                if outcome.as_ref().is_err_and(|failure| failure.keeps_memory) {
                    std::mem::forget(message);
                    return Err(without_memory(outcome));
                }
                outcome?;
            }
            if header.group == group {
                // SAFETY: this function has the contract of `deliver`.
                return Ok(unsafe { message.deliver(work, memory, from) });
            }
            let arrived = self.messages.arrived.entry((header.group, from));
            arrived.or_default().push_back(message);
        }
    }

    /// Receives the header of the next message from the world rank `from`, and the data sent with
    /// the header.
    fn receive_header(&mut self, work: &Work, from: usize) -> Result<(MessageHeader, Vec<u64>)> {
        let mut buffer = words(HEADER_BYTES + INLINE);
        let place = (buffer.as_mut_ptr().cast(), HEADER_BYTES + INLINE);
        // SAFETY: the buffer lives until the request is done or cancelled. Otherwise, the buffer is
        // leaked.
        let mut request = unsafe { self.comm.receive(Tag::Message, from, place) }?;
        let mut wait = Wait::new(work, WaitTarget::Message);
        let arrived = loop {
            match request.arrived() {
                Ok(Some(bytes)) => break Ok(bytes),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = self.peers.pause(&self.comm, &mut wait, || vec![from]) {
                break Err(error);
            }
        };
        match arrived {
            Ok(bytes) => {
                let header =
                    MessageHeader::of(&buffer[..bytes.min(HEADER_BYTES) / size_of::<u64>()])?;
                buffer.drain(..HEADER_WORDS);
                Ok((header, buffer))
            }
            Err(error) => {
                if !request.cancel() {
                    std::mem::forget(buffer);
                }
                Err(error)
            }
        }
    }

    /// # Safety
    ///
    /// The memory has `bytes` bytes. Nothing else uses them until this function returns. If the
    /// failure keeps the memory, nothing else ever uses them.
    unsafe fn receive_body(
        &mut self,
        work: &Work,
        from: usize,
        (memory, bytes): (*mut u8, usize),
    ) -> Result<(), HostFailure> {
        let way = (Tag::Body, TransferDirection::In);
        // SAFETY: by this function's contract, nothing else uses the memory during the transfer.
        let transfer = unsafe { Transfer::new(from, way, Ring::whole(memory), (bytes, PIECE)) };
        self.carry(work, &mut [transfer.all_ready()], &mut |_| false)
    }
}

impl ReceivedMessage {
    /// Copies the data to the target of the call, if type and shape agree.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](crate::collective::engine::Engine::run) must hold.
    unsafe fn deliver(&self, work: &Work, memory: CallMemory, from: usize) -> Result<()> {
        work.call.check_received(&self.call, from)?;
        let data = self.words.as_ptr().cast();
        // SAFETY: the target has the bytes of the call, by this function's contract. The message
        // has as many bytes, as checked.
        unsafe {
            memory
                .target
                .copy_from_nonoverlapping(data, work.call.bytes());
        }
        Ok(())
    }
}

/// Returns the failure of a receive into the message's own buffer. The failure does not keep the
/// caller's memory.
fn without_memory(outcome: Result<(), HostFailure>) -> HostFailure {
    HostFailure {
        keeps_memory: false,
        ..outcome.expect_err("it failed")
    }
}
