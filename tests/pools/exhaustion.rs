//! Requests that fail after the last rung of the reclaim ladder.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use cachescope::{Buffer, CacheConfig, Policy, PoolKind, Result, cache_scope};

use crate::pools::{MIB, limited};

/// Every second block of a full pool is free, no gap is long enough, and no page is idle.
#[test]
fn a_fragmented_pool_reports_it_and_serves_coalesced_blocks() -> Result<()> {
    let device = limited(PoolKind::BestFit, 64 * MIB);
    let blocks: Result<Vec<_>> = (0..64)
        .map(|_| Buffer::new(&device, MIB).map(Some))
        .collect();
    let mut blocks = blocks?;
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let stats = device.memory_stats();
    assert_eq!(stats.largest_free_block_bytes, MIB as u64);
    assert_eq!(stats.fragmentation(), 1.0 - 1.0 / 32.0);
    let error = Buffer::new(&device, 2 * MIB).unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(error.to_string().contains("1 MiB"), "{error}");
    blocks[1] = None;
    drop(Buffer::new(&device, 2 * MIB)?);
    let rest: Result<Vec<_>> = (0..33).map(|_| Buffer::new(&device, MIB)).collect();
    let rest = rest?;
    assert_eq!(rest.len(), 33);
    assert!(Buffer::new(&device, 1).is_err());
    Ok(())
}

/// A scope that another thread has entered keeps its idle blocks until its exit. The error names
/// the scope's cache.
#[test]
fn a_busy_scope_is_named_and_drains_as_it_is_left() -> Result<()> {
    let device = limited(PoolKind::BestFit, 64 * MIB);
    let (tell, told) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || {
            let guard = device.scope("busy").enter();
            drop(Buffer::new(device, 40 * MIB).unwrap());
            tell.send(()).unwrap();
            wait.recv().unwrap();
            drop(guard);
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        told.recv().unwrap();
        let error = Buffer::new(device, 60 * MIB).unwrap_err().to_string();
        assert!(
            error.contains("busy") && error.contains("40 MiB"),
            "{error}"
        );
        let_go.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(device.cache_stats("busy").unwrap().cached_bytes, 0);
        let outcome = Buffer::new(device, 60 * MIB).map(drop);
        let_go.send(()).unwrap();
        outcome
    })
}

#[test]
fn idle_blocks_of_the_scopes_around_a_request_make_room() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let device = limited(PoolKind::BestFit, 64 * MIB);
        for _ in 0..3 {
            cache_scope!("outer", policy = policy, device = &device, {
                drop(Buffer::new(&device, 10 * MIB)?);
                cache_scope!("inner", policy = policy, device = &device, {
                    drop(Buffer::new(&device, 12 * MIB)?);
                    drop(Buffer::new(&device, 40 * MIB)?);
                });
                if policy != Policy::Bump {
                    drop(Buffer::new(&device, 64 * MIB)?);
                }
            });
        }
    }
    Ok(())
}

