//! The memory over a simulated driver: the calls that it makes, and its invariants when pages are
//! expensive.

#[path = "random_allocations.rs"]
mod random_allocations;

use super::*;
use crate::error::ErrorKind;
use crate::pool::PoolKind;
use crate::trace::TraceEvent;
use random_allocations::{next, random_allocations};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn costs() -> DriverCosts {
    DriverCosts::named("h100").unwrap()
}

fn replay(limit_bytes: Option<u64>) -> DeviceReplay {
    DeviceReplay::new(PoolKind::BestFit, &costs(), limit_bytes).unwrap()
}

#[test]
fn every_call_has_its_cost_and_points_are_joined_by_lines() {
    let costs = costs();
    for call in DriverCall::iter() {
        assert!(costs.nanos(call, 2 * MIB) > 100.0, "{call}");
    }
    assert_eq!(costs.nanos(DriverCall::MemSetAccess, 1), 36_000.0);
    assert_eq!(costs.nanos(DriverCall::MemSetAccess, 128 * MIB), 195_000.0);
    assert_eq!(costs.nanos(DriverCall::MemSetAccess, 64 * GIB), 133_000.0);
    let between = costs.nanos(DriverCall::MemSetAccess, 65 * MIB);
    assert!((between - 115_500.0).abs() < 1.0, "{between}");
    // Beyond the last point, the line continues if the row says so.
    let [one, two, three] = [2, 4, 6].map(|gib| costs.nanos(DriverCall::MemAlloc, gib * GIB));
    assert!((two - one - (three - two)).abs() < 1.0 && two > one);
    assert!(costs.memory_bytes() > 79 * GIB);
    let unknown = DriverCosts::named("h1000").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::InvalidArgument);
    assert!(unknown.to_string().contains("h100"), "{unknown}");
}

#[test]
fn the_ledger_splits_its_events_in_halves() {
    let mut ledger = DriverLedger::new(&costs());
    for event in 0..4000 {
        if event < 2000 || event % 1000 == 0 {
            ledger.charge(DriverCall::MemMap, MIB);
        }
        ledger.advance();
    }
    assert_eq!(ledger.calls(), 2002);
    assert_eq!(ledger.calls_of(DriverCall::MemMap), 2002);
    assert_eq!(ledger.calls_of(DriverCall::MemUnmap), 0);
    let (calls, microseconds) = ledger.second_half();
    assert_eq!(calls, 2);
    // The second half is exact for a handful of events, and to one in two thousand for many.
    for (count, tolerance) in [(1, 0), (2, 0), (7, 0), (1999, 0), (100_000, 50)] {
        let mut ledger = DriverLedger::new(&costs());
        for _ in 0..count {
            ledger.charge(DriverCall::MemMap, MIB);
            ledger.advance();
        }
        let (calls, _) = ledger.second_half();
        assert!(
            calls.abs_diff(count - count / 2) <= tolerance,
            "{count}: {calls}"
        );
    }
    assert!((microseconds - 2.0 * 1.45).abs() < 1e-6);
    assert!((ledger.microseconds() - 2002.0 * 1.45).abs() < 1e-6);
}

#[test]
fn a_large_request_is_a_few_calls_and_a_tight_limit_has_small_handles() {
    for (bytes, limit_bytes, handles) in [
        (GIB, None, 1),
        (3 * GIB, None, 3),
        (GIB, Some(16 * GIB), 32),
        (24 * MIB, Some(64 * MIB), 12),
        (2 * MIB, None, 1),
    ] {
        let mut device = replay(limit_bytes);
        device.apply(&[TraceEvent::Allocate { slot: 0, bytes }]);
        let outcome = device.outcome();
        assert_eq!(outcome.failures, 0);
        assert_eq!(outcome.calls_of(DriverCall::MemCreate), handles, "{bytes}");
        assert_eq!(outcome.calls_of(DriverCall::MemMap), handles);
        assert_eq!(outcome.calls_of(DriverCall::MemSetAccess), 1);
        assert_eq!(outcome.calls_of(DriverCall::MemAddressReserve), 1);
    }
}

#[test]
fn growth_costs_less_than_twice_the_driver_s_own_allocations() {
    for block_bytes in [2, 16, 64, 256, 1024].map(|mib| mib * MIB) {
        let mut device = replay(None);
        let count = (64 * GIB / block_bytes) as u32;
        let blocks = (0..count).map(|slot| TraceEvent::Allocate {
            slot,
            bytes: block_bytes,
        });
        device.apply(&Vec::from_iter(blocks));
        let outcome = device.outcome();
        assert_eq!(outcome.failures, 0);
        let plain = f64::from(count) * costs().nanos(DriverCall::MemAlloc, block_bytes) / 1e3;
        let ratio = outcome.ledger.microseconds() / plain;
        assert!(ratio < 2.0, "{block_bytes}: {ratio}");
    }
}

