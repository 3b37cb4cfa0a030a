//! Memory limits, and memory that is released to stay within the limits.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use cachescope::scope::ScopeGuard;
use cachescope::{
    Array, Buffer, CacheConfig, Device, DeviceConfig, ErrorKind, Policy, PoolKind, Result,
    cache_scope, uncached,
};
use under_test::device_with;

use crate::scopes::{MIB, device, stats};

#[test]
fn what_escaped_and_then_dropped_is_idle_to_trim_and_limit() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release] {
        let device = device();
        let escaped = cache_scope!("loop", policy = policy, device = &device, {
            Buffer::new(&device, 30 * MIB)?
        });
        device.invalidate_cache("loop");
        drop(escaped);
        assert_eq!(device.trim(0), 30 * MIB as u64);
    }
    Ok(())
}

#[test]
fn two_threads_short_of_memory_never_fail_over_what_is_idle() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(48 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let barrier = Barrier::new(2);
    thread::scope(|threads| {
        for name in ["a", "b"] {
            let (device, barrier) = (&device, &barrier);
            threads.spawn(move || {
                for _ in 0..300 {
                    cache_scope!(name, device = device, {
                        drop(Buffer::new(device, 20 * MIB).unwrap())
                    });
                    barrier.wait();
                    let large = Buffer::new(device, 22 * MIB);
                    barrier.wait();
                    drop(large.expect("the other's idle blocks make room"));
                    device.trim(0);
                    barrier.wait();
                }
            });
        }
    });
    Ok(())
}

#[test]
fn callbacks_are_called_last_and_may_drop_arrays() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(16 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let spare = Arc::new(Mutex::new(vec![Buffer::new(&device, 12 * MIB)?]));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kept, note) = (Arc::clone(&spare), Arc::clone(&asked));
    let in_callback = device.clone();
    let guard = device.on_memory_pressure(move |wanted| {
        note.lock().unwrap().push(wanted);
        // An allocation in the callback that does not fit fails without calling the callback again.
        assert!(
            Buffer::new(&in_callback, 14 * MIB)
                .unwrap_err()
                .is_out_of_memory()
        );
        kept.lock()
            .unwrap()
            .drain(..)
            .map(|buffer| buffer.size_bytes() as u64)
            .sum()
    });
    drop(Buffer::new(&device, 3 * MIB)?);
    assert!(asked.lock().unwrap().is_empty(), "there was room");
    drop(Buffer::new(&device, 8 * MIB)?);
    assert_eq!(*asked.lock().unwrap(), [8 * MIB as u64]);

    let live = Buffer::new(&device, 10 * MIB)?;
    assert!(
        Buffer::new(&device, 10 * MIB)
            .unwrap_err()
            .is_out_of_memory()
    );
    assert_eq!(
        asked.lock().unwrap().len(),
        2,
        "asked, and had nothing to give"
    );
    drop(guard);
    assert!(
        Buffer::new(&device, 10 * MIB)
            .unwrap_err()
            .is_out_of_memory()
    );
    assert_eq!(asked.lock().unwrap().len(), 2, "the guard is gone");
    drop(live);
    Ok(())
}

#[test]
fn a_callback_that_allocates_again_and_again_is_called_once() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(16 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let calls = Arc::new(Mutex::new(0));
    let (count, in_callback) = (Arc::clone(&calls), device.clone());
    let _guard = device.on_memory_pressure(move |_| {
        *count.lock().unwrap() += 1;
        assert_eq!(*count.lock().unwrap() % 2, 1, "called within itself");
        for _ in 0..3 {
            assert!(Buffer::new(&in_callback, 20 * MIB).is_err());
        }
        *count.lock().unwrap() += 1;
        0
    });
    for requests in 1..=3 {
        assert!(Buffer::new(&device, 20 * MIB).is_err());
        assert_eq!(*calls.lock().unwrap(), 2 * requests);
    }
    Ok(())
}

#[test]
fn idle_blocks_of_other_scopes_make_room_under_a_limit() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(64 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    for name in ["a", "b", "c"] {
        cache_scope!(name, device = &device, { Buffer::new(&device, 20 * MIB)? });
    }
    // The idle blocks of the entered scope do not fit the request either.
    cache_scope!("a", device = &device, {
        let large = Buffer::new(&device, 60 * MIB)?;
        assert_eq!(device.memory_stats().live_bytes, 60 * MIB as u64);
        drop(large);
    });
    Ok(())
}

