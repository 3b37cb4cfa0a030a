//! Scope semantics, line by line, as the contract numbers them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use cachescope::{
    Array, Buffer, CacheConfig, Device, DeviceConfig, ErrorKind, Policy, Result, cache_scope,
    cache_stats, invalidate_cache, scope, uncached,
};

const MIB: usize = 1 << 20;

fn device() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

fn stats(device: &Device, name: &str) -> cachescope::CacheStats {
    device.cache_stats(name).unwrap()
}

// 1

#[test]
fn the_first_use_of_a_size_misses_and_the_second_hits_the_same_address() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    cache_scope!("loop", {
        let first = Array::<f32>::zeros([1, 2, 3])?.address();
        assert_eq!(
            (stats(&device, "loop").hits, stats(&device, "loop").misses),
            (0, 1)
        );
        let second = Array::<i32>::zeros([3, 2, 1])?.address();
        assert_eq!(first, second, "the key is bytes");
        assert_eq!(
            (stats(&device, "loop").hits, stats(&device, "loop").misses),
            (1, 1)
        );
    });
    Ok(())
}

#[test]
fn later_entries_find_what_earlier_ones_left() -> Result<()> {
    let device = device();
    let mut addresses = Vec::new();
    for _ in 0..5 {
        let address = cache_scope!("loop", device = &device, {
            Buffer::new(&device, 5000)?.address()
        });
        addresses.push(address);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1);
    let stats = stats(&device, "loop");
    assert_eq!((stats.entries, stats.hits, stats.misses), (5, 4, 1));
    Ok(())
}

// 2

#[test]
fn a_hundred_temporaries_take_one_block() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release] {
        let device = device();
        let _guard = device.enter();
        cache_scope!("loop", policy = policy, {
            for _ in 0..100 {
                Array::<f32>::zeros([MIB])?;
            }
            let stats = stats(&device, "loop");
            assert_eq!((stats.cached_blocks, stats.live_blocks), (1, 0));
            assert_eq!(stats.peak_live_bytes, 4 * MIB as u64);
        });
        assert_eq!(device.memory_stats().peak_live_bytes, 4 * MIB as u64);
    }
    Ok(())
}

// 3

#[test]
fn an_escaped_array_keeps_its_contents_and_is_never_aliased() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let escaped = cache_scope!("loop", { Array::<i32>::from_vec(vec![7; 1000], [1000])? });
    assert_eq!(stats(&device, "loop").escaped_blocks, 1);
    for value in 0..10 {
        cache_scope!("loop", {
            let other = Array::<i32>::full([1000], value)?;
            assert_ne!(other.address(), escaped.address());
        });
        device.invalidate_cache("loop");
    }
    assert_eq!(escaped.to_vec()?, vec![7; 1000]);
    assert_eq!(stats(&device, "loop").escaped_blocks, 1);
    drop(escaped);
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.escaped_blocks, stats.live_blocks, stats.cached_blocks),
        (0, 0, 0)
    );
    Ok(())
}

#[test]
fn an_escaped_array_goes_home_when_it_drops() -> Result<()> {
    let device = device();
    let escaped = cache_scope!("loop", device = &device, { Buffer::new(&device, 3000)? });
    let address = escaped.address();
    drop(escaped);
    assert_eq!(stats(&device, "loop").cached_blocks, 1);
    let again = cache_scope!("loop", device = &device, {
        Buffer::new(&device, 3000)?.address()
    });
    assert_eq!(again, address);
    Ok(())
}

#[test]
fn an_escaped_array_goes_to_the_pool_once_its_cache_is_invalidated_or_removed() -> Result<()> {
    let device = device();
    for forget in [Device::invalidate_cache, Device::remove_cache] {
        let escaped = cache_scope!("loop", device = &device, { Buffer::new(&device, 3000)? });
        assert_eq!(forget(&device, "loop").blocks, 0, "it is not idle");
        drop(escaped);
        assert_eq!(device.memory_stats().allocated_bytes, 0);
        assert!(device.trim(0) > 0);
    }
    Ok(())
}

#[test]
fn an_array_outlives_the_thread_whose_scope_made_it() -> Result<()> {
    let device = device();
    let in_thread = device.clone();
    let escaped = thread::spawn(move || -> Result<Array<u8>> {
        let _guard = in_thread.enter();
        cache_scope!("loop", { Array::full([500], 3) })
    })
    .join()
    .unwrap()?;
    assert_eq!(escaped.to_vec()?, vec![3; 500]);
    drop(escaped);
    assert_eq!(stats(&device, "loop").cached_blocks, 1);
    Ok(())
}

