//! The memory of the records of long entries, for `cache_record` and for plans.

use std::collections::VecDeque;

use cachescope::scope::ScopeHandle;
use cachescope::{Buffer, CacheConfig, CacheStats, Device, DeviceConfig, Policy, Result};

use crate::bounds::heap::peak_of;

/// The maximum heap memory of an entry's record, its plan and a copy of the record.
const MOST_BYTES: u64 = 64 << 20;

/// The maximum number of requests in a planned entry.
const PLANNED: u64 = 1 << 15;

/// The maximum number of recorded allocations in an entry.
const RECORDED: u64 = 1 << 17;

/// Returns a device with the scope "long", which has this configuration.
fn scope(config: CacheConfig) -> Result<(Device, ScopeHandle)> {
    let device = Device::host_with(DeviceConfig::default())?;
    device.configure_cache("long", config);
    let scope = device.scope("long");
    Ok((device, scope))
}

fn planned() -> CacheConfig {
    CacheConfig {
        policy: Policy::Plan,
        ..Default::default()
    }
}

fn stats(device: &Device) -> CacheStats {
    device.cache_stats("long").unwrap()
}

/// Runs an entry that allocates and drops a buffer `count` times.
fn pairs(device: &Device, scope: &ScopeHandle, count: u64) -> Result<()> {
    let _entry = scope.enter();
    for _ in 0..count {
        Buffer::new(device, 1024)?;
    }
    Ok(())
}

/// Runs an entry of three buffers that are live together, and returns their addresses.
fn short(device: &Device, scope: &ScopeHandle, first_bytes: usize) -> Result<Vec<u64>> {
    let _entry = scope.enter();
    let sizes = [first_bytes, 5000, 70_000];
    let buffers: Result<Vec<Buffer>> = sizes
        .iter()
        .map(|&size| Buffer::new(device, size))
        .collect();
    Ok(buffers?.iter().map(Buffer::address).collect())
}

/// Checks that short entries are planned: the third of three entries follows the plan. A different
/// fourth entry diverges, so a plan exists.
#[track_caller]
fn plans_short_entries(device: &Device, scope: &ScopeHandle) -> Result<()> {
    for _ in 0..2 {
        short(device, scope, 3000)?;
    }
    let before = stats(device);
    let planned = short(device, scope, 3000)?;
    assert_eq!(short(device, scope, 3000)?, planned);
    assert_eq!(stats(device).misses, before.misses);
    assert_eq!(stats(device).divergences, before.divergences);
    short(device, scope, 4000)?;
    assert_eq!(stats(device).divergences, before.divergences + 1);
    Ok(())
}

#[test]
fn ten_million_allocations_are_not_planned() -> Result<()> {
    const COUNT: u64 = 10_000_000;
    let (device, scope) = scope(planned())?;
    let (outcome, peak_bytes) = peak_of(|| pairs(&device, &scope, COUNT));
    outcome?;
    assert!(peak_bytes <= MOST_BYTES, "{peak_bytes} bytes of heap");
    let stats = stats(&device);
    assert_eq!(
        (stats.hits, stats.misses),
        (COUNT - 1, 1),
        "as Recycle serves it"
    );
    assert_eq!(stats.unrecorded, COUNT - PLANNED);
    assert_eq!(device.cache_record("long"), []);
    plans_short_entries(&device, &scope)
}

#[test]
fn ten_million_allocations_are_recorded_up_to_a_number() -> Result<()> {
    const COUNT: u64 = 10_000_000;
    for policy in [Policy::Recycle, Policy::Release, Policy::Plan] {
        let (device, scope) = scope(CacheConfig {
            policy,
            record: true,
            ..Default::default()
        })?;
        // For the other policies, a shorter entry suffices.
        let count = if policy == Policy::Recycle {
            COUNT
        } else {
            3 * RECORDED
        };
        let (outcome, peak_bytes) = peak_of(|| {
            pairs(&device, &scope, count)?;
            let record = device.cache_record("long");
            // While the next record grows, the previous record and a copy are in memory.
            pairs(&device, &scope, count)?;
            Ok(record)
        });
        let record = outcome?;
        assert!(peak_bytes <= MOST_BYTES, "{peak_bytes} bytes of heap");
        assert_eq!(record.len() as u64, RECORDED);
        for (number, allocation) in (0..).zip(&record) {
            let steps = (allocation.allocated_at, allocation.freed_at);
            assert_eq!(steps, (2 * number, Some(2 * number + 1)));
        }
        assert_eq!(stats(&device).unrecorded, 2 * (count - RECORDED));
        let is_kept = policy != Policy::Release;
        assert_eq!(stats(&device).misses, if is_kept { 1 } else { 2 });
    }
    Ok(())
}

#[test]
fn drops_are_noted_after_the_record_is_full() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Bump] {
        let (device, scope) = scope(CacheConfig {
            policy,
            record: true,
            ..Default::default()
        })?;
        let (first, second);
        {
            let _entry = scope.enter();
            first = Buffer::new(&device, 512)?;
            second = Buffer::new(&device, 512)?;
            for _ in 2..RECORDED + 100 {
                Buffer::new(&device, 512)?;
            }
            drop(first);
        }
        let record = device.cache_record("long");
        assert_eq!(record.len() as u64, RECORDED);
        // `first` is dropped after `RECORDED` allocations and `RECORDED - 2` drops.
        assert_eq!(record[0].freed_at, Some(2 * RECORDED - 2), "{policy}");
        assert_eq!(record[1].freed_at, None);
        assert_eq!(stats(&device).unrecorded, 100);
        // In this entry, `another` has the index of the escaped buffer `second`.
        let _entry = scope.enter();
        let (other, another) = (Buffer::new(&device, 512)?, Buffer::new(&device, 512)?);
        drop(second);
        assert_eq!(stats(&device).escaped_blocks, 0);
        drop((other, another));
        assert_eq!(stats(&device).live_blocks, 0);
    }
    Ok(())
}