#[test]
fn the_least_recently_used_cache_is_reclaimed_first() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(64 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    for name in ["old", "new"] {
        cache_scope!(name, device = &device, { Buffer::new(&device, 30 * MIB)? });
    }
    drop(Buffer::new(&device, 20 * MIB)?);
    assert_eq!(stats(&device, "old").cached_blocks, 0);
    assert_eq!(stats(&device, "new").cached_blocks, 1);
    Ok(())
}

#[test]
fn caches_that_are_entered_meanwhile_do_not_disturb_the_order() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(4 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let live = Buffer::new(&device, 3 * MIB)?;
    let (all_entered, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| {
            let scopes: Vec<_> = (0..2000).map(|n| device.scope(&n.to_string())).collect();
            while !done.load(Ordering::Relaxed) {
                for scope in &scopes {
                    let _scope = scope.enter();
                    drop(uncached!(Buffer::new(&device, 100).unwrap()));
                }
                all_entered.store(true, Ordering::Relaxed);
            }
        });
        while !all_entered.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        for _ in 0..100 {
            let refused = catch_unwind(|| Buffer::new(&device, 2 * MIB).unwrap_err());
            done.store(refused.is_err(), Ordering::Relaxed);
            assert!(refused.unwrap().is_out_of_memory());
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(live);
    Ok(())
}

#[test]
fn the_report_names_the_request_and_the_holders() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(8 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let live = Buffer::new(&device, 6 * MIB)?;
    let error = cache_scope!("step", device = &device, {
        Buffer::new(&device, 4 * MIB).unwrap_err()
    });
    let text = error.to_string();
    for part in [
        &device.to_string(),
        "\"step\"",
        "requested 4 MiB",
        "8 MiB",
        "live",
        "6 MiB",
        "remedy",
        "10 MiB or more",
    ] {
        assert!(text.contains(part), "{part:?} is missing from:\n{text}");
    }
    assert_eq!(device.memory_stats().out_of_memory, 1);
    drop(live);
    Buffer::new(&device, 4 * MIB)?;
    Ok(())
}

#[test]
fn max_bytes_bounds_what_a_cache_owns() -> Result<()> {
    let device = device();
    let limited = CacheConfig {
        max_bytes: Some(4 * MIB as u64),
        ..Default::default()
    };
    device.configure_cache("loop", limited);
    cache_scope!("loop", device = &device, {
        let inside = Buffer::new(&device, 3 * MIB)?;
        let beyond = Buffer::new(&device, 2 * MIB)?;
        assert_eq!(stats(&device, "loop").live_bytes, 3 * MIB as u64);
        drop((inside, beyond));
        assert_eq!(stats(&device, "loop").cached_bytes, 3 * MIB as u64);
        drop(Buffer::new(&device, 5 * MIB)?);
        assert_eq!(
            stats(&device, "loop").cached_bytes,
            3 * MIB as u64,
            "it cannot fit anyway"
        );
        drop(Buffer::new(&device, 4 * MIB)?);
        assert_eq!(
            stats(&device, "loop").cached_bytes,
            4 * MIB as u64,
            "idle blocks made room"
        );
    });
    cache_scope!("none", device = &device, max_bytes = 0, {
        Buffer::new(&device, 1)?
    });
    let none = stats(&device, "none");
    assert_eq!((none.cached_blocks, none.hits, none.misses), (0, 0, 1));
    Ok(())
}

#[test]
fn recycled_blocks_are_overwritten_if_configured() -> Result<()> {
    let config = DeviceConfig {
        fill_recycled: Some(0xAB),
        ..Default::default()
    };
    let device = device_with(config)?;
    let _guard = device.enter();
    for _ in 0..2 {
        cache_scope!("loop", {
            assert_eq!(Array::<i32>::zeros([100])?.to_vec()?, vec![0; 100]);
            assert_eq!(Array::<i32>::full([100], 9)?.to_vec()?, vec![9; 100]);
        });
    }
    Ok(())
}

#[test]
fn peaks_count_live_bytes_of_several_scopes() -> Result<()> {
    let device = device();
    let kept = Buffer::new(&device, 10 * MIB)?;
    for name in ["a", "b"] {
        cache_scope!(name, device = &device, {
            let outer = Buffer::new(&device, 20 * MIB)?;
            cache_scope!("inner", { drop(Buffer::new(&device, 5 * MIB)?) });
            drop(outer);
        });
    }
    assert_eq!(device.memory_stats().peak_live_bytes, 35 * MIB as u64);
    device.reset_peaks();
    assert_eq!(device.memory_stats().peak_live_bytes, 10 * MIB as u64);
    drop(kept);
    assert_eq!(device.memory_stats().live_bytes, 0);
    device.reset_peaks();
    cache_scope!("a", device = &device, {
        drop(Buffer::new(&device, 20 * MIB)?)
    });
    assert_eq!(device.memory_stats().peak_live_bytes, 20 * MIB as u64);
    Ok(())
}

#[test]
fn the_largest_request_that_there_can_be_is_refused() {
    for pool in [PoolKind::BestFit, PoolKind::Binned, PoolKind::Direct] {
        let config = DeviceConfig {
            pool,
            ..Default::default()
        };
        let device = device_with(config).unwrap();
        for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
            for bytes in [isize::MAX as usize, isize::MAX as usize / 2 + 2] {
                cache_scope!("large", policy = policy, device = &device, {
                    let _small = Buffer::new(&device, 1000).unwrap();
                    let error = Buffer::new(&device, bytes).unwrap_err();
                    let kinds = [ErrorKind::OutOfMemory, ErrorKind::InvalidShape];
                    assert!(kinds.contains(&error.kind()), "{error}");
                    drop(Buffer::new(&device, 2000).unwrap());
                });
            }
        }
    }
}

