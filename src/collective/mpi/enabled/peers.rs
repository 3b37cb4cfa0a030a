//! The status of the other ranks: which of them take part no longer, and why.

use std::collections::{HashMap, HashSet};
use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use super::circle::{Circle, Stuck};
use super::comm::{Comm, Request, Tag};
use crate::collective::absence::{DROPPED, GRACE, deadlocked, rank_gone, timed_out};
use crate::collective::engine::{Members, Work};
use crate::error::Result;

/// The control messages of this rank, and the status of the others that it knows from them.
#[derive(Debug)]
pub(super) struct Peers {
    /// Per rank of the world: its status.
    standing: Vec<Standing>,
    /// Per rank of the world: true if its process is about to end.
    ending: Vec<bool>,
    /// Per group that some members have dropped: those members.
    dropped: HashMap<u64, HashSet<usize>>,
    /// The number of calls that this rank has reached, and the search for deadlocks.
    pub(super) circle: Circle,
    /// A control message that is being received.
    incoming: Option<(usize, Request, Box<[u8]>)>,
    /// Control messages that are being sent.
    outgoing: Vec<(Request, Box<[u8]>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Here,
    /// It has ended, after all its work.
    Left,
    /// It failed, and did not complete its work.
    Broke(String),
}

/// Control messages, which a rank may send to others at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The rank failed, and takes part in nothing more.
    Broke(String),
    /// Its process is about to end.
    Ends,
    /// It has dropped the group.
    Dropped(u64),
    /// A rank has waited for a while.
    Stuck(Stuck),
}

/// The maximum length of a reason, so that MPI sends the message eagerly.
const LONGEST_REASON: usize = 1000;

/// The object of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The arrival of the other members in a call.
    Coming,
    /// A message of another rank.
    Letter,
    /// Data of ranks that have arrived. A rank that ends after that has ensured that its data
    /// arrives.
    Data,
}

/// A wait of this rank.
#[derive(Debug)]
pub(super) struct Waiting {
    operation: &'static str,
    group: u64,
    timeout: Duration,
    awaited: Awaited,
    /// The start of the wait; in a wait for data, the latest progress.
    since: Instant,
    /// The number of iterations since then without progress.
    turns: u32,
    /// True if an awaited rank was gone in the previous iteration.
    suspects: bool,
}

impl Waiting {
    pub(super) fn new(work: &Work, awaited: Awaited) -> Self {
        Self {
            operation: work.call.operation.name(),
            group: work.members.group,
            timeout: work.timeout,
            awaited,
            since: Instant::now(),
            turns: 0,
            suspects: false,
        }
    }

    /// Records progress.
    pub(super) fn moved(&mut self) {
        if self.turns > 0 {
            if self.awaited == Awaited::Data {
                self.since = Instant::now();
            }
            self.turns = 0;
            self.suspects = false;
        }
    }
}

impl Peers {
    pub(super) fn new(size: usize) -> Self {
        Self {
            standing: vec![Standing::Here; size],
            ending: vec![false; size],
            dropped: HashMap::new(),
            circle: Circle::default(),
            incoming: None,
            outgoing: Vec::new(),
        }
    }

    /// Pauses for a moment, because the `missing` ranks of the world have made no progress.
    ///
    /// # Errors
    ///
    /// If one of them is gone, or if the wait times out.
    pub(super) fn pause(
        &mut self,
        comm: &Comm,
        waiting: &mut Waiting,
        missing: impl FnOnce() -> Vec<usize>,
    ) -> Result<()> {
        /// Another core that runs its part responds within this many iterations.
        const SPINS: u32 = 64;
        waiting.turns += 1;
        if waiting.turns < SPINS {
            spin_loop();
            return Ok(());
        }
        let waited = waiting.since.elapsed();
        self.listen(comm)?;
        let is_late = waited >= waiting.timeout;
        let asks = waiting.awaited == Awaited::Coming && self.circle.asks_after(waited);
        if is_late || asks || self.is_anybody_gone() {
            let missing = missing();
            let gone = missing
                .iter()
                .find_map(|rank| Some((*rank, self.absence(*rank, waiting, waited)?)));
            match gone {
                // Everything that it sent before it ended has arrived by now. The next iteration
                // finds it.
                Some(_) if !waiting.suspects => {
                    waiting.suspects = true;
                    return Ok(());
                }
                Some((rank, reason)) => return Err(rank_gone(waiting.operation, rank, reason)),
                None if is_late => {
                    return Err(timed_out(waiting.operation, waiting.timeout, &missing));
                }
                None if asks => self.ask_around(comm, waiting, waited, &missing)?,
                None => {}
            }
        }
        rest(waited);
        Ok(())
    }

