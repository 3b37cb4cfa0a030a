//! The rules of scopes and limits over every pool.

use std::thread;

use cachescope::{
    Array, Buffer, CacheStats, Device, DeviceConfig, FaultPlan, Policy, Result, cache_scope, concat,
};
use under_test::device_with;

use crate::pools::{MIB, POOLS, assert_empty, config, device, limited};

fn stats(device: &Device, name: &str) -> CacheStats {
    device.cache_stats(name).unwrap()
}

#[test]
fn a_scope_serves_a_size_from_what_it_freed_before() -> Result<()> {
    // The lengths are at, below and above units and powers of two.
    for (pool, len) in POOLS
        .into_iter()
        .flat_map(|pool| [1, 512, 513, 3000, 5000, 65_536, 100_000, 3 * MIB].map(|len| (pool, len)))
    {
        let device = device(pool);
        let mut addresses = Vec::new();
        for _ in 0..5 {
            cache_scope!("loop", device = &device, {
                addresses.push(Buffer::new(&device, len)?.address());
            });
        }
        addresses.dedup();
        assert_eq!(addresses.len(), 1, "{pool}, {len} bytes");
        let stats = stats(&device, "loop");
        assert_eq!((stats.hits, stats.misses), (4, 1), "{pool}, {len} bytes");
    }
    Ok(())
}

#[test]
fn a_hundred_temporaries_take_one_block() -> Result<()> {
    for (pool, policy) in POOLS
        .into_iter()
        .flat_map(|pool| [(pool, Policy::Recycle), (pool, Policy::Release)])
    {
        let device = device(pool);
        let _guard = device.enter();
        cache_scope!("loop", policy = policy, {
            for _ in 0..100 {
                Array::<f32>::zeros([1000])?;
            }
            assert_eq!(stats(&device, "loop").cached_blocks, 1, "{pool}");
        });
        let kept = u64::from(policy == Policy::Recycle);
        assert_eq!(stats(&device, "loop").cached_blocks, kept, "{pool}");
        assert_eq!(device.memory_stats().peak_live_bytes, 4000, "{pool}");
    }
    Ok(())
}

#[test]
fn an_escaped_array_keeps_its_contents_and_returns_home() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let _guard = device.enter();
        let escaped = cache_scope!("loop", { Array::<i32>::from_vec(vec![7; 1000], [1000])? });
        let address = escaped.address();
        for value in 0..5 {
            cache_scope!("loop", {
                let other = Array::<i32>::full([1000], value)?;
                assert_ne!(other.address(), address, "{pool}");
            });
        }
        assert_eq!(escaped.to_vec()?, vec![7; 1000], "{pool}");
        assert_eq!(stats(&device, "loop").escaped_blocks, 1, "{pool}");
        thread::spawn(move || drop(escaped)).join().unwrap();
        let stats = stats(&device, "loop");
        assert_eq!(
            (stats.escaped_blocks, stats.cached_blocks),
            (0, 2),
            "{pool}"
        );
        device.invalidate_cache("loop");
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn invalidation_releases_memory_to_the_device() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let live = cache_scope!("loop", device = &device, {
            drop([Buffer::new(&device, 30 * MIB)?, Buffer::new(&device, 700)?]);
            Buffer::new(&device, 40 * MIB)?
        });
        let cached = stats(&device, "loop").cached_bytes;
        let before = device.memory_stats().reserved_bytes;
        let given = device.invalidate_cache("loop");
        assert_eq!((given.blocks, given.bytes), (2, cached), "{pool}");
        let reserved = device.memory_stats().reserved_bytes;
        assert!(reserved <= before - cached, "{pool}: {reserved}");
        drop(live);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn a_limit_holds_at_every_moment_and_idle_blocks_make_room() -> Result<()> {
    for pool in POOLS {
        let device = limited(pool, 64 * MIB);
        for name in ["a", "b", "c"] {
            cache_scope!(name, device = &device, { Buffer::new(&device, 15 * MIB)? });
        }
        cache_scope!("a", device = &device, {
            let large = Buffer::new(&device, 60 * MIB)?;
            assert!(
                Buffer::new(&device, 5 * MIB)
                    .unwrap_err()
                    .is_out_of_memory()
            );
            drop(large);
        });
        // Requests of varied sizes continue until the limit refuses a request.
        let mut live = Vec::new();
        for iteration in 0..2000usize {
            let Ok(buffer) = Buffer::new(&device, 1 + iteration * 7919 % (3 * MIB)) else {
                break;
            };
            live.push(buffer);
        }
        assert!((10..2000).contains(&live.len()), "{pool}: {}", live.len());
        let stats = device.memory_stats();
        assert!(stats.peak_reserved_bytes <= 64 * MIB as u64, "{pool}");
        assert_eq!(stats.live_blocks, live.len() as u64, "{pool}");
        drop(live);
        device.invalidate_all_caches();
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn max_bytes_counts_what_blocks_take() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        cache_scope!("loop", device = &device, max_bytes = 4096, {
            let blocks = [(); 3].map(|()| Buffer::new(&device, 1100).unwrap());
            drop(blocks);
            let stats = stats(&device, "loop");
            assert!((2048..=4096).contains(&stats.cached_bytes), "{pool}");
        });
    }
    Ok(())
}

/// Runs a step with temporaries, an update in place and an escaping array. Returns a known sum.
fn program(device: &Device) -> Result<f64> {
    let _guard = device.enter();
    let mut x = Array::<f32>::full([1000], 2.0)?;
    let mut sum = 0.0;
    for _ in 0..3 {
        let escaped = cache_scope!("step", {
            let y = (&x * 3.0 + 1.0).eval()?;
            let z = concat(&[&x, &y], 0)?;
            x.update(|x| x + 1.0)?;
            (&y + z.slice(cachescope::ndarray::s![..1000])?).eval()?
        });
        sum += f64::from(escaped.mean()?.item()?);
    }
    Ok(sum)
}

#[test]
fn programs_are_right_and_leave_nothing_whatever_fails() {
    for pool in POOLS {
        for nth in 0..10 {
            let fault = (nth > 0).then_some(FaultPlan::From(nth));
            let config = DeviceConfig {
                fault,
                ..config(pool)
            };
            let device = device_with(config).unwrap();
            match program(&device) {
                Ok(sum) => assert_eq!(sum, 9.0 + 13.0 + 17.0, "{pool}, {fault:?}"),
                Err(error) => assert!(fault.is_some() && error.is_out_of_memory(), "{error}"),
            }
            device.invalidate_all_caches();
            device.trim(0);
            assert_empty(&device, pool);
        }
    }
}

#[test]
fn threads_share_a_pool() {
    for pool in POOLS {
        let device = limited(pool, 256 * MIB);
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(program(&device).unwrap(), 39.0, "{pool}");
                    }
                });
            }
        });
        device.invalidate_all_caches();
        device.trim(0);
        assert_empty(&device, pool);
    }
}