#[test]
fn release_gives_everything_idle_back_at_the_exit() -> Result<()> {
    let device = device();
    let escaped = cache_scope!("loop", policy = Policy::Release, device = &device, {
        drop([Buffer::new(&device, 1000)?, Buffer::new(&device, MIB)?]);
        assert_eq!(stats(&device, "loop").cached_blocks, 2);
        Buffer::new(&device, 1000)?
    });
    assert_eq!(stats(&device, "loop").cached_blocks, 0);
    assert_eq!(device.memory_stats().allocated_bytes, 1024, "what escaped");
    drop(escaped);
    assert_eq!(
        device.memory_stats().allocated_bytes,
        0,
        "and then that too"
    );
    Ok(())
}

// 4

#[test]
fn an_inner_scope_binds_and_the_outer_one_is_bound_again() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let misses = |name| device.cache_stats(name).map_or(0, |stats| stats.misses);
    cache_scope!("outer", {
        Array::<u8>::zeros([10])?;
        cache_scope!("inner", {
            Array::<u8>::zeros([10])?;
        });
        assert_eq!((misses("outer"), misses("inner")), (1, 1));
        Array::<u8>::zeros([10])?;
        assert_eq!(stats(&device, "outer").hits, 1);
    });
    Array::<u8>::zeros([10])?;
    assert_eq!((misses("outer"), misses("inner")), (1, 1));
    Ok(())
}

#[test]
fn the_same_name_inside_itself_is_one_scope() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release] {
        let device = device();
        let _guard = device.enter();
        cache_scope!("loop", policy = policy, {
            let outer = Array::<u8>::full([100], 1)?;
            let inner = cache_scope!("loop", {
                Array::<u8>::zeros([100])?;
                Array::<u8>::full([100], 2)?
            });
            assert_eq!(
                stats(&device, "loop").escaped_blocks,
                0,
                "still inside the outermost"
            );
            let third = Array::<u8>::full([100], 3)?;
            assert_eq!(
                (outer.to_vec()?[0], inner.to_vec()?[0], third.to_vec()?[0]),
                (1, 2, 3)
            );
        });
        assert_eq!(stats(&device, "loop").entries, 1);
    }
    Ok(())
}

// 5

#[test]
fn uncached_allocations_belong_to_no_cache() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    cache_scope!("loop", {
        let outside = uncached!({ Array::<u8>::zeros([10])? });
        let too = uncached!(Array::<u8>::zeros([10])?);
        assert_eq!(stats(&device, "loop").live_blocks, 0);
        assert!(uncached!(scope::current()).is_none());
        uncached!({
            cache_scope!("loop", {
                let inside = Array::<u8>::zeros([10])?;
                assert_eq!(stats(&device, "loop").live_blocks, 1);
                drop(inside);
            });
        });
        drop((outside, too));
        assert_eq!(stats(&device, "loop").cached_blocks, 1);
    });
    Ok(())
}

// 6

fn leave(device: &Device, how: u32) -> Result<u32> {
    for turn in 0.. {
        cache_scope!("exits", device = device, {
            Buffer::new(device, 100)?;
            match how {
                0 => return Ok(turn),
                1 => break,
                2 if turn == 0 => continue,
                2 => return Ok(turn),
                3 => {
                    Buffer::new(device, usize::MAX)?;
                }
                _ => panic!("on purpose"),
            }
        });
    }
    Ok(99)
}

#[test]
fn exit_runs_however_the_block_is_left() {
    let device = device();
    assert_eq!(leave(&device, 0).unwrap(), 0);
    assert_eq!(leave(&device, 1).unwrap(), 99);
    assert_eq!(leave(&device, 2).unwrap(), 1);
    assert_eq!(
        leave(&device, 3).unwrap_err().kind(),
        ErrorKind::InvalidShape
    );
    assert!(catch_unwind(AssertUnwindSafe(|| leave(&device, 4))).is_err());
    assert!(scope::current().is_none(), "every entry was left");
    let stats = stats(&device, "exits");
    assert_eq!(
        (stats.entries, stats.misses, stats.hits),
        (6, 1, 5),
        "and the cache serves on"
    );
}

