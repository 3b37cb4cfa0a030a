//! The status of the other ranks: active, ended, or failed with a reason.

use std::collections::{HashMap, HashSet};
use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use super::comm::{Comm, MpiRequest, Tag, retain_pending};
use super::deadlock::{DeadlockDetector, DeadlockProbe};
use crate::collective::absence::{DROPPED, GRACE, deadlocked, rank_gone, timed_out};
use crate::collective::engine::{Members, Work};
use crate::error::Result;

/// The control messages of this rank, and the status of other ranks that these messages report.
#[derive(Debug)]
pub(super) struct Peers {
    /// The status of each rank of the world.
    status: Vec<PeerStatus>,
    /// True for each rank of the world whose process is about to end.
    ending: Vec<bool>,
    /// The world ranks of the members that have dropped a group, by group.
    dropped: HashMap<u64, HashSet<usize>>,
    /// The number of calls that this rank has reached, and the search for deadlocks.
    pub(super) deadlocks: DeadlockDetector,
    /// A control message that is being received.
    incoming: Option<(usize, MpiRequest, Box<[u8]>)>,
    /// Control messages that are being sent.
    outgoing: Vec<(MpiRequest, Box<[u8]>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PeerStatus {
    Active,
    /// The rank has ended, after all its work.
    Ended,
    /// The rank failed, and did not complete its work.
    Failed(String),
}

/// A control message, which a rank may send to other ranks at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// The rank failed, and takes part in no later call.
    Failed(String),
    /// The process of the rank is about to end.
    Ends,
    /// The rank has dropped the group.
    Dropped(u64),
    /// A rank has waited for a while, and searches for a deadlock.
    Probe(DeadlockProbe),
}

/// The maximum length of a reason, in bytes. MPI sends messages of this length eagerly.
const LONGEST_REASON: usize = 1000;

/// The event that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitTarget {
    /// The arrival of the other members in a call.
    Arrival,
    /// A message of another rank.
    Message,
    /// Data of ranks that have arrived. If a rank ends after its arrival, its data still arrives.
    Data,
}

#[derive(Debug)]
pub(super) struct Wait {
    operation: &'static str,
    group: u64,
    timeout: Duration,
    target: WaitTarget,
    /// The start of the wait. In a wait for data, the time of the latest progress.
    since: Instant,
    /// The number of iterations without progress after `since`.
    idle_polls: u32,
    /// True if an awaited rank was gone in the previous iteration.
    suspects: bool,
}

impl Wait {
    pub(super) fn new(work: &Work, target: WaitTarget) -> Self {
        Self {
            operation: work.call.operation.name(),
            group: work.members.group,
            timeout: work.settings.timeout,
            target,
            since: Instant::now(),
            idle_polls: 0,
            suspects: false,
        }
    }

    pub(super) fn progressed(&mut self) {
        if self.idle_polls > 0 {
            if self.target == WaitTarget::Data {
                self.since = Instant::now();
            }
            self.idle_polls = 0;
            self.suspects = false;
        }
    }
}

impl Peers {
    pub(super) fn new(size: usize) -> Self {
        Self {
            status: vec![PeerStatus::Active; size],
            ending: vec![false; size],
            dropped: HashMap::new(),
            deadlocks: DeadlockDetector::default(),
            incoming: None,
            outgoing: Vec::new(),
        }
    }

    /// Pauses for a moment in a wait for the `missing` ranks of the world.
    ///
    /// # Errors
    ///
    /// An error if one of the missing ranks is gone, or if the wait times out.
    pub(super) fn pause(
        &mut self,
        comm: &Comm,
        wait: &mut Wait,
        missing: impl FnOnce() -> Vec<usize>,
    ) -> Result<()> {
        /// The number of iterations that only spin. A rank on another core usually responds during
        /// these iterations.
        const SPINS: u32 = 64;
        wait.idle_polls += 1;
        if wait.idle_polls < SPINS {
            spin_loop();
            return Ok(());
        }
        let waited = wait.since.elapsed();
        self.receive_control(comm)?;
        let is_late = waited >= wait.timeout;
        let is_due = wait.target == WaitTarget::Arrival && self.deadlocks.is_due(waited);
        if is_late || is_due || self.is_any_gone() {
            let missing = missing();
            let gone = missing
                .iter()
                .find_map(|rank| Some((*rank, self.absence(*rank, wait, waited)?)));
            match gone {
                // All messages that the rank sent before its end have arrived. The next iteration
                // receives them.
                Some(_) if !wait.suspects => {
                    wait.suspects = true;
                    return Ok(());
                }
                Some((rank, reason)) => return Err(rank_gone(wait.operation, rank, reason)),
                None if is_late => {
                    return Err(timed_out(wait.operation, wait.timeout, &missing));
                }
                None if is_due => self.search_deadlock(comm, wait, waited, &missing)?,
                None => {}
            }
        }
        back_off(waited);
        Ok(())
    }

