//! The rendezvous of the ranks of a world of threads.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::collective::absence::{DROPPED, GRACE, deadlocked, rank_gone, timed_out};
use crate::collective::call::Call;
use crate::collective::engine::Members;
use crate::error::{Error, Result};
use crate::sync::plain::{Condvar, Mutex, MutexGuard};

/// The state that the ranks of a world of threads share.
#[derive(Debug)]
pub(super) struct Rendezvous {
    state: Mutex<RendezvousState>,
    changed: Condvar,
}

/// Invariant: a rank that waits in a rendezvous counts as arrived. The rank continues only when all
/// members have arrived.
#[derive(Debug)]
struct RendezvousState {
    groups: HashMap<u64, GroupRendezvous>,
    messages: HashMap<Route, VecDeque<Message>>,
    /// The event that each rank of the world waits for.
    waiting: Vec<Option<WaitPoint>>,
    /// The reason why each rank is gone, by world rank. `None` for a rank that is not gone.
    gone: Vec<Option<String>>,
}

#[derive(Debug)]
struct GroupRendezvous {
    /// The number of rendezvous that each member has reached.
    arrivals: Vec<u64>,
    /// The latest slot of each member.
    slots: Vec<Option<RankSlot>>,
    /// True for each member that has dropped the group.
    ended: Vec<bool>,
    /// The first member that failed during a shared operation, and the reason.
    failed: Option<(usize, String)>,
}

/// The slot of a member: its call, and the addresses of its memory, for the other members.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankSlot {
    pub(super) call: Call,
    pub(super) source: usize,
    pub(super) target: usize,
}

/// The group of a message, and the world ranks of its sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Route {
    group: u64,
    from: usize,
    to: usize,
}

/// A message, with a copy of the data.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) call: Call,
    pub(super) bytes: Vec<u8>,
}

/// The event that a rank waits for.
#[derive(Clone, Debug)]
enum WaitPoint {
    /// A rendezvous of a group, by its number.
    Rendezvous {
        group: u64,
        ranks: Vec<usize>,
        number: u64,
    },
    Message(Route),
}

/// The timeout of a wait, and the operation that an error names.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimit {
    pub(super) operation: &'static str,
    /// The longest wait. `None` if the other ranks are certain to arrive, even a rank that is
    /// marked as gone.
    pub(super) timeout: Option<Duration>,
}

impl Rendezvous {
    pub(super) fn new(size: usize) -> Self {
        let state = RendezvousState {
            groups: HashMap::new(),
            messages: HashMap::new(),
            waiting: vec![None; size],
            gone: vec![None; size],
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::default(),
        }
    }

    /// Enters the next rendezvous of the group, and waits for all members. On failure, the rank
    /// does not count as arrived.
    pub(super) fn arrive_and_wait(
        &self,
        members: &Members,
        slot: Option<RankSlot>,
        limit: WaitLimit,
    ) -> Result<()> {
        let own = members.ranks[members.own];
        let mut state = self.state.lock();
        let group_rendezvous = state.group_rendezvous(members);
        group_rendezvous.arrivals[members.own] += 1;
        if slot.is_some() {
            group_rendezvous.slots[members.own] = slot;
        }
        let wait_point = WaitPoint::Rendezvous {
            group: members.group,
            ranks: members.ranks.clone(),
            number: group_rendezvous.arrivals[members.own],
        };
        self.changed.notify_all();
        let (mut state, outcome) = self.wait(state, (own, wait_point), limit);
        // The lock of the last check is still held. Therefore no rank has continued and used this
        // rank's memory.
        outcome.inspect_err(|error| {
            state.group_rendezvous(members).arrivals[members.own] -= 1;
            state.mark_gone(own, &error.to_string());
            self.changed.notify_all();
        })
    }

    /// Returns the slots of all members for the rendezvous that all members have reached.
    pub(super) fn slots(&self, members: &Members) -> Vec<RankSlot> {
        let mut state = self.state.lock();
        let slots = state.group_rendezvous(members).slots.iter();
        slots
            .map(|slot| slot.expect("all ranks have filled their slots"))
            .collect()
    }

    /// Marks this rank's part of the current operation as failed. `check_parts` returns the failure
    /// to the other members, after the rendezvous that ends the operation.
    pub(super) fn fail(&self, members: &Members, reason: &Error) {
        let mut state = self.state.lock();
        let failed = (members.ranks[members.own], reason.to_string());
        state.group_rendezvous(members).failed.get_or_insert(failed);
    }

    /// Returns an error if a member failed during its part.
    pub(super) fn check_parts(&self, members: &Members, operation: &str) -> Result<()> {
        match &self.state.lock().group_rendezvous(members).failed {
            Some((rank, reason)) => Err(rank_gone(operation, *rank, reason)),
            None => Ok(()),
        }
    }

