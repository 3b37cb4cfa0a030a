//! Properties that hold under every policy.

use cachescope::{Array, Buffer, DeviceConfig, Policy, PoolKind, Result, cache_scope};
use under_test::device_with;

use crate::scopes::{MIB, POLICIES, device, stats};

fn all_are(array: &Array<u32>, value: u32) -> Result<bool> {
    Ok(array.to_vec()?.iter().all(|element| *element == value))
}

#[test]
fn what_escapes_outlives_invalidation_and_removal() -> Result<()> {
    for policy in POLICIES {
        let device = device_with(DeviceConfig {
            fill_recycled: Some(0xCD),
            ..Default::default()
        })?;
        let _device = device.enter();
        let mut kept = Vec::new();
        for iteration in 0..10 {
            cache_scope!("loop", policy = policy, {
                let a = Array::full([1000], iteration)?;
                let b = (&a * 10).eval()?;
                if iteration % 3 == 0 {
                    kept.push((iteration * 10, b));
                }
            });
            let escaped = stats(&device, "loop").escaped_blocks as usize;
            assert_eq!(escaped, kept.len(), "{policy}");
        }
        let check = || -> Result<()> {
            for (value, array) in &kept {
                assert!(all_are(array, *value)?, "{policy}");
            }
            Ok(())
        };
        check()?;
        device.invalidate_cache("loop");
        cache_scope!("loop", policy = policy, { Array::full([1000], 7u32)? });
        check()?;
        device.remove_cache("loop");
        assert_eq!(device.cache_stats("loop"), None);
        check()?;
        drop(kept);
        device.trim(0);
        assert_eq!(device.memory_stats().reserved_bytes, 0, "{policy}");
    }
    Ok(())
}

#[test]
fn an_entry_of_the_same_name_inside_takes_nothing_that_lives() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        let _device = device.enter();
        for _ in 0..5 {
            cache_scope!("loop", policy = policy, {
                let a = Array::full([1000], 1u32)?;
                let b = cache_scope!("loop", policy = policy, {
                    let c = Array::full([1000], 2u32)?;
                    (&c + &a).eval()?
                });
                let d = Array::full([1000], 4u32)?;
                cache_scope!("loop", { Array::full([5000], 9u32)? });
                let intact = all_are(&a, 1)? && all_are(&b, 3)? && all_are(&d, 4)?;
                assert!(intact, "{policy}");
            });
        }
        let stats = stats(&device, "loop");
        assert_eq!((stats.entries, stats.escaped_blocks), (5, 0), "{policy}");
    }
    Ok(())
}

#[test]
fn threads_add_up_and_leave_nothing() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        let work = |worker: u32| -> Result<()> {
            let _device = device.enter();
            for iteration in 0..200 {
                let value = worker * 1000 + iteration;
                cache_scope!("loop", policy = policy, {
                    let a = Array::full([300], value)?;
                    let b = (&a + 1).eval()?;
                    assert!(all_are(&b, value + 1)?, "{policy}");
                    std::thread::scope(|scope| scope.spawn(move || drop(a)).join().unwrap());
                });
            }
            Ok(())
        };
        let work = &work;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap())
        })?;
        let stats = stats(&device, "loop");
        assert_eq!(
            (stats.entries, stats.hits + stats.misses),
            (600, 1200),
            "{policy}"
        );
        device.invalidate_cache("loop");
        device.trim(0);
        assert_eq!(device.memory_stats().reserved_bytes, 0, "{policy}");
    }
    Ok(())
}

#[test]
fn max_bytes_holds_at_every_moment() -> Result<()> {
    let limit_bytes = 4 * MIB as u64;
    for policy in POLICIES {
        let device = device();
        let owned = || {
            let stats = stats(&device, "loop");
            stats.live_bytes + stats.cached_bytes
        };
        for _ in 0..4 {
            cache_scope!(
                "loop",
                policy = policy,
                max_bytes = limit_bytes,
                device = &device,
                {
                    let mut held = Vec::new();
                    for _ in 0..8 {
                        held.push(Buffer::new(&device, MIB)?);
                        assert!(owned() <= limit_bytes, "{policy}");
                    }
                }
            );
            assert!(owned() <= limit_bytes, "{policy}");
        }
    }
    Ok(())
}

