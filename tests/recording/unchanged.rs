//! Recording changes only the run time. A program gets equal addresses, counters and memory with
//! and without a recording.

use cachescope::{Buffer, CacheStats, Device, MemoryStats, Policy, cache_scope};

use super::{device, record};

/// Runs random requests and drops in entries that differ slightly. Returns the offsets of the
/// addresses, and the statistics.
fn program(device: &Device, policy: Policy) -> (Vec<i64>, CacheStats, MemoryStats) {
    let mut state = 1u64;
    let mut next = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % most
    };
    let mut addresses = Vec::new();
    let mut kept = Vec::new();
    for entry in 0..40 {
        cache_scope!("step", policy = policy, device = device, {
            let mut live = Vec::new();
            for step in 0..60 {
                let varies = entry % 7 == 3 && step > 30;
                let bytes = if varies {
                    next(9000)
                } else {
                    step * 137 % 5000
                } + 1;
                let buffer = Buffer::new(device, bytes as usize).unwrap();
                addresses.push(buffer.address());
                live.push(buffer);
                if step % 3 == 2 {
                    live.swap_remove(live.len() / 2);
                }
            }
            if entry % 10 == 9 {
                kept.push(live.pop());
            }
        });
    }
    let first = addresses[0];
    let offsets = addresses
        .iter()
        .map(|address| address.wrapping_sub(first) as i64)
        .collect();
    let stats = device.cache_stats("step").unwrap();
    (offsets, stats, device.memory_stats())
}

#[test]
fn a_recorded_program_gets_the_same_memory() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let expected = program(&device(), policy);
        let recorded = {
            let device = device();
            let _recording = record(&device);
            program(&device, policy)
        };
        assert_eq!(recorded.0, expected.0, "{policy}");
        assert_eq!(recorded.1, expected.1, "{policy}");
        assert_eq!(recorded.2, expected.2, "{policy}");
    }
}

#[test]
fn a_program_continues_as_before_after_a_recording() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let (never, once) = (device(), device());
        let run = |device| program(device, policy);
        assert_eq!(run(&never), run(&once), "{policy}");
        let recording = record(&once);
        assert_eq!(run(&never), run(&once), "{policy}");
        drop(recording);
        for _ in 0..2 {
            assert_eq!(run(&never), run(&once), "{policy}");
        }
        assert_eq!(record(&once).events(), []);
    }
}
