//! Tests of the memory's invariants on a device with expensive pages.

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
    fn take(&self, bytes: u64) -> Option<SimulatedMemoryBlock> {
        self.allocate(bytes).map(|(block, _)| block)
    }

    fn trim(&self, keep_bytes: u64) {
        self.memory.trim(keep_bytes, WaitMode::Wait);
    }

    /// Asserts the invariants of the memory, and that the live blocks do not overlap. The memory's
    /// reserved bytes must equal the device's used bytes.
    fn check(&self, live: &[SimulatedMemoryBlock]) {
        self.memory.check();
        let live = live.iter();
        let mut blocks = Vec::from_iter(live.map(|block| (block.0.address.0, block.0.bytes())));
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

/// Returns the next number of a sequence: the high bits of a linear congruential generator.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// The sizes reach from units to many handles.
#[test]
fn random_programs_under_limits_hold_the_invariants_at_every_step() {
    for limit_bytes in [Some(48 * MIB), Some(2 * GIB), Some(20 * GIB), None] {
        let most_bytes = limit_bytes.unwrap_or(80 * GIB) / 6;
        let (mut random, memory) = (9, memory(limit_bytes));
        let mut live = Vec::new();
        for _ in 0..1500 {
            if live.len() < 12 && next(&mut random) % 5 < 3 || live.is_empty() {
                let bytes = 1 + next(&mut random) * next(&mut random) % most_bytes;
                live.extend(memory.take(bytes));
            } else {
                memory.free(live.swap_remove(next(&mut random) as usize % live.len()));
            }
            if next(&mut random).is_multiple_of(50) {
                memory.trim(next(&mut random) % 3 * most_bytes);
            }
            memory.check(&live);
        }
        assert!(memory.peak_reserved_bytes() <= limit_bytes.unwrap_or(costs().memory_bytes()));
        let unmapped = memory.ledger().calls_of(DriverCall::MemUnmap);
        assert!(unmapped > 20, "{limit_bytes:?}");
        memory.trim(0);
        memory.check(&live);
    }
}

#[test]
fn what_moves_under_a_limit_keeps_its_handles() {
    let memory = memory(Some(64 * MIB));
    let mut live: Vec<_> = (0..16).map(|_| memory.take(4 * MIB).unwrap()).collect();
    let created = memory.ledger().calls_of(DriverCall::MemCreate);
    assert_eq!(created, 32);
    for index in [5, 3, 1] {
        memory.free(live.remove(index));
    }
    live.push(memory.take(12 * MIB).unwrap());
    memory.check(&live);
    let ledger = memory.ledger();
    assert_eq!(ledger.calls_of(DriverCall::MemCreate), created);
    assert_eq!(ledger.calls_of(DriverCall::MemUnmap), 6);
    assert_eq!(ledger.calls_of(DriverCall::MemRelease), 0);
}

#[test]
fn the_driver_s_own_pool_is_refused_and_a_device_has_an_end() {
    let refused = SimulatedMemory::new(PoolKind::StreamOrdered, &costs(), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let memory = memory(None);
    let block = memory.take(70 * GIB).unwrap();
    assert!(memory.take(20 * GIB).is_none());
    memory.free(block);
    let block = memory.take(79 * GIB);
    assert!(block.is_some(), "after a trim there is enough memory");
    memory.check(&Vec::from_iter(block));
}
