//! The rendezvous of the ranks of a world of threads.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::collective::absence::{DROPPED, GRACE, in_two_orders, is_gone, too_late};
use crate::collective::call::Call;
use crate::collective::engine::Members;
use crate::error::{Error, Result};
use crate::sync::plain::{Condvar, Mutex, MutexGuard};

/// The state that the ranks of a world of threads share.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

/// Invariant: a rank that waits in a rendezvous has been counted as arrived there. It continues
/// only when all members have arrived.
#[derive(Debug)]
struct State {
    groups: HashMap<u64, Meetings>,
    letters: HashMap<Route, VecDeque<Letter>>,
    /// Per rank of the world: the place where it waits.
    waiting: Vec<Option<Place>>,
    /// Per rank of the world: the reason why it takes part in nothing more.
    gone: Vec<Option<String>>,
}

/// The rendezvous of a group.
#[derive(Debug)]
struct Meetings {
    /// Per member: the number of rendezvous that it has reached.
    arrivals: Vec<u64>,
    /// Per member: its latest slot.
    posts: Vec<Option<Post>>,
    /// Per member: true if it has dropped the group.
    ended: Vec<bool>,
    /// The first member that failed during a shared operation, and the reason.
    failed: Option<(usize, String)>,
}

/// The slot of a member: its call, and the addresses of its memory, for the other members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) call: Call,
    pub(super) source: usize,
    pub(super) target: usize,
}

/// Sender and receiver of a message, by world rank, and their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Route {
    group: u64,
    from: usize,
    to: usize,
}

/// A message, with a copy of the data.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) call: Call,
    pub(super) bytes: Vec<u8>,
}

/// The place where a rank waits.
#[derive(Clone, Debug)]
enum Place {
    /// The rendezvous with that number in the group.
    Meeting {
        group: u64,
        ranks: Vec<usize>,
        number: u64,
    },
    Letter(Route),
}

/// The timeout of a wait, and the operation that an error names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) operation: &'static str,
    /// `None` if the other ranks are certain to arrive, even one that is marked as gone.
    pub(super) timeout: Option<Duration>,
}