// 7

#[test]
fn invalidation_gives_every_idle_block_back_to_the_device() -> Result<()> {
    let device = device();
    let live = cache_scope!("loop", device = &device, {
        drop([Buffer::new(&device, 30 * MIB)?, Buffer::new(&device, 700)?]);
        Buffer::new(&device, 40 * MIB)?
    });
    let cached = stats(&device, "loop").cached_bytes;
    let before = device.memory_stats().reserved_bytes;
    let given = device.invalidate_cache("loop");
    assert_eq!((given.blocks, given.bytes), (2, cached));
    assert!(device.memory_stats().reserved_bytes <= before - cached);
    assert_eq!(device.memory_stats().live_bytes, 40 * MIB as u64);
    drop(live);

    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.entries, stats.misses),
        (1, 3),
        "the counters live on"
    );
    assert_eq!(
        device.invalidate_cache("unknown"),
        cachescope::Invalidation::default()
    );
    assert!(device.cache_stats("unknown").is_none());
    Ok(())
}

#[test]
fn invalidation_from_inside_drains_at_once() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    cache_scope!("loop", {
        let live = Array::<u8>::full([1000], 5)?;
        Array::<u8>::zeros([5000])?;
        assert_eq!(invalidate_cache("loop").blocks, 1);
        assert_eq!(live.to_vec()?, vec![5; 1000]);
        drop(live);
        assert_eq!(
            cache_stats("loop").unwrap().cached_blocks,
            0,
            "it goes to the pool"
        );
        drop(Array::<u8>::zeros([1000])?);
        assert_eq!(
            cache_stats("loop").unwrap().cached_blocks,
            1,
            "new blocks are cached again"
        );
    });
    Ok(())
}

#[test]
fn a_shard_in_use_by_another_thread_drains_at_its_exit() -> Result<()> {
    let device = device();
    let (inside, wait_inside) = mpsc::channel();
    let (leave, wait_leave) = mpsc::channel::<()>();
    let in_thread = device.clone();
    let worker = thread::spawn(move || {
        cache_scope!("loop", device = &in_thread, {
            drop(Buffer::new(&in_thread, 5000).unwrap());
            inside.send(()).unwrap();
            wait_leave.recv().unwrap();
        });
    });
    wait_inside.recv().unwrap();
    assert_eq!(
        device.invalidate_cache("loop").blocks,
        0,
        "somebody is inside"
    );
    assert_eq!(stats(&device, "loop").cached_blocks, 1);
    leave.send(()).unwrap();
    worker.join().unwrap();
    assert_eq!(stats(&device, "loop").cached_blocks, 0);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn a_removed_cache_is_forgotten_and_may_come_again() -> Result<()> {
    let device = device();
    device.configure_cache(
        "loop",
        CacheConfig {
            policy: Policy::Release,
            ..Default::default()
        },
    );
    for turn in 0..3 {
        cache_scope!("loop", device = &device, { Buffer::new(&device, 100)? });
        assert_eq!(stats(&device, "loop").entries, 1, "turn {turn}");
        device.remove_cache("loop");
        assert!(device.cache_stats("loop").is_none());
    }
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn a_cache_removed_from_inside_serves_on_and_then_ends() -> Result<()> {
    let device = device();
    for _ in 0..3 {
        cache_scope!("loop", device = &device, {
            Buffer::new(&device, 100)?;
            device.remove_cache("loop");
            Buffer::new(&device, 100)?;
        });
        assert_eq!(device.memory_stats().allocated_bytes, 0);
    }
    Ok(())
}

#[test]
fn a_cache_removed_from_inside_is_another_one_when_entered_again() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    for _ in 0..2 {
        // The second turn finds its way by the memo of its call site.
        cache_scope!("loop", {
            device.remove_cache("loop");
            cache_scope!("loop", { drop(Buffer::new(&device, 100)?) });
            assert_eq!(stats(&device, "loop").entries, 1);
        });
    }
    Ok(())
}

#[test]
fn removal_races_with_entering() -> Result<()> {
    let device = device();
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    device.remove_cache("loop");
                }
            });
        }
        for _ in 0..500 {
            let mut kept = Vec::new();
            for _ in 0..32 {
                let _scope = device.scope("loop").enter();
                kept.push(Buffer::new(&device, 512).unwrap());
            }
            kept.drain(..31);
            assert_eq!(device.memory_stats().live_blocks, 1, "every shard is known");
        }
        done.store(true, Ordering::Relaxed);
    });
    device.invalidate_all_caches();
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