/// Within entries, live and cached bytes are at most the allocated bytes. The allocated bytes and
/// the largest free block are at most the reserved bytes. No two blocks overlap.
#[test]
fn the_figures_of_memory_agree_at_every_moment() -> Result<()> {
    for pool in [PoolKind::BestFit, PoolKind::Binned, PoolKind::Direct] {
        for policy in POLICIES {
            let device = device_with(DeviceConfig {
                pool,
                ..Default::default()
            })?;
            let mut random = 88_172_645_463_325_252u64;
            let mut live: Vec<Buffer> = Vec::new();
            for iteration in 0..40 {
                cache_scope!("loop", policy = policy, device = &device, {
                    for _ in 0..20 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        if random.is_multiple_of(3) && !live.is_empty() {
                            live.swap_remove((random >> 8) as usize % live.len());
                            continue;
                        }
                        let block = Buffer::new(&device, 1 + (random % 3_000_000) as usize)?;
                        let end = |block: &Buffer| block.address() + block.size_bytes() as u64;
                        let apart = |other: &Buffer| {
                            other.address() >= end(&block) || block.address() >= end(other)
                        };
                        assert!(live.iter().all(apart), "{pool} {policy}");
                        live.push(block);
                    }
                    let stats = device.memory_stats();
                    let sum = live.iter().map(|block| block.size_bytes() as u64).sum();
                    assert_eq!(
                        (stats.live_blocks, stats.live_bytes),
                        (live.len() as u64, sum)
                    );
                    assert!(stats.live_bytes + stats.cached_bytes <= stats.allocated_bytes);
                    assert!(
                        stats.allocated_bytes + stats.largest_free_block_bytes
                            <= stats.reserved_bytes
                    );
                    assert!((0.0..=1.0).contains(&stats.fragmentation()));
                });
                if iteration % 9 == 0 {
                    device.invalidate_cache("loop");
                }
                if iteration % 5 == 0 {
                    live.clear();
                }
            }
            drop(live);
            device.invalidate_all_caches();
            device.trim(0);
            let stats = device.memory_stats();
            assert_eq!(
                (stats.reserved_bytes, stats.segments),
                (0, 0),
                "{pool} {policy}"
            );
            assert_eq!(stats.reserves, stats.releases, "{pool} {policy}");
        }
    }
    Ok(())
}

/// The statistics count an arena as one idle block. An invalidation releases exactly the blocks and
/// bytes that the statistics report.
#[test]
fn idle_blocks_are_counted_as_they_are_released() -> Result<()> {
    for policy in POLICIES {
        let device = device();
        let iteration = |count: usize| -> Result<()> {
            cache_scope!("loop", policy = policy, device = &device, {
                let _all: Vec<Buffer> = (0..count)
                    .map(|index| Buffer::new(&device, (index + 1) * MIB))
                    .collect::<Result<_>>()?;
            });
            Ok(())
        };
        for iterations in 1..5 {
            for _ in 0..iterations {
                iteration(3)?;
                let stats = stats(&device, "loop");
                assert_eq!(
                    stats.cached_blocks == 0,
                    stats.cached_bytes == 0,
                    "{policy}"
                );
            }
            let before = stats(&device, "loop");
            let given = device.invalidate_cache("loop");
            assert_eq!(
                (given.blocks as u64, given.bytes),
                (before.cached_blocks, before.cached_bytes),
                "{policy}, after {iterations} iterations"
            );
        }
        for _ in 0..3 {
            iteration(3)?;
        }
        let expected = match policy {
            Policy::Release => 0,
            Policy::Bump | Policy::Plan => 1,
            _ => 3,
        };
        assert_eq!(stats(&device, "loop").cached_blocks, expected, "{policy}");
    }
    Ok(())
}
