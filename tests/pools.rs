//! The rules of scopes and limits that must hold over every pool, and what each promises of its own.

use std::thread;

use cachescope::{
    Array, Buffer, CacheStats, Device, DeviceConfig, ErrorKind, FaultPlan, Policy, PoolKind,
    Result, cache_scope, concat,
};

const MIB: usize = 1 << 20;

/// Those that the host has.
const POOLS: [PoolKind; 3] = [PoolKind::BestFit, PoolKind::Binned, PoolKind::Direct];

fn config(pool: PoolKind) -> DeviceConfig {
    DeviceConfig {
        pool,
        fill_recycled: Some(0xFF),
        ..Default::default()
    }
}

fn device(pool: PoolKind) -> Device {
    Device::host_with(config(pool)).unwrap()
}

fn limited(pool: PoolKind, limit_bytes: usize) -> Device {
    let config = DeviceConfig {
        memory_limit: Some(limit_bytes as u64),
        ..config(pool)
    };
    Device::host_with(config).unwrap()
}

fn stats(device: &Device, name: &str) -> CacheStats {
    device.cache_stats(name).unwrap()
}

/// Nothing is alive, cached, handed out or held.
fn assert_empty(device: &Device, pool: PoolKind) {
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0), "{pool}");
    assert_eq!(
        (stats.cached_bytes, stats.allocated_bytes),
        (0, 0),
        "{pool}"
    );
    assert_eq!((stats.reserved_bytes, stats.segments), (0, 0), "{pool}");
    assert_eq!(stats.reserves, stats.releases, "{pool}");
    assert_eq!(stats.fragmentation(), 0.0, "{pool}");
}

#[test]
fn a_scope_serves_a_size_from_what_it_freed_before() -> Result<()> {
    // Lengths at, below and above units and powers of two.
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
fn what_escapes_keeps_its_contents_and_goes_home() -> Result<()> {
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
fn invalidation_gives_memory_back_to_the_device() -> Result<()> {
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
        // Sizes of every kind, until the limit refuses.
        let mut live = Vec::new();
        for turn in 0..2000usize {
            let Ok(buffer) = Buffer::new(&device, 1 + turn * 7919 % (3 * MIB)) else {
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

/// A step with temporaries, an update in place and an escape; answers a sum that is known.
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
            let device = Device::host_with(config).unwrap();
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

#[test]
fn a_direct_pool_holds_what_is_handed_out_and_no_more() -> Result<()> {
    let device = device(PoolKind::Direct);
    let held = |device: &Device| {
        let stats = device.memory_stats();
        assert_eq!(stats.reserved_bytes, stats.allocated_bytes);
        (stats.reserved_bytes, stats.segments)
    };
    let first = Buffer::new(&device, 1000)?;
    let second = Buffer::new(&device, 3 * MIB + 1)?;
    assert_eq!(held(&device), (1024 + 3 * MIB as u64 + 512, 2));
    drop(second);
    assert_eq!(held(&device), (1024, 1));
    drop(first);
    assert_eq!(held(&device), (0, 0));
    // What a cache keeps is handed out.
    cache_scope!("loop", device = &device, { Buffer::new(&device, 1000)? });
    assert_eq!(held(&device), (1024, 1));
    device.invalidate_cache("loop");
    assert_empty(&device, PoolKind::Direct);
    Ok(())
}

#[test]
fn a_binned_pool_rounds_to_powers_of_two() -> Result<()> {
    let device = device(PoolKind::Binned);
    for (len, block) in [(1, 512), (513, 1024), (1025, 2048), (3 * MIB, 4 * MIB)] {
        let buffer = Buffer::new(&device, len)?;
        let stats = device.memory_stats();
        assert_eq!(stats.live_bytes, len as u64);
        assert_eq!(stats.allocated_bytes, block as u64, "{len} bytes");
        drop(buffer);
    }
    let segments = device.memory_stats().segments;
    drop(Buffer::new(&device, 4 * MIB)?);
    assert_eq!(device.memory_stats().segments, segments, "kept and reused");
    Ok(())
}

#[test]
fn a_binned_pool_gives_the_memory_of_a_burst_back() -> Result<()> {
    let device = device(PoolKind::Binned);
    let burst: Result<Vec<_>> = (0..32)
        .map(|turn| Buffer::new(&device, MIB << (turn % 3)))
        .collect();
    drop(burst?);
    let of_burst = device.memory_stats().reserved_bytes;
    assert!(of_burst >= 64 * MIB as u64);

    // From here on two blocks are enough.
    let turns = (0..100_000).take_while(|_| {
        let pair = [5000, 9000].map(|len| Buffer::new(&device, len).unwrap());
        drop(pair);
        device.memory_stats().reserved_bytes > 8192 + 16_384
    });
    let turns = turns.count();
    assert!(turns > 1000, "kept for a while: {turns}");
    assert!(turns < 100_000, "given back at last");
    let stats = device.memory_stats();
    assert_eq!((stats.segments, stats.reserved_bytes), (2, 8192 + 16_384));
    Ok(())
}

#[test]
fn a_stream_ordered_pool_is_the_drivers_own() {
    let error = Device::host_with(config(PoolKind::StreamOrdered)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(
        text.contains("stream-ordered") && text.contains("CUDA"),
        "{text}"
    );
    assert!(
        !text.contains("CACHESCOPE_POOL"),
        "not the environment's doing: {text}"
    );
}

#[test]
fn every_pool_is_read_back_by_its_name() {
    let names = ["best-fit", "binned", "direct", "stream-ordered"];
    let kinds = [POOLS.as_slice(), &[PoolKind::StreamOrdered]].concat();
    for (name, kind) in names.into_iter().zip(kinds) {
        assert_eq!(kind.to_string(), name);
        assert_eq!(name.parse::<PoolKind>().unwrap(), kind);
    }
    assert!("Binned".parse::<PoolKind>().is_err());
    assert_eq!(PoolKind::default(), PoolKind::BestFit);
}
