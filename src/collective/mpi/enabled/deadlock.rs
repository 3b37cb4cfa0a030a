//! Distributed deadlock detection: finds cycles of ranks that wait in mismatched calls.
//!
//! A rank that has waited for a while sends a probe to the ranks that it waits for. If a receiver
//! of the probe waits itself, it forwards the probe to the ranks that it waits for. If a rank
//! receives its own probe, there is a deadlock. Each rank on the cycle has confirmed that it has
//! not reached the call in which its predecessor waits. While a rank waits, it reaches no other
//! call, so no rank on the cycle can continue.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::collective::absence::GRACE;

/// A message of the search for a cycle of waiting ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeadlockProbe {
    /// The rank that started the search, and the number of its search.
    pub(super) first: u64,
    pub(super) search: u64,
    /// The call that the sender waits in.
    pub(super) group: u64,
    pub(super) number: u64,
}

/// The state of a rank in the search for deadlocks.
#[derive(Debug, Default)]
pub(super) struct DeadlockDetector {
    /// The number of calls that this rank has reached, per group.
    numbers: HashMap<u64, u64>,
    /// The call that the rank waits in (its group and number), and the ranks that the rank waits
    /// for. Set once the rank has waited for a while.
    place: Option<(u64, u64, Vec<usize>)>,
    /// The searches that the rank has forwarded during the current wait, by `first` and `search`.
    forwarded: HashSet<(u64, u64)>,
    search: u64,
    /// The duration of the wait at the latest search.
    searched_at: Duration,
    pub(super) is_found: bool,
}

impl DeadlockDetector {
    /// Counts the next call of a group, and returns its number.
    pub(super) fn count_call(&mut self, group: u64) -> u64 {
        let number = self.numbers.entry(group).or_default();
        *number += 1;
        *number
    }

    pub(super) fn forget(&mut self, group: u64) {
        self.numbers.remove(&group);
    }

    pub(super) fn end_wait(&mut self) {
        self.place = None;
        self.forwarded.clear();
        self.searched_at = Duration::ZERO;
    }

    /// Returns true if it is time for another search, after a wait of `waited`.
    pub(super) fn is_due(&self, waited: Duration) -> bool {
        waited >= self.searched_at + GRACE
    }

    /// Starts a search, and returns the message for the ranks that this rank waits for in a call.
    pub(super) fn start(
        &mut self,
        own: usize,
        group: u64,
        waited: Duration,
        missing: &[usize],
    ) -> DeadlockProbe {
        let number = self.numbers.get(&group).copied().unwrap_or_default();
        self.place = Some((group, number, missing.to_vec()));
        self.searched_at = waited;
        self.search += 1;
        DeadlockProbe {
            first: own as u64,
            search: self.search,
            group,
            number,
        }
    }

    /// Handles a probe from a rank that waits for this rank. Returns the probe to forward, and its
    /// receivers.
    pub(super) fn receive(
        &mut self,
        own: usize,
        probe: DeadlockProbe,
    ) -> Option<(DeadlockProbe, Vec<usize>)> {
        let (group, number, missing) = self.place.as_ref()?;
        let has_arrived = self.numbers.get(&probe.group);
        if has_arrived.is_some_and(|came| *came >= probe.number) {
            return None;
        }
        if probe.first == own as u64 {
            self.is_found = true;
            return None;
        }
        if !self.forwarded.insert((probe.first, probe.search)) {
            return None;
        }
        let forwarded = DeadlockProbe {
            group: *group,
            number: *number,
            ..probe
        };
        Some((forwarded, missing.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the states of three ranks, and the probe of rank 0. Each rank waits for the next
    /// rank, in the group of its own number. `arrivals` lists pairs of a rank and a group. The rank
    /// has reached a call of the group before.
    fn waiting(arrivals: &[(usize, u64)]) -> (Vec<DeadlockDetector>, DeadlockProbe) {
        let mut ranks: Vec<DeadlockDetector> =
            (0..3).map(|_| DeadlockDetector::default()).collect();
        for (rank, group) in arrivals {
            ranks[*rank].count_call(*group);
        }
        let probes: Vec<DeadlockProbe> = ranks
            .iter_mut()
            .enumerate()
            .map(|(rank, deadlocks)| {
                deadlocks.count_call(rank as u64);
                deadlocks.start(rank, rank as u64, GRACE, &[(rank + 1) % 3])
            })
            .collect();
        (ranks, probes[0])
    }

    #[test]
    fn a_cycle_is_found() {
        let (mut ranks, mut probe) = waiting(&[]);
        for rank in [1, 2] {
            let (next, to) = ranks[rank].receive(rank, probe).unwrap();
            assert_eq!(to, [(rank + 1) % 3]);
            assert_eq!(
                ranks[rank].receive(rank, probe),
                None,
                "it is forwarded once"
            );
            probe = next;
        }
        assert_eq!(ranks[0].receive(0, probe), None);
        assert!(ranks[0].is_found);
    }

    #[test]
    fn a_rank_that_has_arrived_ends_the_search() {
        // Rank 2 has reached the call of rank 1, but rank 1 still waits.
        let (mut ranks, probe) = waiting(&[(2, 1)]);
        let (probe, _) = ranks[1].receive(1, probe).unwrap();
        assert_eq!(ranks[2].receive(2, probe), None);
        // Rank 1 waits no longer.
        let (mut ranks, probe) = waiting(&[]);
        ranks[1].end_wait();
        assert_eq!(ranks[1].receive(1, probe), None);
    }
}