thread_local! {
    static HELD: RefCell<Option<ScopeGuard>> = const { RefCell::new(None) };
}

/// The callback's action on the scope of the request.
#[derive(Clone, Copy)]
enum Meanwhile {
    Leave,
    EnterAgain(Policy),
}

/// Exits a scope while a request in it reclaims memory for an arena. With `EnterAgain`, also enters
/// the scope again.
fn leave_under_pressure(meanwhile: Meanwhile) -> Result<()> {
    let set_policy = |device: &Device, policy| {
        let config = CacheConfig {
            policy,
            ..Default::default()
        };
        device.configure_cache("left", config);
    };
    let device = device_with(DeviceConfig {
        memory_limit: Some(64 * MIB as u64),
        ..Default::default()
    })?;
    set_policy(&device, Policy::Bump);
    let scope = device.scope("left");
    let spare = Mutex::new(Some(Buffer::new(&device, 60 * MIB)?));
    let inside = device.clone();
    let guard = device.on_memory_pressure(move |_| {
        let given = spare.lock().unwrap().take();
        let bytes = given.map_or(0, |buffer| buffer.size_bytes() as u64);
        HELD.take();
        if let Meanwhile::EnterAgain(policy) = meanwhile {
            set_policy(&inside, policy);
            let scope = inside.scope("left");
            {
                let _scope = scope.enter();
                drop(Buffer::new(&inside, 16 * MIB).unwrap());
                drop(Buffer::new(&inside, 20 * MIB).unwrap());
            }
            inside.invalidate_cache("left");
            HELD.set(Some(scope.enter()));
        }
        bytes
    });
    let guarded = device.enter(); // This guard is below the scope in the stack.
    HELD.set(Some(scope.enter()));
    let first = Array::full([8 * MIB], 1u8)?;
    HELD.take();
    drop(guard);
    device.set_memory_limit(None);
    for _ in 0..3 {
        let _scope = scope.enter();
        let large = Array::full([16 * MIB], 2u8)?;
        let others = uncached!({ [Array::full([8 * MIB], 3u8)?, Array::full([8 * MIB], 4u8)?] });
        assert!(first.to_vec()?.iter().all(|byte| *byte == 1));
        assert!(large.to_vec()?.iter().all(|byte| *byte == 2));
        drop((large, others));
        drop(Buffer::new(&device, 20 * MIB)?);
    }
    drop((first, guarded));
    device.invalidate_cache("left");
    device.trim(0);
    assert_eq!(device.memory_stats().reserved_bytes, 0, "nothing is lost");
    Ok(())
}

#[test]
fn a_scope_may_be_left_and_changed_while_memory_is_found_for_it() -> Result<()> {
    leave_under_pressure(Meanwhile::Leave)?;
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        leave_under_pressure(Meanwhile::EnterAgain(policy))?;
    }
    Ok(())
}
