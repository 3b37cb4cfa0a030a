//! Ranks that wait for each other in a circle, each in another call: none of them will ever go on.
//!
//! A rank that has waited for a while tells those that it waits for, which pass it on to those that
//! they wait for, as long as they wait themselves. Where a rank hears of its own wait, there is a
//! circle: each in it has said that it has not come to the call that the one before waits in, and
//! does not, because it waits.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::collective::absence::GRACE;

/// Where a rank waits, as others hear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// The rank that asks, and how often it did.
    pub(super) first: u64,
    pub(super) turn: u64,
    /// The call that the sender waits in.
    pub(super) group: u64,
    pub(super) number: u64,
}

/// What a rank knows of such circles.
#[derive(Debug, Default)]
pub(super) struct Circle {
    /// Of each group, how many calls this rank came to.
    numbers: HashMap<u64, u64>,
    /// The call that it waits in, and for whom, where it has for a while.
    place: Option<(u64, u64, Vec<usize>)>,
    /// What it has passed on from there.
    passed_on: HashSet<(u64, u64)>,
    turn: u64,
    /// For how long it waited when it asked last.
    asked: Duration,
    is_closed: bool,
}

impl Circle {
    /// This rank comes to the next call of a group. Gives its number.
    pub(super) fn come(&mut self, group: u64) -> u64 {
        let number = self.numbers.entry(group).or_default();
        *number += 1;
        *number
    }

    pub(super) fn forget(&mut self, group: u64) {
        self.numbers.remove(&group);
    }

    /// It waits no longer.
    pub(super) fn go_on(&mut self) {
        self.place = None;
        self.passed_on.clear();
        self.asked = Duration::ZERO;
    }

    /// Whether it waits in a circle.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether it is time to ask those that this rank waits for.
    pub(super) fn asks_after(&self, waited: Duration) -> bool {
        waited >= self.asked + GRACE
    }

    /// What this rank tells those that it waits for in a call.
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

    /// Hears of a wait for this rank. Gives what it passes on, and to whom.
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

    /// Each of three ranks waits for the next one, in the group of that number.
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
        // Rank 2 has come to the call of rank 1, which does not know it yet.
        let (mut ranks, stuck) = waiting(&[(2, 1)]);
        let (stuck, _) = ranks[1].hear(1, stuck).unwrap();
        assert_eq!(ranks[2].hear(2, stuck), None);
        // Rank 1 waits no longer.
        let (mut ranks, stuck) = waiting(&[]);
        ranks[1].go_on();
        assert_eq!(ranks[1].hear(1, stuck), None);
    }
}
