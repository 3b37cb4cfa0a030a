//! Distributed deadlock detection: finds cycles of ranks that wait in mismatched calls.
//!
//! A rank that has waited for a while sends a message to the ranks that it waits for. While they
//! wait themselves, they forward it to the ranks that they wait for. If a rank receives its own
//! message, there is a deadlock. Each rank on the cycle has confirmed that it has not reached the
//! call in which its predecessor waits. It never will, because it waits itself.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::collective::absence::GRACE;

/// A message about a rank that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// The rank that started the search, and the number of its search.
    pub(super) first: u64,
    pub(super) turn: u64,
    /// The call that the sender waits in.
    pub(super) group: u64,
    pub(super) number: u64,
}

/// The state of a rank in the search for deadlocks.
#[derive(Debug, Default)]
pub(super) struct Circle {
    /// Per group: the number of calls that this rank has reached.
    numbers: HashMap<u64, u64>,
    /// Group and number of the call that it waits in, and the ranks that it waits for. Set once it
    /// has waited for a while.
    place: Option<(u64, u64, Vec<usize>)>,
    /// The searches that it has forwarded during this wait, by `first` and `turn`.
    passed_on: HashSet<(u64, u64)>,
    turn: u64,
    /// The duration of the wait at its latest search.
    asked: Duration,
    is_closed: bool,
}

impl Circle {
    /// Counts the next call of a group, and returns its number.
    pub(super) fn come(&mut self, group: u64) -> u64 {
        let number = self.numbers.entry(group).or_default();
        *number += 1;
        *number
    }

    pub(super) fn forget(&mut self, group: u64) {
        self.numbers.remove(&group);
    }

    /// Ends the wait.
    pub(super) fn go_on(&mut self) {
        self.place = None;
        self.passed_on.clear();
        self.asked = Duration::ZERO;
    }

    /// Returns true if this rank waits in a deadlock.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns true if it is time for another search, after a wait of `waited`.
    pub(super) fn asks_after(&self, waited: Duration) -> bool {
        waited >= self.asked + GRACE
    }

    /// Starts a search, and returns the message for the ranks that this rank waits for in a call.
    pub(super) fn ask(
        &mut self,
        own: usize,
        group: u64,
        waited: Duration,
        missing: &[usize],
    ) -> Stuck {
        let number = self.numbers.get(&group).copied().unwrap_or_default();
        self.place = Some((group, number, missing.to_vec()));
        self.asked = waited;
        self.turn += 1;
        Stuck {
            first: own as u64,
            turn: self.turn,
            group,
            number,
        }
    }

    /// Handles a message about a rank that waits for this one. Returns the message to forward, and
    /// its receivers.
    pub(super) fn hear(&mut self, own: usize, stuck: Stuck) -> Option<(Stuck, Vec<usize>)> {
        let (group, number, missing) = self.place.as_ref()?;
        let has_come = self.numbers.get(&stuck.group);
        if has_come.is_some_and(|came| *came >= stuck.number) {
            return None;
        }
        if stuck.first == own as u64 {
            self.is_closed = true;
            return None;
        }
        if !self.passed_on.insert((stuck.first, stuck.turn)) {
            return None;
        }
        let passed_on = Stuck {
            group: *group,
            number: *number,
            ..stuck
        };
        Some((passed_on, missing.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of three ranks waits for the next one, in the group with its own number.
    fn waiting(come: &[(usize, u64)]) -> (Vec<Circle>, Stuck) {
        let mut ranks: Vec<Circle> = (0..3).map(|_| Circle::default()).collect();
        for (rank, group) in come {
            ranks[*rank].come(*group);
        }
        let asks: Vec<Stuck> = ranks
            .iter_mut()
            .enumerate()
            .map(|(rank, circle)| {
                circle.come(rank as u64);
                circle.ask(rank, rank as u64, GRACE, &[(rank + 1) % 3])
            })
            .collect();
        (ranks, asks[0])
    }

    #[test]
    fn a_circle_is_found() {
        let (mut ranks, mut stuck) = waiting(&[]);
        for rank in [1, 2] {
            let (next, to) = ranks[rank].hear(rank, stuck).unwrap();
            assert_eq!(to, [(rank + 1) % 3]);
            assert_eq!(ranks[rank].hear(rank, stuck), None, "it is passed on once");
            stuck = next;
        }
        assert_eq!(ranks[0].hear(0, stuck), None);
        assert!(ranks[0].is_closed());
    }

    #[test]
    fn who_has_come_is_not_waited_for() {
        // Rank 2 has reached the call of rank 1, which does not know it yet.
        let (mut ranks, stuck) = waiting(&[(2, 1)]);
        let (stuck, _) = ranks[1].hear(1, stuck).unwrap();
        assert_eq!(ranks[2].hear(2, stuck), None);
        // Rank 1 waits no longer.
        let (mut ranks, stuck) = waiting(&[]);
        ranks[1].go_on();
        assert_eq!(ranks[1].hear(1, stuck), None);
    }
}