    /// Searches for a deadlock: finds out whether any of the ranks waits for this one, directly or
    /// through others.
    fn ask_around(
        &mut self,
        comm: &Comm,
        waiting: &Waiting,
        waited: Duration,
        missing: &[usize],
    ) -> Result<()> {
        let (own, other) = (comm.rank(), missing.first());
        if let (true, Some(other)) = (self.circle.is_closed(), other) {
            return Err(deadlocked(waiting.operation, own, *other));
        }
        let stuck = self.circle.ask(own, waiting.group, waited, missing);
        self.tell(comm, missing.iter().copied(), &News::Stuck(stuck))
    }

    /// Returns the reason why a rank will never satisfy the wait, if there is one.
    fn absence(&self, rank: usize, waiting: &Waiting, waited: Duration) -> Option<&str> {
        match &self.standing[rank] {
            Standing::Broke(reason) => Some(reason),
            _ if waiting.awaited == Awaited::Data => None,
            Standing::Left => Some("it has ended"),
            Standing::Here => {
                let dropped = self.dropped.get(&waiting.group);
                let has_dropped = dropped.is_some_and(|ranks| ranks.contains(&rank));
                (has_dropped && waited >= GRACE).then_some(DROPPED)
            }
        }
    }

    /// Receives the control messages that were sent before the headers of the last members, after
    /// an opening that polled MPI `looks` times. A member that failed does not count as arrived,
    /// whatever it sent before.
    pub(super) fn check_members(&mut self, comm: &Comm, work: &Work, looks: usize) -> Result<()> {
        /// Stops after this many polls without a control message. Each poll of MPI may receive only
        /// one or two messages, and yields the core where ranks share cores. The opening's last
        /// poll may have received a message that the next poll reports; that poll may receive
        /// another one for the poll after it.
        const QUIET: usize = 4;
        let mut quiet = looks.min(QUIET - 2);
        while quiet < QUIET {
            quiet = if self.listen(comm)? { 0 } else { quiet + 1 };
        }
        for rank in &work.members.ranks {
            if let Standing::Broke(reason) = &self.standing[*rank] {
                return Err(rank_gone(work.call.operation.name(), *rank, reason));
            }
        }
        Ok(())
    }

    /// Returns an error if the rank will never receive a message.
    pub(super) fn check_receiver(&mut self, comm: &Comm, rank: usize) -> Result<()> {
        self.listen(comm)?;
        match &self.standing[rank] {
            Standing::Here => Ok(()),
            Standing::Left => Err(rank_gone("send", rank, "it has ended")),
            Standing::Broke(reason) => Err(rank_gone("send", rank, reason)),
        }
    }

    fn is_anybody_gone(&self) -> bool {
        let rank_gone = |standing: &Standing| *standing != Standing::Here;
        !self.dropped.is_empty() || self.standing.iter().any(rank_gone)
    }

    /// Returns true if the processes of all other ranks are about to end.
    pub(super) fn all_end(&self, own: usize) -> bool {
        let others = self.ending.iter().enumerate();
        others
            .filter(|(rank, _)| *rank != own)
            .all(|(_, ends)| *ends)
    }

