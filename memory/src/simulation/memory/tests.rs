//! The invariants of the memory when pages are expensive.

use super::*;
use crate::error::ErrorKind;
use crate::memory::WaitMode;
use crate::simulation::DriverCall;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn costs() -> DriverCosts {
    DriverCosts::named("h100").unwrap()
}

fn memory(limit_bytes: Option<u64>) -> SimulatedMemory {
    SimulatedMemory::new(PoolKind::BestFit, &costs(), limit_bytes).unwrap()
}

impl SimulatedMemory {
    fn trim(&self, keep_bytes: u64) {
        self.memory.trim(keep_bytes, WaitMode::Wait);
    }

    /// Asserts the invariants of the memory, that blocks do not overlap, and that the device holds
    /// the reserved bytes.
    fn check(&self) {
        self.memory.check();
        let live = self.live.iter().flatten();
        let mut blocks = Vec::from_iter(live.map(|(block, _)| (block.address.0, block.bytes())));
        blocks.sort_unstable();
        assert!(blocks.is_sorted_by(|one, other| one.0 + one.1 <= other.0));
        let stats = self.memory.stats();
        assert_eq!(stats.reserved_bytes, self.device.used_bytes());
        assert_eq!(
            stats.allocated_bytes,
            blocks.iter().map(|(_, bytes)| bytes).sum::<u64>()
        );
    }
}

/// Returns the next number of a sequence (an LCG's high bits).
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// Under limits that random programs run into, with sizes from units to many handles.
#[test]
fn random_programs_under_limits_hold_the_invariants_at_every_step() {
    for limit_bytes in [Some(48 * MIB), Some(2 * GIB), Some(20 * GIB), None] {
        let most_bytes = limit_bytes.unwrap_or(80 * GIB) / 6;
        let (mut random, mut memory) = (9, memory(limit_bytes));
        let mut live = Vec::new();
        for _ in 0..1500 {
            if live.len() < 12 && next(&mut random) % 5 < 3 || live.is_empty() {
                let slot = (0..).find(|slot| !live.contains(slot)).unwrap();
                let bytes = 1 + next(&mut random) * next(&mut random) % most_bytes;
                memory.allocate(slot, bytes);
                live.push(slot);
            } else {
                let slot = live.swap_remove(next(&mut random) as usize % live.len());
                memory.free(slot);
            }
            if next(&mut random).is_multiple_of(50) {
                memory.trim(next(&mut random) % 3 * most_bytes);
            }
            memory.check();
        }
        assert!(memory.peak_reserved_bytes() <= limit_bytes.unwrap_or(costs().memory_bytes()));
        let unmapped = memory.ledger().calls_of(DriverCall::MemUnmap);
        assert!(unmapped > 20, "{limit_bytes:?}");
        memory.trim(0);
        memory.check();
    }
}

/// Memory moves under a limit, with the handles that it has.
#[test]
fn what_moves_under_a_limit_keeps_its_handles() {
    let mut memory = memory(Some(64 * MIB));
    for slot in 0..16 {
        assert!(memory.allocate(slot, 4 * MIB));
    }
    let created = memory.ledger().calls_of(DriverCall::MemCreate);
    assert_eq!(created, 32);
    for slot in [1, 3, 5] {
        assert_eq!(memory.free(slot), 4 * MIB);
    }
    assert!(memory.allocate(1, 12 * MIB));
    memory.check();
    let ledger = memory.ledger();
    assert_eq!(ledger.calls_of(DriverCall::MemCreate), created);
    assert_eq!(ledger.calls_of(DriverCall::MemUnmap), 6);
    assert_eq!(ledger.calls_of(DriverCall::MemRelease), 0);
}

#[test]
fn the_driver_s_own_pool_is_refused_and_a_device_has_an_end() {
    let refused = SimulatedMemory::new(PoolKind::StreamOrdered, &costs(), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let mut memory = memory(None);
    assert!(memory.allocate(0, 70 * GIB));
    assert!(!memory.allocate(1, 20 * GIB));
    assert_eq!([0, 1].map(|slot| memory.free(slot)), [70 * GIB, 0]);
    assert!(
        memory.allocate(1, 79 * GIB),
        "after a trim there is enough memory"
    );
    memory.check();
}
