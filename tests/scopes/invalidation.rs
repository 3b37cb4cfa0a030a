//! Rule 7: invalidation and removal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use cachescope::{
    Array, Buffer, CacheConfig, Invalidation, Policy, Result, cache_scope, cache_stats,
    invalidate_cache,
};

use crate::scopes::{MIB, device, stats};

#[test]
fn invalidation_releases_every_idle_block_to_the_device() -> Result<()> {
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
    assert_eq!(device.invalidate_cache("unknown"), Invalidation::default());
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
fn a_removed_cache_is_forgotten_and_may_be_created_again() -> Result<()> {
    let device = device();
    device.configure_cache(
        "loop",
        CacheConfig {
            policy: Policy::Release,
            ..Default::default()
        },
    );
    for iteration in 0..3 {
        cache_scope!("loop", device = &device, { Buffer::new(&device, 100)? });
        assert_eq!(stats(&device, "loop").entries, 1, "iteration {iteration}");
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
        // The second iteration gets its cache from the call site, not by name.
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
    /// A value that ends the removing threads on drop, even if the test fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
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
        let _end = End(&done);
        for _ in 0..500 {
            let mut kept = Vec::new();
            for _ in 0..32 {
                let _scope = device.scope("loop").enter();
                kept.push(Buffer::new(&device, 512).unwrap());
            }
            kept.drain(..31);
            assert_eq!(device.memory_stats().live_blocks, 1, "every shard is known");
        }
    });
    device.invalidate_all_caches();
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}