    /// Returns an error if a deadlock was found. Otherwise sends a probe to the missing ranks. If a
    /// missing rank waits for this rank, directly or through other ranks, the probe returns.
    fn search_deadlock(
        &mut self,
        comm: &Comm,
        wait: &Wait,
        waited: Duration,
        missing: &[usize],
    ) -> Result<()> {
        let (own, other) = (comm.rank, missing.first());
        if let (true, Some(other)) = (self.deadlocks.is_found, other) {
            return Err(deadlocked(wait.operation, own, *other));
        }
        let probe = self.deadlocks.start(own, wait.group, waited, missing);
        self.notify(comm, missing.iter().copied(), &ControlMessage::Probe(probe))
    }

    /// Returns the reason why a rank will never satisfy the wait, if there is one.
    fn absence(&self, rank: usize, wait: &Wait, waited: Duration) -> Option<&str> {
        match &self.status[rank] {
            PeerStatus::Failed(reason) => Some(reason),
            _ if wait.target == WaitTarget::Data => None,
            PeerStatus::Ended => Some("it has ended"),
            PeerStatus::Active => {
                let dropped = self.dropped.get(&wait.group);
                let has_dropped = dropped.is_some_and(|ranks| ranks.contains(&rank));
                (has_dropped && waited >= GRACE).then_some(DROPPED)
            }
        }
    }

    /// Receives the control messages that members sent before the last header of the call. Returns
    /// an error if a member has failed, even if its header has arrived. The opening has already
    /// polled MPI `polls` times.
    pub(super) fn check_members(&mut self, comm: &Comm, work: &Work, polls: usize) -> Result<()> {
        /// The number of consecutive polls without a control message after which the wait ends.
        /// Each poll of MPI may receive only one or two messages, and yields the core where ranks
        /// share cores. A message that one poll receives may be reported only by the next poll.
        /// Therefore several messages may still arrive after the opening's last poll.
        const QUIET: usize = 4;
        let mut quiet = polls.min(QUIET - 2);
        while quiet < QUIET {
            quiet = if self.receive_control(comm)? {
                0
            } else {
                quiet + 1
            };
        }
        for rank in &work.members.ranks {
            if let PeerStatus::Failed(reason) = &self.status[*rank] {
                return Err(rank_gone(work.call.operation.name(), *rank, reason));
            }
        }
        Ok(())
    }

    /// Returns an error if `rank` will never receive a message.
    pub(super) fn check_receiver(&mut self, comm: &Comm, rank: usize) -> Result<()> {
        self.receive_control(comm)?;
        match &self.status[rank] {
            PeerStatus::Active => Ok(()),
            PeerStatus::Ended => Err(rank_gone("send", rank, "it has ended")),
            PeerStatus::Failed(reason) => Err(rank_gone("send", rank, reason)),
        }
    }

    fn is_any_gone(&self) -> bool {
        let is_gone = |status: &PeerStatus| *status != PeerStatus::Active;
        !self.dropped.is_empty() || self.status.iter().any(is_gone)
    }

    /// Returns true if the processes of all other ranks are about to end.
    pub(super) fn all_end(&self, own: usize) -> bool {
        let others = self.ending.iter().enumerate();
        others
            .filter(|(rank, _)| *rank != own)
            .all(|(_, ends)| *ends)
    }

    /// Receives all control messages that have arrived. Returns true if any had arrived.
    pub(super) fn receive_control(&mut self, comm: &Comm) -> Result<bool> {
        let mut has_received = false;
        loop {
            if self.incoming.is_none() {
                let Some((from, bytes)) = comm.probe(Tag::Control)? else {
                    return Ok(has_received);
                };
                let mut buffer = vec![0; bytes].into_boxed_slice();
                let place = (buffer.as_mut_ptr(), bytes);
                // SAFETY: the buffer lives, and is not used, until the request is done.
                let request = unsafe { comm.receive(Tag::Control, from, place) }?;
                self.incoming = Some((from, request, buffer));
            }
            has_received = true;
            let Some((from, request, buffer)) = &mut self.incoming else {
                return Ok(has_received);
            };
            if request.arrived()?.is_none() {
                return Ok(has_received);
            }
            let (from, message) = (*from, ControlMessage::of(buffer));
            self.incoming = None;
            self.handle(comm, from, message)?;
        }
    }