// 8

#[test]
fn two_threads_in_one_name_have_their_own_blocks_and_common_statistics() -> Result<()> {
    let device = device();
    let barrier = &Barrier::new(2);
    let addresses: Vec<u64> = thread::scope(|threads| {
        let device = &device;
        let workers: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(move || {
                    cache_scope!("loop", device = device, {
                        let address = Buffer::new(device, 4000).unwrap().address();
                        barrier.wait(); // both inside at once
                        assert_eq!(Buffer::new(device, 4000).unwrap().address(), address);
                        barrier.wait();
                        address
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_ne!(addresses[0], addresses[1]);
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.entries, stats.misses, stats.hits, stats.cached_blocks),
        (2, 2, 2, 2)
    );
    Ok(())
}

#[test]
fn an_array_dropped_on_another_thread_goes_home() -> Result<()> {
    let device = device();
    cache_scope!("loop", device = &device, {
        let buffer = Buffer::new(&device, 4000)?;
        let address = buffer.address();
        thread::spawn(move || drop(buffer)).join().unwrap();
        assert_eq!(Buffer::new(&device, 4000)?.address(), address);
    });
    assert_eq!(stats(&device, "loop").misses, 1);
    Ok(())
}

#[test]
fn a_thread_that_ends_leaves_nothing_stranded() -> Result<()> {
    let device = device();
    for _ in 0..8 {
        let in_thread = device.clone();
        thread::spawn(move || {
            cache_scope!("loop", device = &in_thread, {
                drop(Buffer::new(&in_thread, MIB).unwrap());
            });
        })
        .join()
        .unwrap();
    }
    let stats = stats(&device, "loop");
    assert_eq!((stats.entries, stats.hits + stats.misses), (8, 8));
    assert_eq!(
        stats.cached_blocks, stats.misses,
        "found again, or idle: {stats:?}"
    );
    assert_eq!(
        device.invalidate_cache("loop").blocks as u64,
        stats.cached_blocks
    );
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn an_array_kept_by_a_thread_local_goes_home_in_the_last_moments_of_its_thread() -> Result<()> {
    thread_local!(static KEPT: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) });
    let device = device();
    let in_thread = device.clone();
    thread::spawn(move || {
        // Made before anything of this crate, so that it is dropped after all of it.
        KEPT.with_borrow_mut(Vec::clear);
        std::mem::forget(in_thread.scope("loop").enter());
        KEPT.with_borrow_mut(|kept| kept.push(Buffer::new(&in_thread, 4000).unwrap()));
    })
    .join()
    .unwrap();
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.live_blocks, stats.cached_blocks, stats.escaped_blocks),
        (0, 1, 0)
    );
    Ok(())
}

// 9

#[test]
fn the_same_name_on_two_devices_is_two_caches() -> Result<()> {
    let (one, two) = (device(), device());
    cache_scope!("loop", device = &one, {
        assert_eq!(Device::current(), one);
        cache_scope!("loop", device = &two, {
            assert_eq!(Device::current(), two);
            drop(Buffer::new(&two, 100)?);
            drop(Buffer::new(&one, 100)?); // the nearest enclosing scope of that device
        });
        assert_eq!(Device::current(), one);
    });
    assert_eq!(
        (
            stats(&one, "loop").cached_blocks,
            stats(&two, "loop").cached_blocks
        ),
        (1, 1)
    );
    one.invalidate_cache("loop");
    assert_eq!(
        (
            stats(&one, "loop").cached_blocks,
            stats(&two, "loop").cached_blocks
        ),
        (0, 1)
    );
    Ok(())
}

#[test]
fn an_allocation_on_a_device_without_a_scope_belongs_to_none() -> Result<()> {
    let (one, two) = (device(), device());
    cache_scope!("loop", device = &one, {
        drop(Buffer::new(&two, 100)?);
        let _guard = two.enter();
        drop(Array::<u8>::zeros([100])?);
    });
    assert_eq!(stats(&one, "loop").misses, 0);
    assert_eq!(two.memory_stats().cached_bytes, 0);
    Ok(())
}

// 10

#[test]
fn a_scope_does_not_pass_to_threads_but_its_handle_does() {
    let device = device();
    cache_scope!("loop", device = &device, {
        let handle = scope::current().unwrap();
        assert_eq!((handle.name(), handle.device()), ("loop", &device));
        thread::spawn(move || {
            assert!(scope::current().is_none());
            let _guard = handle.enter();
            assert_eq!(Device::current(), *handle.device());
            drop(Array::<u8>::zeros([100]).unwrap());
        })
        .join()
        .unwrap();
    });
    assert_eq!(stats(&device, "loop").misses, 1);
}

#[test]
fn guards_dropped_out_of_order_unbind_when_they_reach_the_top() -> Result<()> {
    let device = device();
    let name = || scope::current().map(|handle| handle.name().to_owned());
    let outer = device.scope("outer").enter();
    let inner = device.scope("inner").enter();
    drop(outer);
    assert_eq!(name().as_deref(), Some("inner"));
    drop(Buffer::new(&device, 100)?);
    drop(inner);
    assert_eq!(name(), None);
    assert_eq!(stats(&device, "inner").cached_blocks, 1);
    Ok(())
}

// 11

#[test]
fn arrays_of_nothing_allocate_nothing() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let before = device.memory_stats();
    let empty = Array::<f64>::zeros([0, 5])?;
    let buffer = Buffer::new(&device, 0)?;
    assert_eq!(device.memory_stats(), before);
    assert_eq!(
        (empty.device(), buffer.device(), buffer.size_bytes()),
        (&device, &device, 0)
    );
    cache_scope!("loop", {
        drop(Array::<u8>::zeros([1])?); // idle, and not to be taken for nothing
        drop(Array::<u8>::zeros([0])?);
    });
    let stats = stats(&device, "loop");
    assert_eq!((stats.hits, stats.misses, stats.cached_blocks), (0, 1, 1));
    Ok(())
}

