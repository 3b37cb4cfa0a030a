//! Changes to a scope while it is entered: to its settings, to its blocks, and to the cache itself.

use std::sync::mpsc;
use std::thread;

use cachescope::{Array, Buffer, CacheConfig, Device, Policy, Result, cache_scope};

use crate::scopes::{MIB, POLICIES, device, stats};

fn set(device: &Device, policy: Policy) {
    let config = CacheConfig {
        policy,
        ..Default::default()
    };
    device.configure_cache("loop", config);
}

/// The observed behaviour of an entry, which shows its policy.
#[derive(Debug, PartialEq)]
struct Observed {
    /// True if a block is reused within the entry.
    reuses: bool,
    /// True if idle memory remains after the exit.
    keeps: bool,
    /// True if the entry was recorded.
    records: bool,
}

impl Observed {
    fn of(policy: Policy) -> Self {
        let (reuses, keeps, records) = match policy {
            Policy::Bump => (false, true, false),
            Policy::Release => (true, false, false),
            // Plan releases the blocks of the recorded entry, so that the slab fits.
            Policy::Plan => (true, false, true),
            _ => (true, true, false),
        };
        Self {
            reuses,
            keeps,
            records,
        }
    }
}

/// Runs an entry that allocates `bytes` before and after `meanwhile`.
fn observe(device: &Device, bytes: usize, meanwhile: impl FnOnce()) -> Result<Observed> {
    let address = || Buffer::new(device, bytes).map(|buffer| buffer.address());
    let reuses = cache_scope!("loop", device = device, {
        let first = address()?;
        meanwhile();
        // This entry is nested, so it does not apply the new settings.
        let second = cache_scope!("loop", device = device, { address()? });
        let third = address()?;
        assert_eq!(first == second, first == third);
        first == third
    });
    let record = device.cache_record("loop");
    Ok(Observed {
        reuses,
        keeps: stats(device, "loop").cached_bytes > 0,
        records: record
            .first()
            .is_some_and(|first| first.bytes == bytes as u64),
    })
}

#[test]
fn a_new_policy_takes_effect_at_the_next_outermost_entry_for_every_pair() -> Result<()> {
    for before in POLICIES {
        for after in POLICIES {
            let device = device();
            set(&device, before);
            let first = observe(&device, 4000, || set(&device, after))?;
            assert_eq!(first, Observed::of(before), "{before}, not {after} yet");
            // The size is new, so no plan fits it.
            let second = observe(&device, 5000, || {})?;
            assert_eq!(second, Observed::of(after), "{after} after {before}");
            device.invalidate_cache("loop");
            assert_eq!(device.memory_stats().allocated_bytes, 0);
        }
    }
    Ok(())
}

#[test]
fn arrays_of_an_entry_live_through_every_change_of_policy() -> Result<()> {
    for before in POLICIES {
        for after in POLICIES {
            let device = device();
            let _device = device.enter();
            set(&device, before);
            for iteration in 0..4u32 {
                let escaped = cache_scope!("loop", {
                    let first = Array::full([3000], iteration)?;
                    set(&device, after);
                    cache_scope!("loop", { drop(Array::full([3000], 99u32)?) });
                    let second = Array::full([3000], iteration + 10)?;
                    assert_eq!(first.to_vec()?, [iteration; 3000]);
                    second
                });
                set(&device, before);
                cache_scope!("loop", { drop(Array::full([3000], 98u32)?) });
                set(&device, after);
                cache_scope!("loop", { drop(Array::full([3000], 97u32)?) });
                assert_eq!(
                    escaped.to_vec()?,
                    [iteration + 10; 3000],
                    "{before}, {after}"
                );
            }
            device.invalidate_cache("loop");
            assert_eq!(
                device.memory_stats().allocated_bytes,
                0,
                "{before}, {after}"
            );
        }
    }
    Ok(())
}

#[test]
fn under_max_bytes_of_0_nothing_is_cached() -> Result<()> {
    for policy in POLICIES {
        for by_option in [true, false] {
            let device = device();
            let _device = device.enter();
            let config = CacheConfig {
                policy,
                max_bytes: Some(0),
                ..Default::default()
            };
            if !by_option {
                device.configure_cache("none", config);
            }
            let iteration = || -> Result<Array<u32>> {
                let body = || -> Result<_> {
                    let first = Array::full([3000], 1u32)?;
                    let second = (&first + 1).eval()?;
                    let stats = stats(&device, "none");
                    assert_eq!((stats.live_blocks, stats.cached_blocks), (0, 0), "{policy}");
                    assert_eq!(first.to_vec()?, [1; 3000]);
                    Ok(second)
                };
                if by_option {
                    cache_scope!("none", policy = policy, max_bytes = 0, { body() })
                } else {
                    cache_scope!("none", { body() })
                }
            };
            let mut escaped = Vec::new();
            for iterations in 1..=4 {
                escaped.push(iteration()?);
                let stats = stats(&device, "none");
                assert_eq!((stats.hits, stats.misses), (0, 2 * iterations), "{policy}");
                assert_eq!(
                    (stats.cached_bytes, stats.escaped_blocks),
                    (0, 0),
                    "{policy}"
                );
                assert_eq!(device.memory_stats().live_blocks, iterations, "{policy}");
            }
            assert!(
                escaped
                    .iter()
                    .all(|array| array.to_vec().unwrap() == [2; 3000])
            );
            drop(escaped);
            assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
            // With a bound above 0, the cache serves requests again.
            let bounded = CacheConfig {
                max_bytes: Some(8 * MIB as u64),
                ..config
            };
            device.configure_cache("none", bounded);
            for _ in 0..3 {
                cache_scope!("none", { drop(Buffer::new(&device, 4000)?) });
            }
            assert!(stats(&device, "none").peak_live_bytes >= 4000, "{policy}");
        }
    }
    Ok(())
}