#[test]
fn a_callback_is_called_once_and_none_within_another() -> Result<()> {
    let device = limited(PoolKind::BestFit, 32 * MIB);
    let spare = Arc::new(Mutex::new(vec![Buffer::new(&device, 16 * MIB)?]));
    let calls = Arc::new(AtomicUsize::new(0));
    let guard = device.on_memory_pressure({
        let (spare, calls, device) = (Arc::clone(&spare), Arc::clone(&calls), device.clone());
        move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert!(Buffer::new(&device, 20 * MIB).is_err(), "asks nobody");
            assert!(Buffer::new(&device, MIB).is_ok());
            let given = std::mem::take(&mut *spare.lock().unwrap());
            given.iter().map(|buffer| buffer.size_bytes() as u64).sum()
        }
    });
    drop(Buffer::new(&device, 15 * MIB)?);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let whole = Buffer::new(&device, 30 * MIB)?;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(Buffer::new(&device, 30 * MIB).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(guard);
    assert!(Buffer::new(&device, 30 * MIB).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(whole);
    // The panic of a callback unwinds through the request, and the device remains usable.
    let _guard = device.on_memory_pressure(|_| panic!("a callback's own"));
    let request = || Buffer::new(&device, 40 * MIB).map(drop);
    assert!(catch_unwind(request).is_err());
    Buffer::new(&device, 30 * MIB).map(drop)
}

/// A value that a callback owns may panic on drop. The value drops with the callback's guard, or
/// with the device.
#[test]
fn a_callback_that_panics_as_it_drops_is_harmless() -> Result<()> {
    struct Grenade(Arc<AtomicUsize>);
    impl Drop for Grenade {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a callback's destructor");
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let device = limited(PoolKind::BestFit, 32 * MIB);
    let register = || {
        let grenade = Grenade(Arc::clone(&dropped));
        device.on_memory_pressure(move |_| {
            let _owned = &grenade;
            0
        })
    };
    drop(register());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    std::mem::forget(register());
    let last = Buffer::new(&device, MIB)?;
    drop(device);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    drop(last);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    Ok(())
}

fn report(outcome: Result<Buffer>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn a_leak_is_reported_with_the_lines_that_hold_it() -> Result<()> {
    for is_recorded in [false, true] {
        let device = limited(PoolKind::BestFit, 16 * MIB);
        let config = CacheConfig {
            record: is_recorded,
            ..Default::default()
        };
        device.configure_cache("train", config);
        let outside = Buffer::new(&device, 2 * MIB)?;
        let mut kept = Vec::new();
        let mut line;
        let error = loop {
            let step = cache_scope!("train", device = &device, {
                line = line!() + 1;
                Buffer::new(&device, 2 * MIB)
            });
            match step {
                Ok(block) => kept.push(block),
                error => break report(error),
            }
        };
        let leak = format!("\n    of \"train\": {} MiB, ", 2 * kept.len());
        assert!(error.contains(&leak), "{error}");
        assert!(error.contains(", grew by 14 MiB in 7 entries"), "{error}");
        assert!(
            error.contains("\n    outside of every scope: 2 MiB"),
            "{error}"
        );
        assert!(
            error.contains("remedy: the scope \"train\" grows from entry to entry"),
            "{error}"
        );
        let holder = format!("\n      2 MiB in 1 block at {}:{line}:", file!());
        assert_eq!(error.contains(&holder), is_recorded, "{error}");
        assert_eq!(error.contains("record: true"), !is_recorded, "{error}");
        // After the arrays are dropped, the report no longer states that the scope grows.
        kept.clear();
        cache_scope!("train", device = &device, {
            drop(Buffer::new(&device, MIB)?)
        });
        let filling = Buffer::new(&device, 13 * MIB)?;
        let error = report(Buffer::new(&device, 4 * MIB));
        assert!(!error.contains("grew"), "{error}");
        drop((outside, filling));
    }
    Ok(())
}

#[test]
fn the_report_advises_another_policy_for_bump_without_reuse() -> Result<()> {
    let device = limited(PoolKind::BestFit, 16 * MIB);
    let step = || {
        cache_scope!("step", policy = Policy::Bump, device = &device, {
            let _held = Buffer::new(&device, MIB)?;
            (0..6).try_for_each(|_| Buffer::new(&device, 4 * MIB).map(drop))
        })
    };
    let error = step().unwrap_err().to_string();
    assert!(
        error.contains("remedy: under Bump, the scope \"step\" reuses no memory before its exit"),
        "{error}"
    );
    let policy = CacheConfig {
        policy: Policy::Recycle,
        ..Default::default()
    };
    device.configure_cache("step", policy);
    cache_scope!("step", policy = Policy::Recycle, device = &device, {
        (0..6).try_for_each(|_| Buffer::new(&device, 4 * MIB).map(drop))
    })
}

#[test]
fn the_advised_limit_suffices_for_the_whole_entry() -> Result<()> {
    let device = limited(PoolKind::BestFit, 64 * MIB);
    let entry = || {
        cache_scope!("step", device = &device, {
            let first = Buffer::new(&device, 8 * MIB)?;
            let second = Buffer::new(&device, 8 * MIB)?;
            drop((first, second));
            Ok(())
        })
    };
    let first: Result<()> = entry();
    first?;
    let outside = Buffer::new(&device, 10 * MIB)?;
    device.invalidate_cache("step");
    device.set_memory_limit(Some(16 * MIB as u64));
    let refused: Result<()> = entry();
    let error = refused.unwrap_err().to_string();
    // The advised limit is the sum of the 10 MiB outside and the 16 MiB of the entry. The request
    // alone would need 18 MiB.
    assert!(
        error.contains("raise the memory limit to 26 MiB or more, which the largest entry of \"step\" so far took"),
        "{error}"
    );
    device.set_memory_limit(Some(26 * MIB as u64));
    entry()?;
    drop(outside);
    Ok(())
}
