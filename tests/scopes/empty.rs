//! Entries without requests, and first requests after such entries.

use std::panic::Location;
use std::thread;

use super::{POLICIES, device, stats};
use cachescope::{Buffer, CacheConfig, Device, Policy, Result, cache_scope, scope};

fn configure(device: &Device, name: &str, policy: Policy) {
    let config = CacheConfig {
        policy,
        ..Default::default()
    };
    device.configure_cache(name, config);
}

#[test]
fn are_counted_however_they_are_entered() {
    for policy in POLICIES {
        let device = device();
        let _current = device.enter();
        configure(&device, "empty", policy);
        let handle = device.scope("empty");
        for _ in 0..200 {
            cache_scope!("empty", {});
            cache_scope!(String::from("empty"), {});
            drop(handle.enter());
        }
        assert_eq!(stats(&device, "empty").entries, 600, "{policy}");
        cache_scope!("empty", {
            assert_eq!(stats(&device, "empty").entries, 601, "{policy}");
        });
        assert_eq!(stats(&device, "empty").entries, 601, "{policy}");
    }
}

#[test]
fn age_idle_blocks() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Bump] {
        let device = device();
        let _current = device.enter();
        let config = CacheConfig {
            policy,
            keep_entries: Some(4),
            ..Default::default()
        };
        device.configure_cache("loop", config);
        cache_scope!("loop", { drop(Buffer::new(&device, 4096)?) });
        assert_ne!(stats(&device, "loop").cached_bytes, 0, "{policy}");
        for _ in 0..12 {
            cache_scope!("loop", {});
        }
        let aged = stats(&device, "loop");
        assert_eq!((aged.entries, aged.cached_bytes), (13, 0), "{policy}");
    }
    Ok(())
}

#[test]
fn leave_the_next_request_a_hit() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Bump, Policy::Plan] {
        let device = device();
        let _current = device.enter();
        configure(&device, "loop", policy);
        for _ in 0..4 {
            for empty in [false, true, true, true] {
                cache_scope!("loop", {
                    if !empty {
                        Buffer::new(&device, 4096)?;
                    }
                });
            }
        }
        let misses = stats(&device, "loop").misses;
        let mut address = 0;
        for turn in 0..12 {
            cache_scope!("loop", {
                if turn % 4 == 3 {
                    let buffer = Buffer::new(&device, 4096)?;
                    assert!(address == 0 || address == buffer.address(), "{policy}");
                    address = buffer.address();
                }
            });
        }
        let last = stats(&device, "loop");
        assert_eq!((last.entries, last.misses), (28, misses), "{policy}");
    }
    Ok(())
}

#[test]
fn take_back_what_is_dropped_in_them() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let kept = cache_scope!("loop", { Buffer::new(&device, 4096)? });
    let address = kept.address();
    for _ in 0..3 {
        cache_scope!("loop", {});
    }
    cache_scope!("loop", { drop(kept) });
    let after = stats(&device, "loop");
    assert_eq!((after.live_blocks, after.escaped_blocks), (0, 0));
    let again = cache_scope!("loop", { Buffer::new(&device, 4096)?.address() });
    assert_eq!((again, stats(&device, "loop").hits), (address, 1));
    Ok(())
}

#[test]
fn hide_the_outer_scope_until_they_end() -> Result<()> {
    let device = device();
    let _current = device.enter();
    cache_scope!("outer", {
        let first = Buffer::new(&device, 4096)?;
        for turn in 0..8 {
            cache_scope!("inner", {
                assert_eq!(scope::current().unwrap().name(), "inner");
                if turn % 4 == 3 {
                    Buffer::new(&device, 4096)?;
                }
            });
        }
        cache_scope!("inner", { drop(first) });
        Buffer::new(&device, 4096)?;
        assert_eq!(scope::current().unwrap().name(), "outer");
    });
    let (outer, inner) = (stats(&device, "outer"), stats(&device, "inner"));
    assert_eq!((outer.entries, outer.hits, outer.misses), (1, 1, 1));
    assert_eq!((inner.entries, inner.hits, inner.misses), (9, 1, 1));
    Ok(())
}