#[test]
fn a_size_that_overflows_is_an_invalid_shape() {
    for error in [
        Array::<f64>::zeros([usize::MAX / 4, 2]).unwrap_err(),
        Array::<u8>::zeros([usize::MAX, usize::MAX]).unwrap_err(),
        Buffer::new(&Device::host(), usize::MAX).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidShape, "{error}");
    }
}

#[test]
fn arrays_outlive_every_handle_of_their_device() -> Result<()> {
    let (escaped, plain) = {
        let device = device();
        let _guard = device.enter();
        (
            cache_scope!("loop", { Array::<i16>::full([50], -3)? }),
            Array::<i16>::full([50], 4)?,
        )
    };
    assert_eq!(escaped.to_vec()?, vec![-3; 50]);
    assert_eq!(escaped.device(), plain.device());
    let device = plain.device().clone();
    assert_eq!(device.memory_stats().live_blocks, 2);
    drop((escaped, plain));
    assert_eq!(device.memory_stats().live_blocks, 0);
    Ok(())
}

/// An array whose device has no handle left, from inside a scope or from outside of all.
fn last_of_its_device(len: usize, cached: bool) -> Array<f32> {
    let device = device();
    let _guard = device.enter();
    if cached {
        cache_scope!("loop", { Array::full([len], 2.0).unwrap() })
    } else {
        Array::full([len], 2.0).unwrap()
    }
}

#[test]
fn an_array_that_outlived_its_device_is_computed_with_as_any_other() -> Result<()> {
    for (len, cached) in [(10, true), (10, false), (0, true), (0, false)] {
        let expected = vec![3.0; len];

        let first = last_of_its_device(len, cached);
        let second = (&first + 1.0).eval()?;
        drop(first);
        assert_eq!(second.to_vec()?, expected);
        let third = second.lazy().eval()?;
        drop(second);
        assert_eq!(third.to_vec()?, expected);
        drop(third);

        let first = last_of_its_device(len, cached);
        let mut shared = first.clone();
        shared.update(|x| x + 1.0)?;
        drop(first);
        assert_eq!(shared.to_vec()?, expected);

        let moved = shared
            .to_device(&Device::host())?
            .to_device(shared.device())?;
        drop(shared);
        assert_eq!(moved.to_vec()?, expected);
        cache_scope!("loop", device = moved.device(), {
            assert_eq!(Array::<f32>::full([len], 3.0)?.to_vec()?, expected);
        });
        assert_eq!(moved.to_vec()?, expected);
    }
    Ok(())
}