    pub(super) fn send(&self, members: &Members, to: usize, message: Message) -> Result<()> {
        let route = Route {
            group: members.group,
            from: members.ranks[members.own],
            to: members.ranks[to],
        };
        let mut state = self.state.lock();
        if let Some(reason) = &state.gone[route.to] {
            return Err(rank_gone("send", to, reason));
        }
        state.messages.entry(route).or_default().push_back(message);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next message of a member.
    pub(super) fn receive(
        &self,
        members: &Members,
        from: usize,
        limit: WaitLimit,
    ) -> Result<Message> {
        let own = members.ranks[members.own];
        let route = Route {
            group: members.group,
            from: members.ranks[from],
            to: own,
        };
        let state = self.state.lock();
        let (mut state, outcome) = self.wait(state, (own, WaitPoint::Message(route)), limit);
        match outcome {
            Ok(()) => {
                let messages = state.messages.get_mut(&route);
                let message = messages.and_then(VecDeque::pop_front);
                Ok(message.expect("the message has arrived"))
            }
            Err(error) => {
                state.mark_gone(own, &error.to_string());
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    /// Marks the world rank `own` as gone. Other ranks report the first reason.
    pub(super) fn mark_gone(&self, own: usize, reason: &str) {
        self.state.lock().mark_gone(own, reason);
        self.changed.notify_all();
    }

    /// Records that a member has dropped the group. If all members have dropped the group, removes
    /// the group's state.
    pub(super) fn end(&self, members: &Members) {
        let mut state = self.state.lock();
        let group_rendezvous = state.group_rendezvous(members);
        group_rendezvous.ended[members.own] = true;
        if group_rendezvous.ended.iter().all(|ended| *ended) {
            state.groups.remove(&members.group);
            state
                .messages
                .retain(|route, _| route.group != members.group);
        }
        self.changed.notify_all();
    }

    /// Waits until no rank is missing at `wait_point`. Also returns the lock of the last check.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, RendezvousState>,
        (own, wait_point): (usize, WaitPoint),
        limit: WaitLimit,
    ) -> (MutexGuard<'a, RendezvousState>, Result<()>) {
        let began = Instant::now();
        state.waiting[own] = Some(wait_point.clone());
        let outcome = loop {
            let missing = state.missing(&wait_point);
            if missing.is_empty() {
                break Ok(());
            }
            let Some(timeout) = limit.timeout else {
                state = self.changed.wait(&self.state, state);
                continue;
            };
            let has_waited = began.elapsed();
            if let Some((rank, reason)) = state.first_gone(&wait_point, &missing, has_waited) {
                break Err(rank_gone(limit.operation, rank, reason));
            }
            if let Some(other) = state.find_deadlock(own) {
                break Err(deadlocked(limit.operation, own, other));
            }
            match timeout.checked_sub(has_waited) {
                Some(left) => {
                    let left = left.min(GRACE);
                    state = self.changed.wait_timeout(&self.state, state, left);
                }
                None => break Err(timed_out(limit.operation, timeout, &missing)),
            }
        };
        state.waiting[own] = None;
        (state, outcome)
    }
}

impl RendezvousState {
    fn group_rendezvous(&mut self, members: &Members) -> &mut GroupRendezvous {
        let size = members.size();
        let new_rendezvous = || GroupRendezvous {
            arrivals: vec![0; size],
            slots: vec![None; size],
            ended: vec![false; size],
            failed: None,
        };
        self.groups
            .entry(members.group)
            .or_insert_with(new_rendezvous)
    }

    fn mark_gone(&mut self, own: usize, reason: &str) {
        self.gone[own].get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the world ranks that have not reached `wait_point`.
    fn missing(&self, wait_point: &WaitPoint) -> Vec<usize> {
        match wait_point {
            WaitPoint::Rendezvous {
                group,
                ranks,
                number,
            } => {
                let arrivals = &self.groups[group].arrivals;
                let late = ranks.iter().zip(arrivals);
                let late = late.filter(|(_, arrived)| *arrived < number);
                late.map(|(rank, _)| *rank).collect()
            }
            WaitPoint::Message(route) => {
                let has_arrived = self
                    .messages
                    .get(route)
                    .is_some_and(|messages| !messages.is_empty());
                (!has_arrived).then_some(route.from).into_iter().collect()
            }
        }
    }

    /// Returns a missing rank that will never reach `wait_point`, and the reason.
    fn first_gone(
        &self,
        wait_point: &WaitPoint,
        missing: &[usize],
        has_waited: Duration,
    ) -> Option<(usize, &str)> {
        missing.iter().find_map(|&rank| {
            let has_group = has_waited < GRACE || self.has_group(wait_point, rank);
            let ended = (!has_group).then_some(DROPPED);
            Some((rank, self.gone[rank].as_deref().or(ended)?))
        })
    }

    fn has_group(&self, wait_point: &WaitPoint, rank: usize) -> bool {
        let WaitPoint::Rendezvous { group, ranks, .. } = wait_point else {
            return true;
        };
        let ended = &self.groups[group].ended;
        let mut members = ranks.iter().zip(ended);
        members.all(|(own, ended)| *own != rank || !ended)
    }

    /// Detects a deadlock: returns a rank that `own` waits for, if that rank waits for `own`,
    /// directly or through other ranks.
    fn find_deadlock(&self, own: usize) -> Option<usize> {
        let wait_point = self.waiting[own].as_ref()?;
        let missing = self.missing(wait_point);
        missing.into_iter().find(|&first| {
            let (mut seen, mut reached) = (vec![first], 0);
            while let Some(&rank) = seen.get(reached) {
                reached += 1;
                let Some(wait_point) = &self.waiting[rank] else {
                    continue;
                };
                for next in self.missing(wait_point) {
                    if next == own {
                        return true;
                    }
                    if !seen.contains(&next) {
                        seen.push(next);
                    }
                }
            }
            false
        })
    }
}