#[test]
fn a_warm_repetition_asks_for_nothing() {
    for pool in [PoolKind::BestFit, PoolKind::Binned] {
        for most_bytes in [MIB, 64 * MIB, GIB] {
            let events = random_allocations(2000, most_bytes, 8 * GIB);
            let mut device = DeviceReplay::new(pool, &costs(), None).unwrap();
            device.apply(&events);
            let first = device.outcome();
            assert!(first.calls > 10);
            for _ in 0..3 {
                device.apply(&events);
                assert_eq!(device.outcome().calls, first.calls, "{pool}, {most_bytes}");
            }
            assert_eq!(device.outcome().failures, 0);
        }
    }
}

/// Every turn has a length of its own, from few that come again and again.
#[test]
fn lengths_that_come_again_ask_for_nothing_after_a_hundred_turns() {
    let mut device = replay(None);
    let mut random = 5;
    let mut calls = Vec::new();
    for _ in 0..400 {
        let length = 200 + next(&mut random) % 60 * 30;
        let mut events = Vec::new();
        for slot in 0..24 {
            let bytes = length * (1 + u64::from(slot) * 7 % 32) * 2048;
            events.push(TraceEvent::Allocate { slot, bytes });
            if slot % 3 == 2 {
                events.push(TraceEvent::Free { slot: slot - 1 });
            }
        }
        events.extend(
            (0..24)
                .filter(|slot| slot % 3 != 1)
                .map(|slot| TraceEvent::Free { slot }),
        );
        device.apply(&events);
        calls.push(device.outcome().calls);
    }
    assert!(calls[0] > 0);
    assert_eq!(calls[99], calls[399], "after a hundred turns");
    let outcome = device.outcome();
    let ratio = outcome.peak_reserved_bytes as f64 / outcome.peak_live_bytes as f64;
    assert!(ratio < 1.1, "{ratio}");
}

/// Under limits that random programs run into, with sizes from units to many handles.
#[test]
fn random_programs_under_limits_hold_the_invariants_at_every_step() {
    for limit_bytes in [Some(48 * MIB), Some(2 * GIB), Some(20 * GIB), None] {
        let most_bytes = limit_bytes.unwrap_or(80 * GIB) / 6;
        let (mut random, mut device) = (9, replay(limit_bytes));
        let mut live = Vec::new();
        for _ in 0..1500 {
            if live.len() < 12 && next(&mut random) % 5 < 3 || live.is_empty() {
                let slot = (0..).find(|slot| !live.contains(slot)).unwrap();
                let bytes = 1 + next(&mut random) * next(&mut random) % most_bytes;
                device.apply(&[TraceEvent::Allocate { slot, bytes }]);
                live.push(slot);
            } else {
                let slot = live.swap_remove(next(&mut random) as usize % live.len());
                device.apply(&[TraceEvent::Free { slot }]);
            }
            if next(&mut random).is_multiple_of(50) {
                device.trim(next(&mut random) % 3 * most_bytes);
            }
            device.check();
        }
        let outcome = device.outcome();
        assert!(outcome.peak_reserved_bytes <= limit_bytes.unwrap_or(costs().memory_bytes()));
        assert!(
            outcome.calls_of(DriverCall::MemUnmap) > 20,
            "{limit_bytes:?}"
        );
        device.trim(0);
        device.check();
    }
}

/// Memory moves under a limit, with the handles that it has.
#[test]
fn what_moves_under_a_limit_keeps_its_handles() {
    let mut device = replay(Some(64 * MIB));
    let eight = (0..16).map(|slot| TraceEvent::Allocate {
        slot,
        bytes: 4 * MIB,
    });
    device.apply(&Vec::from_iter(eight));
    let created = device.outcome().calls_of(DriverCall::MemCreate);
    assert_eq!(created, 32);
    device.apply(&[1, 3, 5].map(|slot| TraceEvent::Free { slot }));
    device.apply(&[TraceEvent::Allocate {
        slot: 1,
        bytes: 12 * MIB,
    }]);
    device.check();
    let outcome = device.outcome();
    assert_eq!(outcome.failures, 0);
    assert_eq!(outcome.calls_of(DriverCall::MemCreate), created);
    assert_eq!(outcome.calls_of(DriverCall::MemUnmap), 6);
    assert_eq!(outcome.calls_of(DriverCall::MemRelease), 0);
}

#[test]
fn the_driver_s_own_pool_is_refused_and_a_device_has_an_end() {
    let refused = DeviceReplay::new(PoolKind::StreamOrdered, &costs(), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let mut device = replay(None);
    device.apply(&[70, 20].map(|gib| TraceEvent::Allocate {
        slot: gib,
        bytes: u64::from(gib) * GIB,
    }));
    assert_eq!(device.outcome().failures, 1);
    device.apply(&[70, 20].map(|slot| TraceEvent::Free { slot }));
    device.apply(&[TraceEvent::Allocate {
        slot: 1,
        bytes: 79 * GIB,
    }]);
    device.check();
    assert_eq!(device.outcome().failures, 1, "after a trim there is room");
}