#[test]
fn blocks_of_a_dropped_record_return_as_usual() -> Result<()> {
    let (device, scope) = scope(planned())?;
    let mut held = Vec::new();
    {
        let _entry = scope.enter();
        for _ in 0..10 {
            held.push(Buffer::new(&device, 512)?);
        }
        for _ in 0..PLANNED {
            Buffer::new(&device, 512)?;
        }
        held.truncate(5);
    }
    assert_eq!(stats(&device).escaped_blocks, 5);
    let _entry = scope.enter();
    let other = Buffer::new(&device, 512)?;
    held.clear();
    drop(other);
    let stats = stats(&device);
    assert_eq!((stats.escaped_blocks, stats.live_blocks), (0, 0));
    assert_eq!(stats.misses, 11, "none is asked for that is there");
    Ok(())
}

/// The record of an entry that is too long is discarded, so later entries are recorded ever less
/// often. After a short entry, the scope plans again.
#[test]
fn entries_that_stay_long_are_seldom_recorded() -> Result<()> {
    let (device, scope) = scope(planned())?;
    for _ in 0..20 {
        pairs(&device, &scope, PLANNED + 1000)?;
    }
    assert_eq!(
        stats(&device).unrecorded,
        5 * 1000,
        "of entries 1, 2, 4, 8 and 16"
    );
    short(&device, &scope, 3000)?;
    plans_short_entries(&device, &scope)
}

#[test]
fn the_longest_entry_that_is_planned() -> Result<()> {
    for (count, is_planned) in [(PLANNED, true), (PLANNED + 1, false)] {
        for record in [false, true] {
            let (device, scope) = scope(CacheConfig {
                record,
                ..planned()
            })?;
            pairs(&device, &scope, count)?;
            let recorded = if is_planned || record { count } else { 0 };
            assert_eq!(device.cache_record("long").len() as u64, recorded);
            pairs(&device, &scope, count)?;
            short(&device, &scope, 3000)?;
            let stats = stats(&device);
            assert_eq!(stats.divergences, u64::from(is_planned), "{count}");
            let is_reported = !is_planned && !record;
            assert_eq!(stats.unrecorded, if is_reported { 2 } else { 0 });
        }
    }
    Ok(())
}

/// The length of an entry that leaves its plan includes the steps that followed the plan.
#[test]
fn an_entry_that_leaves_its_plan_late_is_too_long_as_well() -> Result<()> {
    let (device, scope) = scope(planned())?;
    for _ in 0..2 {
        pairs(&device, &scope, PLANNED - 100)?;
    }
    let (outcome, peak_bytes) = peak_of(|| pairs(&device, &scope, 40 * PLANNED));
    outcome?;
    assert!(peak_bytes <= MOST_BYTES, "{peak_bytes} bytes of heap");
    assert_eq!(stats(&device).divergences, 1);
    assert_eq!(stats(&device).unrecorded, 39 * PLANNED);
    let record = device.cache_record("long");
    assert_eq!(
        record.len() as u64,
        PLANNED - 100,
        "of the entry planned by"
    );
    // The entry diverged after the plan's last step, so the plan remains valid.
    pairs(&device, &scope, PLANNED - 100)?;
    assert_eq!(stats(&device).divergences, 1);
    plans_short_entries(&device, &scope)
}

/// The entries of this test have the maximum planned or recorded length. If they were shorter, one
/// plan would contain several of them.
#[test]
fn all_that_is_kept_of_entries_is_bounded() -> Result<()> {
    let (device, scope) = scope(CacheConfig {
        record: true,
        ..planned()
    })?;
    let window = |size_bytes: usize, count: u64| -> Result<()> {
        let _entry = scope.enter();
        let mut held = VecDeque::new();
        for number in 0..count as usize {
            held.push_back(Buffer::new(&device, size_bytes * (1 + number % 7))?);
            if held.len() > 50 {
                held.pop_front();
            }
        }
        Ok(())
    };
    let (outcome, peak_bytes) = peak_of(|| {
        for size_bytes in [512, 1024, 1536, 2048] {
            window(size_bytes, PLANNED)?;
        }
        window(512, 2 * RECORDED)?;
        let record = device.cache_record("long");
        window(1024, 2 * RECORDED)?;
        Ok(record.len() as u64)
    });
    assert_eq!(outcome?, RECORDED);
    assert!(peak_bytes <= MOST_BYTES, "{peak_bytes} bytes of heap");
    // Only the sequence that was planned last has a plan.
    let before = stats(&device).divergences;
    window(2048, PLANNED)?;
    assert_eq!(stats(&device).divergences, before);
    // The plan has space for smaller requests, but not for larger requests.
    window(512, PLANNED)?;
    assert_eq!(stats(&device).divergences, before);
    window(4096, PLANNED)?;
    assert_eq!(stats(&device).divergences, before + 1);
    Ok(())
}