    /// Receives all control messages that have arrived. Returns true if there were any.
    pub(super) fn listen(&mut self, comm: &Comm) -> Result<bool> {
        let mut has_heard = false;
        loop {
            if self.incoming.is_none() {
                let Some((from, bytes)) = comm.probe(Tag::News)? else {
                    return Ok(has_heard);
                };
                let mut room = vec![0; bytes].into_boxed_slice();
                let place = (room.as_mut_ptr(), bytes);
                // SAFETY: the buffer lives, and is not used, until the request is done.
                let request = unsafe { comm.receive(Tag::News, from, place) }?;
                self.incoming = Some((from, request, room));
            }
            has_heard = true;
            let Some((from, request, room)) = &mut self.incoming else {
                return Ok(has_heard);
            };
            if request.arrived()?.is_none() {
                return Ok(has_heard);
            }
            let (from, news) = (*from, News::of(room));
            self.incoming = None;
            self.hear(comm, from, news)?;
        }
    }

    fn hear(&mut self, comm: &Comm, from: usize, news: Option<News>) -> Result<()> {
        match news {
            Some(News::Broke(reason)) => self.standing[from] = Standing::Broke(reason),
            Some(News::Ends) => {
                self.ending[from] = true;
                if self.standing[from] == Standing::Here {
                    self.standing[from] = Standing::Left;
                }
            }
            Some(News::Dropped(group)) => {
                self.dropped.entry(group).or_default().insert(from);
            }
            Some(News::Stuck(stuck)) => {
                if let Some((stuck, to)) = self.circle.hear(comm.rank(), stuck) {
                    self.tell(comm, to.into_iter(), &News::Stuck(stuck))?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Sends a control message to ranks of the world, except this one.
    pub(super) fn tell(
        &mut self,
        comm: &Comm,
        ranks: impl Iterator<Item = usize>,
        news: &News,
    ) -> Result<()> {
        self.reap()?;
        let text = news.bytes();
        for rank in ranks.filter(|rank| *rank != comm.rank()) {
            let text = text.clone();
            let place = (text.as_ptr(), text.len());
            // SAFETY: the text lives, and does not change, until the request is done.
            let request = unsafe { comm.send(Tag::News, rank, place) }?;
            self.outgoing.push((request, text));
        }
        Ok(())
    }

    /// Removes the control messages that have been sent. Returns true if none is left.
    pub(super) fn reap(&mut self) -> Result<bool> {
        let mut failure = None;
        self.outgoing
            .retain_mut(|(request, _)| match request.arrived() {
                Ok(arrived) => arrived.is_none(),
                Err(error) => {
                    failure = Some(error);
                    true
                }
            });
        failure.map_or(Ok(self.outgoing.is_empty()), Err)
    }

    /// Records that this rank has dropped the group. When all members have, the record is removed.
    pub(super) fn drop_group(&mut self, members: &Members) {
        self.circle.forget(members.group);
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
pub(super) fn rest(waited: Duration) {
    const YIELDS: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_micros(500);
    match waited < YIELDS {
        true => yield_now(),
        false => sleep((waited / 50).min(LONGEST)),
    }
}

impl News {
    fn bytes(&self) -> Box<[u8]> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (kind, rest): (u8, Vec<u8>) = match self {
            Self::Broke(reason) => (0, reason.bytes().take(LONGEST_REASON).collect()),
            Self::Ends => (1, Vec::new()),
            Self::Dropped(group) => (2, words(&[*group])),
            Self::Stuck(stuck) => (
                3,
                words(&[stuck.first, stuck.turn, stuck.group, stuck.number]),
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
            (0, _) => Some(Self::Broke(String::from_utf8_lossy(rest).into_owned())),
            (1, _) => Some(Self::Ends),
            (2, [group]) => Some(Self::Dropped(*group)),
            (3, &[first, turn, group, number]) => Some(Self::Stuck(Stuck {
                first,
                turn,
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
    fn news_are_read_as_they_were_written() {
        let all = [
            News::Broke("it failed".to_owned()),
            News::Ends,
            News::Dropped(1 << 40),
            News::Stuck(Stuck {
                first: 1,
                turn: 2,
                group: 1 << 40,
                number: 3,
            }),
        ];
        for news in all {
            assert_eq!(News::of(&news.bytes()), Some(news));
        }
        assert_eq!(News::of(&[]), None);
        assert_eq!(News::of(&[2, 0]), None);
        let long = News::Broke("x".repeat(5000));
        assert_eq!(long.bytes().len(), LONGEST_REASON + 1);
    }
}