    fn handle(&mut self, comm: &Comm, from: usize, message: Option<ControlMessage>) -> Result<()> {
        match message {
            Some(ControlMessage::Failed(reason)) => self.status[from] = PeerStatus::Failed(reason),
            Some(ControlMessage::Ends) => {
                self.ending[from] = true;
                if self.status[from] == PeerStatus::Active {
                    self.status[from] = PeerStatus::Ended;
                }
            }
            Some(ControlMessage::Dropped(group)) => {
                self.dropped.entry(group).or_default().insert(from);
            }
            Some(ControlMessage::Probe(probe)) => {
                if let Some((probe, to)) = self.deadlocks.receive(comm.rank, probe) {
                    self.notify(comm, to.into_iter(), &ControlMessage::Probe(probe))?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Sends a control message to ranks of the world, except this rank.
    pub(super) fn notify(
        &mut self,
        comm: &Comm,
        ranks: impl Iterator<Item = usize>,
        message: &ControlMessage,
    ) -> Result<()> {
        self.reap()?;
        let text = message.bytes();
        for rank in ranks.filter(|rank| *rank != comm.rank) {
            let text = text.clone();
            let place = (text.as_ptr(), text.len());
            // SAFETY: the text lives, and does not change, until the request is done.
            let request = unsafe { comm.send(Tag::Control, rank, place) }?;
            self.outgoing.push((request, text));
        }
        Ok(())
    }

    /// Removes the control messages that have been sent. Returns true if no message is left.
    pub(super) fn reap(&mut self) -> Result<bool> {
        retain_pending(&mut self.outgoing, |(request, _)| request)?;
        Ok(self.outgoing.is_empty())
    }

    /// Records that this rank has dropped the group. If all members have dropped the group, removes
    /// the record.
    pub(super) fn drop_group(&mut self, members: &Members) {
        self.deadlocks.forget(members.group);
        let own = members.ranks[members.own];
        self.dropped.entry(members.group).or_default().insert(own);
        let is_over =
            |ranks: &HashSet<usize>| members.ranks.iter().all(|rank| ranks.contains(rank));
        if self.dropped.get(&members.group).is_some_and(is_over) {
            self.dropped.remove(&members.group);
        }
    }

    /// Leaks the memory that MPI may still read or write.
    pub(super) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.outgoing));
        std::mem::forget(self.incoming.take());
    }
}

/// Yields or sleeps. The pause grows with the duration of the wait.
pub(super) fn back_off(waited: Duration) {
    const YIELDS: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_micros(500);
    match waited < YIELDS {
        true => yield_now(),
        false => sleep((waited / 50).min(LONGEST)),
    }
}

impl ControlMessage {
    fn bytes(&self) -> Box<[u8]> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (kind, rest): (u8, Vec<u8>) = match self {
            Self::Failed(reason) => (0, reason.bytes().take(LONGEST_REASON).collect()),
            Self::Ends => (1, Vec::new()),
            Self::Dropped(group) => (2, words(&[*group])),
            Self::Probe(probe) => (
                3,
                words(&[probe.first, probe.search, probe.group, probe.number]),
            ),
        };
        std::iter::once(kind).chain(rest).collect()
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let words: Vec<u64> = rest
            .chunks_exact(size_of::<u64>())
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
            .collect();
        match (kind, &words[..]) {
            (0, _) => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            (1, _) => Some(Self::Ends),
            (2, [group]) => Some(Self::Dropped(*group)),
            (3, &[first, search, group, number]) => Some(Self::Probe(DeadlockProbe {
                first,
                search,
                group,
                number,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_decoded_as_they_were_encoded() {
        let all = [
            ControlMessage::Failed("it failed".to_owned()),
            ControlMessage::Ends,
            ControlMessage::Dropped(1 << 40),
            ControlMessage::Probe(DeadlockProbe {
                first: 1,
                search: 2,
                group: 1 << 40,
                number: 3,
            }),
        ];
        for message in all {
            assert_eq!(ControlMessage::of(&message.bytes()), Some(message));
        }
        assert_eq!(ControlMessage::of(&[]), None);
        assert_eq!(ControlMessage::of(&[2, 0]), None);
        let long = ControlMessage::Failed("x".repeat(5000));
        assert_eq!(long.bytes().len(), LONGEST_REASON + 1);
    }
}