#[test]
fn threads_compute_with_an_array_that_outlived_its_device() {
    for cached in [true, false] {
        let array = last_of_its_device(1000, cached);
        thread::scope(|threads| {
            for _ in 0..4 {
                let own = array.clone();
                threads.spawn(move || {
                    let mut own = own;
                    for _ in 0..200 {
                        own = (&own + 0.0).eval().unwrap();
                        let _scope = own.device().scope("again").enter();
                        drop(Array::<f32>::full([100], 1.0).unwrap());
                    }
                    assert_eq!(own.to_vec().unwrap(), vec![2.0; 1000]);
                });
            }
            drop(array);
        });
    }
}

#[test]
fn a_scope_entered_in_the_last_moments_of_a_thread_binds_nothing() {
    struct Late(Option<Device>);
    impl Drop for Late {
        fn drop(&mut self) {
            let Some(device) = self.0.take() else { return };
            cache_scope!("late", device = &device, {
                drop(Buffer::new(&device, 100).unwrap());
            });
            let _scope = device.scope("late").enter();
            drop(Buffer::new(&device, 100).unwrap());
            assert!(scope::current().is_none());
        }
    }
    thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });
    let device = device();
    let in_thread = device.clone();
    let ended = thread::spawn(move || {
        // Touched before this crate's own thread-locals, so that it is dropped after them.
        LATE.with_borrow_mut(|late| late.0 = None);
        cache_scope!("early", device = &in_thread, {
            drop(Buffer::new(&in_thread, 100).unwrap())
        });
        LATE.with_borrow_mut(|late| late.0 = Some(in_thread));
    });
    ended.join().unwrap();
    assert_eq!(device.memory_stats().live_blocks, 0);
    assert!(device.cache_stats("late").is_none(), "nothing was bound");
}

// Limits

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
    let device = Device::host_with(config)?;
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
fn callbacks_are_asked_last_and_may_give_arrays_back() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(16 * MIB as u64),
        ..Default::default()
    };
    let device = Device::host_with(config)?;
    let spare = Arc::new(Mutex::new(vec![Buffer::new(&device, 12 * MIB)?]));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kept, note) = (Arc::clone(&spare), Arc::clone(&asked));
    let in_callback = device.clone();
    let guard = device.on_memory_pressure(move |wanted| {
        note.lock().unwrap().push(wanted);
        // An allocation in here that does not fit comes back with an error, and not to us.
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
fn idle_blocks_of_other_scopes_make_room_under_a_limit() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(64 * MIB as u64),
        ..Default::default()
    };
    let device = Device::host_with(config)?;
    for name in ["a", "b", "c"] {
        cache_scope!(name, device = &device, { Buffer::new(&device, 20 * MIB)? });
    }
    // Inside a scope with idle blocks of its own that do not fit the request either.
    cache_scope!("a", device = &device, {
        let large = Buffer::new(&device, 60 * MIB)?;
        assert_eq!(device.memory_stats().live_bytes, 60 * MIB as u64);
        drop(large);
    });
    Ok(())
}

#[test]
fn the_least_recently_used_cache_gives_first() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(64 * MIB as u64),
        ..Default::default()
    };
    let device = Device::host_with(config)?;
    for name in ["old", "new"] {
        cache_scope!(name, device = &device, { Buffer::new(&device, 30 * MIB)? });
    }
    drop(Buffer::new(&device, 20 * MIB)?);
    assert_eq!(stats(&device, "old").cached_blocks, 0);
    assert_eq!(stats(&device, "new").cached_blocks, 1);
    Ok(())
}

#[test]
fn the_report_says_who_asked_and_who_holds_what() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(8 * MIB as u64),
        ..Default::default()
    };
    let device = Device::host_with(config)?;
    let live = Buffer::new(&device, 6 * MIB)?;
    let error = cache_scope!("step", device = &device, {
        Buffer::new(&device, 4 * MIB).unwrap_err()
    });
    let text = error.to_string();
    for part in [
        "host",
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
    assert_eq!(stats(&device, "none").cached_blocks, 0);
    Ok(())
}

#[test]
fn recycled_blocks_are_overwritten_where_a_test_asks_for_it() -> Result<()> {
    let config = DeviceConfig {
        fill_recycled: Some(0xAB),
        ..Default::default()
    };
    let device = Device::host_with(config)?;
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
fn peaks_follow_what_is_live_over_several_scopes() -> Result<()> {
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