/// A value that invalidates or removes the cache on drop.
struct Gives<'a>(&'a Device, fn(&Device, &str) -> cachescope::Invalidation);

impl Drop for Gives<'_> {
    fn drop(&mut self) {
        (self.1)(self.0, "loop");
    }
}

const WAYS: [fn(&Device, &str) -> cachescope::Invalidation; 2] =
    [Device::invalidate_cache, Device::remove_cache];

#[test]
fn a_destructor_inside_a_scope_may_take_its_cache() -> Result<()> {
    for policy in POLICIES {
        for give in WAYS {
            let device = device();
            let _device = device.enter();
            for iteration in 0..6u32 {
                let kept = cache_scope!("loop", policy = policy, {
                    let kept = Array::full([3000], iteration)?;
                    {
                        let _gives = Gives(&device, give);
                        drop(Array::full([2000], 98u32)?);
                    }
                    drop(Array::full([3000], 97u32)?);
                    let _at_the_end = Gives(&device, give);
                    let dropped_before_that = Array::full([3000], 96u32)?;
                    assert_eq!(kept.to_vec()?, [iteration; 3000], "{policy}");
                    assert_eq!(dropped_before_that.to_vec()?, [96; 3000], "{policy}");
                    kept
                });
                cache_scope!("loop", policy = policy, {
                    drop(Array::full([3000], 95u32)?)
                });
                assert_eq!(kept.to_vec()?, [iteration; 3000], "{policy}");
            }
            give(&device, "loop");
            assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
        }
    }
    Ok(())
}

/// The exit drops the last handle of a device, and thereby the device's callback. The destructor of
/// a value in the callback invalidates and removes the cache of the exited scope.
#[test]
fn a_destructor_that_the_exit_runs_may_take_its_cache() -> Result<()> {
    struct Owns(Device);
    impl Drop for Owns {
        fn drop(&mut self) {
            for give in WAYS {
                give(&self.0, "loop");
                cache_scope!("loop", device = &self.0, {
                    drop(Buffer::new(&self.0, 4000).unwrap());
                });
            }
        }
    }
    for policy in POLICIES {
        let device = device();
        for _ in 0..3 {
            let outer = device.scope("loop");
            cache_scope!("loop", policy = policy, device = &device, {
                let live = Array::full([3000], 5u32)?;
                let other = crate::scopes::device();
                let owned = Owns(device.clone());
                let callback = other.on_memory_pressure(move |_| {
                    let _keeps = &owned;
                    0
                });
                let guard = other.scope("other").enter();
                drop(Buffer::new(&other, 4000)?);
                drop(other);
                let _again = outer.enter();
                // The guard of `other` is below `_again` in the stack, so it is exited together
                // with `_again`.
                drop(guard);
                drop(_again);
                drop(callback);
                assert_eq!(live.to_vec()?, [5; 3000], "{policy}");
                drop(Array::full([3000], 6u32)?);
                assert_eq!(live.to_vec()?, [5; 3000], "{policy}");
            });
        }
        device.invalidate_all_caches();
        assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
    }
    Ok(())
}

#[test]
fn another_thread_may_take_a_cache_that_is_entered() -> Result<()> {
    for policy in POLICIES {
        for give in WAYS {
            let device = device();
            let _device = device.enter();
            let (ask, asked) = mpsc::channel::<()>();
            let (given, wait) = mpsc::channel();
            let in_thread = device.clone();
            let other = thread::spawn(move || {
                for () in asked {
                    given.send(give(&in_thread, "loop").blocks).unwrap();
                }
            });
            for iteration in 0..5u32 {
                let kept = cache_scope!("loop", policy = policy, {
                    let kept = Array::full([3000], iteration)?;
                    let idle = [Array::full([2000], 99u32)?, Array::full([3000], 98u32)?];
                    drop(idle);
                    ask.send(()).unwrap();
                    assert_eq!(wait.recv().unwrap(), 0, "somebody is inside");
                    assert_eq!(kept.to_vec()?, [iteration; 3000], "{policy}");
                    kept
                });
                assert_eq!(device.memory_stats().live_blocks, 1, "{policy}");
                assert_eq!(kept.to_vec()?, [iteration; 3000], "{policy}");
                drop(kept);
                let left = device.memory_stats().allocated_bytes;
                assert_eq!(left, 0, "all was given back: {policy}");
            }
            drop(ask);
            other.join().unwrap();
            assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
        }
    }
    Ok(())
}