impl Board {
    pub(super) fn new(size: usize) -> Self {
        let state = State {
            groups: HashMap::new(),
            letters: HashMap::new(),
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
    pub(super) fn meet(
        &self,
        members: &Members,
        post: Option<Post>,
        patience: Patience,
    ) -> Result<()> {
        let own = members.ranks[members.own];
        let mut state = self.state.lock();
        let meetings = state.meetings(members);
        meetings.arrivals[members.own] += 1;
        if post.is_some() {
            meetings.posts[members.own] = post;
        }
        let place = Place::Meeting {
            group: members.group,
            ranks: members.ranks.clone(),
            number: meetings.arrivals[members.own],
        };
        self.changed.notify_all();
        let (mut state, outcome) = self.wait(state, (own, place), patience);
        // Under the lock of the last check, so that no rank has continued and used this rank's
        // memory.
        outcome.inspect_err(|error| {
            state.meetings(members).arrivals[members.own] -= 1;
            state.leave(own, &error.to_string());
            self.changed.notify_all();
        })
    }

    /// Returns the slots of all members for the rendezvous that all have reached.
    pub(super) fn posts(&self, members: &Members) -> Vec<Post> {
        let mut state = self.state.lock();
        let posts = state.meetings(members).posts.iter();
        posts.map(|post| post.expect("all have come")).collect()
    }

    /// Marks this rank's part of the current operation as failed. The other members find this in
    /// `check_parts`, after the rendezvous that ends the operation.
    pub(super) fn fail(&self, members: &Members, reason: &Error) {
        let mut state = self.state.lock();
        let failed = (members.ranks[members.own], reason.to_string());
        state.meetings(members).failed.get_or_insert(failed);
    }

    /// Returns an error if a member failed during its part.
    pub(super) fn check_parts(&self, members: &Members, operation: &str) -> Result<()> {
        match &self.state.lock().meetings(members).failed {
            Some((rank, reason)) => Err(is_gone(operation, *rank, reason)),
            None => Ok(()),
        }
    }

    /// Queues a message for a member.
    pub(super) fn send(&self, members: &Members, to: usize, letter: Letter) -> Result<()> {
        let route = Route {
            group: members.group,
            from: members.ranks[members.own],
            to: members.ranks[to],
        };
        let mut state = self.state.lock();
        if let Some(reason) = &state.gone[route.to] {
            return Err(is_gone("send", to, reason));
        }
        state.letters.entry(route).or_default().push_back(letter);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next message of a member.
    pub(super) fn receive(
        &self,
        members: &Members,
        from: usize,
        patience: Patience,
    ) -> Result<Letter> {
        let own = members.ranks[members.own];
        let route = Route {
            group: members.group,
            from: members.ranks[from],
            to: own,
        };
        let state = self.state.lock();
        let (mut state, outcome) = self.wait(state, (own, Place::Letter(route)), patience);
        match outcome {
            Ok(()) => {
                let letters = state.letters.get_mut(&route);
                let letter = letters.and_then(VecDeque::pop_front);
                Ok(letter.expect("it has come"))
            }
            Err(error) => {
                state.leave(own, &error.to_string());
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    /// Marks the world rank `own` as gone. Other ranks report the first reason.
    pub(super) fn leave(&self, own: usize, reason: &str) {
        self.state.lock().leave(own, reason);
        self.changed.notify_all();
    }

    /// Records that a member has dropped the group. When all have, the group's state is removed.
    pub(super) fn end(&self, members: &Members) {
        let mut state = self.state.lock();
        let meetings = state.meetings(members);
        meetings.ended[members.own] = true;
        if meetings.ended.iter().all(|ended| *ended) {
            state.groups.remove(&members.group);
            state
                .letters
                .retain(|route, _| route.group != members.group);
        }
        self.changed.notify_all();
    }

    /// Waits until no rank is missing at `place`. Also returns the lock that the last check was
    /// made under.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (own, place): (usize, Place),
        patience: Patience,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let began = Instant::now();
        state.waiting[own] = Some(place.clone());
        let outcome = loop {
            let missing = state.missing(&place);
            if missing.is_empty() {
                break Ok(());
            }
            let Some(timeout) = patience.timeout else {
                state = self.changed.wait(&self.state, state);
                continue;
            };
            let has_waited = began.elapsed();
            if let Some((rank, reason)) = state.first_gone(&place, &missing, has_waited) {
                break Err(is_gone(patience.operation, rank, reason));
            }
            if let Some(other) = state.waits_in_turn(own) {
                break Err(in_two_orders(patience.operation, own, other));
            }
            match timeout.checked_sub(has_waited) {
                Some(left) => {
                    let left = left.min(GRACE);
                    state = self.changed.wait_timeout(&self.state, state, left);
                }
                None => break Err(too_late(patience.operation, timeout, &missing)),
            }
        };
        state.waiting[own] = None;
        (state, outcome)
    }
}

impl State {
    fn meetings(&mut self, members: &Members) -> &mut Meetings {
        let size = members.size();
        let fresh = || Meetings {
            arrivals: vec![0; size],
            posts: vec![None; size],
            ended: vec![false; size],
            failed: None,
        };
        self.groups.entry(members.group).or_insert_with(fresh)
    }

    fn leave(&mut self, own: usize, reason: &str) {
        self.gone[own].get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the world ranks that have not reached `place`.
    fn missing(&self, place: &Place) -> Vec<usize> {
        match place {
            Place::Meeting {
                group,
                ranks,
                number,
            } => {
                let arrivals = &self.groups[group].arrivals;
                let late = ranks.iter().zip(arrivals);
                let late = late.filter(|(_, arrived)| *arrived < number);
                late.map(|(rank, _)| *rank).collect()
            }
            Place::Letter(route) => {
                let has_come = self
                    .letters
                    .get(route)
                    .is_some_and(|letters| !letters.is_empty());
                (!has_come).then_some(route.from).into_iter().collect()
            }
        }
    }

    /// Returns a missing rank that will never reach `place`, and the reason.
    fn first_gone(
        &self,
        place: &Place,
        missing: &[usize],
        has_waited: Duration,
    ) -> Option<(usize, &str)> {
        missing.iter().find_map(|&rank| {
            let has_group = has_waited < GRACE || self.has_group(place, rank);
            let ended = (!has_group).then_some(DROPPED);
            Some((rank, self.gone[rank].as_deref().or(ended)?))
        })
    }

    fn has_group(&self, place: &Place, rank: usize) -> bool {
        let Place::Meeting { group, ranks, .. } = place else {
            return true;
        };
        let ended = &self.groups[group].ended;
        let mut members = ranks.iter().zip(ended);
        members.all(|(own, ended)| *own != rank || !ended)
    }

    /// Detects a deadlock: returns a rank that `own` waits for and that waits, directly or through
    /// others, for `own`.
    fn waits_in_turn(&self, own: usize) -> Option<usize> {
        let place = self.waiting[own].as_ref()?;
        let missing = self.missing(place);
        missing.into_iter().find(|&first| {
            let (mut seen, mut reached) = (vec![first], 0);
            while let Some(&rank) = seen.get(reached) {
                reached += 1;
                let Some(place) = &self.waiting[rank] else {
                    continue;
                };
                for next in self.missing(place) {
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
