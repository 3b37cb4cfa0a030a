//! Panics through nested scopes, and destructors that use scopes while a panic unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use cachescope::{Array, Buffer, Device, Policy, Result, cache_scope, scope};

use crate::scopes::{POLICIES, device, stats};

fn current() -> Option<String> {
    scope::current().map(|handle| handle.name().to_owned())
}

/// Checks that the caches have no live blocks, and that each cache serves requests from its idle
/// blocks.
fn assert_serves_on(device: &Device, policy: Policy, names: &[&str]) -> Result<()> {
    assert_eq!(current(), None, "every entry was left");
    for name in names {
        let before = stats(device, name);
        assert_eq!(
            (before.live_blocks, before.escaped_blocks),
            (0, 0),
            "{name}"
        );
        for _ in 0..3 {
            cache_scope!(name, policy = policy, device = device, {
                assert_eq!(current().as_deref(), Some(*name));
                drop(Buffer::new(device, 4000)?);
            });
        }
        let after = stats(device, name);
        assert_eq!(after.entries, before.entries + 3, "{name}");
        let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
        assert_eq!(hits + misses, 3, "{name}");
        assert!(
            hits >= 1 || policy == Policy::Release,
            "{name} under {policy}"
        );
    }
    device.invalidate_all_caches();
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn a_panic_in_a_nested_scope_leaves_both_bindings_right() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        cache_scope!("outer", policy = policy, device = &device, {
            let kept = Array::full([500], 7)?;
            let unwound = catch_unwind(|| {
                cache_scope!("inner", policy = policy, {
                    let _live = Buffer::new(&device, 4000).unwrap();
                    cache_scope!("outer", {
                        let _live = Buffer::new(&device, 4000).unwrap();
                        panic!("on purpose");
                    });
                });
            });
            assert!(unwound.is_err());
            assert_eq!(current().as_deref(), Some("outer"));
            assert_eq!(stats(&device, "inner").live_blocks, 0, "{policy}");
            let before = stats(&device, "outer");
            assert_eq!(before.live_blocks, 1, "{policy}");
            let _next = Buffer::new(&device, 4000)?;
            assert_eq!(stats(&device, "outer").live_blocks, 2, "{policy}");
            assert_eq!(kept.to_vec()?, [7; 500]);
        });
        assert_serves_on(&device, policy, &["outer", "inner"])?;
    }
    Ok(())
}

/// A value that allocates in scopes and invalidates caches on drop, while a panic unwinds.
struct CleansUp<'a> {
    device: &'a Device,
    policy: Policy,
    around: Option<&'a str>,
}

impl Drop for CleansUp<'_> {
    fn drop(&mut self) {
        assert!(thread::panicking());
        assert_eq!(current().as_deref(), self.around);
        for _ in 0..3 {
            cache_scope!("cleanup", policy = self.policy, device = self.device, {
                let live = Array::full([300], 5).unwrap();
                drop(Array::full([400], 6).unwrap());
                self.device.invalidate_cache("cleanup");
                self.device.invalidate_cache("loop");
                drop(Array::full([300], 7).unwrap());
                assert_eq!(live.to_vec().unwrap(), [5; 300]);
            });
            assert_eq!(current().as_deref(), self.around);
        }
    }
}

#[test]
fn scopes_work_in_destructors_that_a_panic_runs() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        let unwound = catch_unwind(|| {
            let _outside = CleansUp {
                device: &device,
                policy,
                around: None,
            };
            cache_scope!("loop", policy = policy, device = &device, {
                let _live = Buffer::new(&device, 4000).unwrap();
                let _inside = CleansUp {
                    device: &device,
                    policy,
                    around: Some("loop"),
                };
                let _dropped_before_that = Buffer::new(&device, 4000).unwrap();
                panic!("on purpose");
            });
        });
        assert!(unwound.is_err());
        assert_eq!(stats(&device, "cleanup").entries, 6);
        assert_serves_on(&device, policy, &["loop", "cleanup"])?;
    }
    Ok(())
}

/// A value that catches another panic on drop, while a panic unwinds.
struct PanicsInside<'a>(&'a Device, Policy);

impl Drop for PanicsInside<'_> {
    fn drop(&mut self) {
        let Self(device, policy) = *self;
        let before = current();
        let inner = catch_unwind(AssertUnwindSafe(|| {
            cache_scope!("loop", policy = policy, device = device, {
                let _live = Buffer::new(device, 4000).unwrap();
                cache_scope!("inside", policy = policy, device = device, {
                    let _live = Buffer::new(device, 4000).unwrap();
                    panic!("on purpose, in a destructor");
                });
            });
        }));
        assert!(inner.is_err() && thread::panicking());
        assert_eq!(current(), before);
    }
}

#[test]
fn a_panic_that_is_caught_while_another_unwinds_leaves_its_scopes() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        let unwound = catch_unwind(|| {
            let _outside = PanicsInside(&device, policy);
            cache_scope!("loop", policy = policy, device = &device, {
                let _live = Buffer::new(&device, 4000).unwrap();
                let _inside = PanicsInside(&device, policy);
                panic!("on purpose");
            });
        });
        assert!(unwound.is_err());
        assert_eq!(stats(&device, "inside").entries, 2);
        assert_serves_on(&device, policy, &["loop", "inside"])?;
    }
    Ok(())
}
