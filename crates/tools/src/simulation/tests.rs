//! Tests of the driver calls that recorded programs cause.

use programs::next;

use super::*;
use crate::PoolKind;
use crate::trace::TraceEvent;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn costs() -> DriverCosts {
    DriverCosts::named("h100").unwrap()
}

fn replay(limit_bytes: Option<u64>) -> DeviceReplay {
    DeviceReplay::new(PoolKind::BestFit, &costs(), limit_bytes).unwrap()
}

fn random_allocations(count: u32, most_bytes: u64, most_live_bytes: u64) -> Vec<TraceEvent> {
    let allocate = |slot, bytes| TraceEvent::Allocate { slot, bytes };
    let free = |slot| TraceEvent::Free { slot };
    programs::random_allocations(count, most_bytes, most_live_bytes, allocate, free)
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
fn a_warm_repetition_calls_no_driver() {
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

/// Each iteration draws its length from a few recurring lengths.
#[test]
fn recurring_lengths_call_no_driver_after_a_hundred_iterations() {
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