#[test]
fn nested_in_their_own_cache_are_no_entries() {
    let device = device();
    let _current = device.enter();
    for _ in 0..5 {
        cache_scope!("loop", {
            for _ in 0..5 {
                cache_scope!("loop", {});
            }
        });
    }
    assert_eq!(stats(&device, "loop").entries, 5);
}

#[test]
fn a_cache_removed_before_the_first_request_is_another_one() -> Result<()> {
    let device = device();
    let _current = device.enter();
    for turn in 0..4 {
        cache_scope!("loop", {
            if turn == 3 {
                remove_elsewhere(&device);
                Buffer::new(&device, 100)?;
                assert_eq!(scope::current().unwrap().name(), "loop");
            }
        });
    }
    let now = stats(&device, "loop");
    assert_eq!((now.entries, now.misses, now.live_blocks), (1, 1, 0));
    Ok(())
}

#[test]
fn a_cache_removed_meanwhile_is_not_made_again() {
    let device = device();
    let _current = device.enter();
    for turn in 0..4 {
        cache_scope!("loop", {
            if turn == 3 {
                remove_elsewhere(&device);
            }
        });
    }
    assert!(device.cache_stats("loop").is_none());
}

/// Removes the cache on another thread, so that the entry of this thread stays deferred.
fn remove_elsewhere(device: &Device) {
    thread::scope(|threads| {
        threads.spawn(|| device.remove_cache("loop"));
    });
}

#[test]
fn names_that_begin_and_end_alike_are_distinguished() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let name = |layer: usize| format!("a network's layer {layer}, its backward pass");
    for turn in 0..30 {
        for layer in 0..3 {
            cache_scope!(name(layer), {
                assert_eq!(scope::current().unwrap().name(), name(layer));
                if turn % 3 == 2 {
                    Buffer::new(&device, 512 * (layer + 1))?;
                }
            });
        }
    }
    for layer in 0..3 {
        let own = stats(&device, &name(layer));
        assert_eq!((own.entries, own.hits, own.misses), (30, 9, 1), "{layer}");
    }
    Ok(())
}

#[test]
fn guards_out_of_order_are_counted() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let (first, second) = (device.scope("first"), device.scope("second"));
    for _ in 0..3 {
        drop((first.enter(), second.enter()));
    }
    let before = stats(&device, "first").out_of_order_exits;
    let outer = first.enter();
    let inner = second.enter();
    drop(outer);
    Buffer::new(&device, 100)?;
    drop(inner);
    assert!(scope::current().is_none());
    let after = stats(&device, "first");
    assert_eq!(after.out_of_order_exits, before + 1);
    assert_eq!(stats(&device, "second").misses, 1);
    Ok(())
}

#[test]
fn a_guard_keeps_the_device_of_its_handle() -> Result<()> {
    let guard = {
        let device = device();
        let handle = device.scope("kept");
        for _ in 0..3 {
            drop(handle.enter());
        }
        handle.enter()
    };
    let device = Device::current();
    assert_eq!(scope::current().unwrap().device(), &device);
    Buffer::new(&device, 100)?;
    assert_eq!(stats(&device, "kept").misses, 1);
    drop(guard);
    assert_ne!(Device::current(), device);
    Ok(())
}

/// If a `SharedCache` takes over the shard of an ended thread, it serves requests between entries.
#[test]
fn blocks_between_entries_escape_with_the_next_one() {
    let device = device();
    thread::scope(|scope| {
        scope.spawn(|| {
            let handle = device.scope("taken over");
            for _ in 0..8 {
                drop(handle.enter());
            }
        });
    });
    let cache = device.shared_cache("taken over");
    let stream = Default::default();
    let block = match cache.hit(4096, stream) {
        Some(block) => block,
        None => cache.allocate(4096, stream, Location::caller()).unwrap().0,
    };
    assert!(cache.enter());
    let escaped = stats(&device, "taken over").escaped_blocks;
    assert!(escaped <= 1, "{escaped}");
    assert!(block.free().is_none(), "the shard is idle");
    let after = stats(&device, "taken over");
    assert_eq!((after.escaped_blocks, after.live_blocks), (0, 0));
    assert!(cache.exit());
}
