//! Guards that are passed to `mem::forget` or dropped in any order, and scopes during the
//! destruction of a thread's locals.

use std::cell::RefCell;
use std::thread;

use cachescope::scope::ScopeGuard;
use cachescope::{Array, Buffer, Device, Policy, Result, cache_scope, scope, uncached};

use crate::scopes::{POLICIES, device, stats};

fn current() -> Option<String> {
    scope::current().map(|handle| handle.name().to_owned())
}

/// Returns all permutations of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let shorter = orders(last).into_iter();
    shorter
        .flat_map(|order| {
            (0..count).map(move |place| {
                let mut longer = order.clone();
                longer.insert(place, last);
                longer
            })
        })
        .collect()
}

#[test]
fn guards_may_be_dropped_in_every_order() -> Result<()> {
    // The first and the last guard enter the same scope.
    let names = ["a", "b", "c", "a"];
    for policy in POLICIES {
        let device = device();
        for name in names {
            cache_scope!(name, policy = policy, device = &device, {});
        }
        for order in orders(names.len()) {
            let mut guards = names.map(|name| Some(device.scope(name).enter()));
            for dropped in &order {
                guards[*dropped] = None;
                let innermost = guards.iter().rposition(Option::is_some);
                assert_eq!(current().as_deref(), innermost.map(|index| names[index]));
                let Some(innermost) = innermost else { continue };
                let before = stats(&device, names[innermost]);
                let _live = Array::full([200], 3)?;
                let after = stats(&device, names[innermost]);
                assert_eq!(after.live_blocks, before.live_blocks + 1, "{order:?}");
            }
            for name in names {
                let stats = stats(&device, name);
                assert_eq!(
                    (stats.live_blocks, stats.escaped_blocks),
                    (0, 0),
                    "{order:?}"
                );
            }
        }
        device.invalidate_all_caches();
        assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
    }
    Ok(())
}

#[test]
fn a_forgotten_guard_binds_to_the_end_of_its_thread() {
    for policy in POLICIES {
        let device = device();
        let in_thread = device.clone();
        let worker = thread::spawn(move || -> Result<()> {
            let device = in_thread;
            {
                let _below = device.scope("below").enter();
                cache_scope!("forgotten", policy = policy, device = &device, {});
                std::mem::forget(device.scope("forgotten").enter());
            }
            for _ in 0..5 {
                assert_eq!(current().as_deref(), Some("forgotten"));
                drop(Buffer::new(&device, 1000)?);
                cache_scope!("above", policy = policy, device = &device, {
                    drop(Buffer::new(&device, 1000)?);
                    // The scope "below" is below the forgotten scope in the stack, so it is still
                    // entered.
                    cache_scope!("below", device = &device, {
                        drop(Buffer::new(&device, 1000)?)
                    });
                });
            }
            assert_eq!(stats(&device, "below").entries, 1);
            assert_eq!(stats(&device, "above").entries, 5);
            device.invalidate_cache("forgotten");
            let live = Array::full([100], 1)?;
            device.remove_cache("forgotten");
            assert_eq!(live.to_vec()?, [1; 100]);
            Ok(())
        });
        worker.join().unwrap().unwrap();
        let stats = device.memory_stats();
        assert_eq!(stats.live_blocks, 0);
        device.invalidate_all_caches();
        assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
        drop(device);
    }
}

/// A thread-local whose destructor drops arrays of a scope, and enters scopes.
struct Last {
    kept: Vec<Array<u32>>,
    forgotten: Vec<ScopeGuard>,
    work: Option<(Device, Policy)>,
}

impl Drop for Last {
    fn drop(&mut self) {
        for array in self.kept.drain(..) {
            assert_eq!(array.to_vec().unwrap(), [9; 700]);
        }
        let Some((device, policy)) = self.work.take() else {
            return;
        };
        for _ in 0..3 {
            cache_scope!("last", policy = policy, device = &device, {
                let live = Array::full([700], 8u32).unwrap();
                device.invalidate_cache("loop");
                let bypasses = uncached!(Array::full([700], 7u32).unwrap());
                let _named = device.scope("loop").enter();
                drop(Buffer::new(&device, 4000).unwrap());
                assert_eq!(live.to_vec().unwrap(), [8; 700]);
                assert_eq!(bypasses.to_vec().unwrap(), [7; 700]);
            });
        }
        self.forgotten.clear();
    }
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { kept: Vec::new(), forgotten: Vec::new(), work: None })
    };
}

/// Runs a thread that uses `LAST`. If `before`, `LAST` is destroyed before the library's
/// thread-locals, otherwise after them.
fn end_with(device: &Device, policy: Policy, before: bool) -> Result<()> {
    let device = device.clone();
    let ended = thread::spawn(move || -> Result<()> {
        if !before {
            LAST.with_borrow_mut(|last| last.kept.clear());
        }
        let _current = device.enter();
        cache_scope!("loop", policy = policy, { drop(Array::full([700], 1u32)?) });
        let inside = device.scope("loop").enter();
        let kept = vec![Array::full([700], 9u32)?, Array::full([700], 9u32)?];
        let outside = uncached!(Array::full([700], 9u32)?);
        LAST.with_borrow_mut(|last| {
            last.kept = kept;
            last.kept.push(outside);
            last.forgotten.push(inside);
            last.work = Some((device.clone(), policy));
        });
        Ok(())
    });
    ended.join().unwrap()
}

#[test]
fn scopes_and_arrays_in_the_last_moments_of_a_thread() -> Result<()> {
    for policy in POLICIES {
        for before in [true, false] {
            let device = device();
            for iteration in 1..=3 {
                end_with(&device, policy, before)?;
                let stats = device.memory_stats();
                assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0), "{policy}");
                let entries = device.cache_stats("last").map_or(0, |last| last.entries);
                assert_eq!(entries, if before { 3 * iteration } else { 0 }, "{policy}");
            }
            device.invalidate_all_caches();
            assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
            device.trim(0);
            assert_eq!(device.memory_stats().reserved_bytes, 0, "{policy}");
        }
    }
    Ok(())
}

#[test]
fn a_thread_that_first_meets_this_crate_in_its_last_moments() -> Result<()> {
    let device = device();
    let in_thread = device.clone();
    let ended = thread::spawn(move || {
        LAST.with_borrow_mut(|last| last.work = Some((in_thread, Policy::Recycle)));
    });
    ended.join().unwrap();
    assert_eq!(stats(&device, "last").entries, 3);
    assert_eq!(device.memory_stats().live_blocks, 0);
    device.invalidate_all_caches();
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}
