//! Tests of reservations, pages and the driver's pool.

use cachescope::{Array, Buffer, Device, DeviceConfig, PoolKind, cache_scope, graph};

use crate::device::opening::{is_child, run_child};
use crate::device::{DEVICE_BYTES, EmulatorLock, POOLS, device, numbers};

const MIB: usize = 1 << 20;

#[test]
fn every_pool_leaves_nothing_behind() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        {
            let device = device(pool);
            let _guard = device.enter();
            let mut kept = Vec::new();
            for round in 0..60 {
                let count = 1 + (round * 7919) % 200_000;
                let array = Array::from_vec(numbers(round, count), count).unwrap();
                if round % 3 == 0 {
                    kept.push((round, array));
                }
            }
            for (seed, array) in &kept {
                assert_eq!(
                    array.to_vec().unwrap(),
                    numbers(*seed, array.len()),
                    "{pool}"
                );
            }
            cache_scope!("loop", {
                for round in 0..5 {
                    let sent = numbers(round, 5000);
                    let array = Array::from_slice(&sent, 5000).unwrap();
                    assert_eq!(array.to_vec().unwrap(), sent);
                }
            });
            device.synchronize().unwrap();
        }
        lock.end();
    }
}

#[test]
fn a_full_device_reuses_freed_memory() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        {
            let device = device(pool);
            let _guard = device.enter();
            for _ in 0..3 {
                let mut held: Vec<Array<u8>> = Vec::new();
                let error = loop {
                    match Array::zeros(MIB) {
                        Ok(array) => held.push(array),
                        Err(error) => break error,
                    }
                };
                assert!(error.is_out_of_memory(), "{pool}: {error}");
                assert!(
                    held.len() >= (DEVICE_BYTES / MIB) * 3 / 4,
                    "{pool}: {}",
                    held.len()
                );
                drop(held);
            }
            // The size differs from the previous sizes.
            let all = Array::<u8>::zeros(DEVICE_BYTES * 3 / 4).unwrap();
            drop(all);
            assert!(
                Array::<u8>::zeros(2 * DEVICE_BYTES)
                    .unwrap_err()
                    .is_out_of_memory()
            );
        }
        lock.end();
    }
}

#[test]
fn pages_between_live_blocks_are_released() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let count = 2 * MIB / 4;
        let mut arrays: Vec<_> = (0..12)
            .map(|seed| (seed, Array::from_vec(numbers(seed, count), count).unwrap()))
            .collect();
        let mapped = || lock.control.report().mappings - lock.before.mappings;
        assert_eq!(mapped(), 12);
        arrays.retain(|(seed, _)| seed % 2 == 0);
        assert_eq!(device.trim(0), 12 * MIB as u64);
        assert_eq!(mapped(), 6);
        assert_eq!(lock.control.report().physical - lock.before.physical, 6);
        for (seed, array) in &arrays {
            assert_eq!(array.to_vec().unwrap(), numbers(*seed, count));
        }
        // The block is placed in the gaps of the freed blocks.
        let large = Array::<u8>::full(9 * MIB, 5).unwrap();
        assert!(large.to_vec().unwrap().iter().all(|&byte| byte == 5));
    }
    lock.end();
}

#[test]
fn the_driver_s_pool_keeps_freed_memory_until_a_trim() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::StreamOrdered);
        let _guard = device.enter();
        let array = Array::<u8>::zeros(3 * MIB).unwrap();
        let address = array.address();
        let waits = lock.calls_of("cuEventRecord", || drop(array));
        assert_eq!(waits, 0, "dropping asks nothing");
        assert_eq!(device.memory_stats().reserved_bytes, 0);
        device.synchronize().unwrap();
        assert!(lock.control.report().used_bytes >= 3 * MIB as u64);
        assert_eq!(Array::<u8>::zeros(3 * MIB).unwrap().address(), address);
        assert_eq!(device.trim(0), 3 * MIB as u64);
        assert_eq!(lock.control.report().used_bytes, lock.before.used_bytes);
    }
    lock.end();
}

/// Blocks move between streams. The work of the previous stream must complete before the work of
/// the next stream.
#[test]
fn memory_that_changes_streams_is_ordered() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        {
            let device = device(pool);
            let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
            let mut kept = Vec::new();
            for round in 0..40 {
                let _guard = streams[round % 2].enter();
                let count = 3000 + (round * 31) % 5 * 1000;
                drop(Array::<u32>::full(count, 9).unwrap());
                kept.push((
                    round,
                    Array::from_vec(numbers(round, count), count).unwrap(),
                ));
                if round % 3 == 2 {
                    let (seed, array) = kept.swap_remove(round % kept.len());
                    let _guard = streams[(round + 1) % 2].enter();
                    assert_eq!(
                        array.to_vec().unwrap(),
                        numbers(seed, array.len()),
                        "{pool}"
                    );
                }
            }
            for (seed, array) in kept {
                assert_eq!(
                    array.to_vec().unwrap(),
                    numbers(seed, array.len()),
                    "{pool}"
                );
            }
        }
        lock.end();
    }
}

/// A block moves to another stream while a write on the first stream is pending.
#[test]
fn a_stream_waits_for_the_previous_user_of_its_memory() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        {
            let config = DeviceConfig {
                pool,
                memory_limit: Some(2 * MIB as u64),
                ..DeviceConfig::default()
            };
            let device = Device::cuda_with(1, config).unwrap();
            let [first, second] = [device.new_stream().unwrap(), device.new_stream().unwrap()];
            let sent = numbers(8, 3 * MIB / 8);
            for _ in 0..3 {
                let address = {
                    let _guard = first.enter();
                    Array::full(sent.len(), 9u32).unwrap().address()
                };
                let array = {
                    let _guard = second.enter();
                    Array::from_slice(&sent, sent.len()).unwrap()
                };
                if matches!(pool, PoolKind::BestFit | PoolKind::Binned) {
                    assert_eq!(array.address(), address, "{pool}");
                }
                assert_eq!(array.to_vec().unwrap(), sent, "{pool}");
                first.synchronize().unwrap();
                assert_eq!(array.to_vec().unwrap(), sent, "{pool}");
            }
        }
        lock.end();
    }
}

/// If a block were released in stream order during a capture of its stream, the graph would record
/// the release.
#[test]
fn what_is_dropped_while_its_stream_is_captured_is_released_afterwards() {
    let lock = EmulatorLock::take();
    let taken = || lock.control.report().pool_allocations - lock.before.pool_allocations;
    {
        let device = device(PoolKind::StreamOrdered);
        let stream = device.new_stream().unwrap();
        let _guard = stream.enter();
        let afterwards: [&dyn Fn(); 3] = [
            &|| device.synchronize().unwrap(),
            &|| {
                device.trim(0);
            },
            &|| drop(Array::<u8>::zeros(100).unwrap()),
        ];
        for (round, ask) in afterwards.into_iter().enumerate() {
            let array = Array::<u8>::zeros(MIB).unwrap();
            let own = (round == 1).then(|| Array::<u8>::zeros(MIB).unwrap());
            let bytes = if own.is_some() { 2 * MIB } else { MIB } as u64;
            let stats = |pending_bytes| {
                let stats = device.memory_stats();
                let allocated_bytes = bytes - pending_bytes;
                assert_eq!(
                    (stats.pending_bytes, stats.allocated_bytes),
                    (pending_bytes, allocated_bytes)
                );
                assert_eq!(
                    (stats.reserved_bytes, stats.live_bytes),
                    (bytes, allocated_bytes)
                );
            };
            let graph = graph::capture(&device, || {
                stats(0);
                // One array is dropped on another thread. In some rounds, another is dropped on the
                // capturing thread.
                let dropping = std::thread::scope(|scope| scope.spawn(|| drop(array)).join());
                dropping.unwrap();
                drop(own);
                stats(bytes);
                let look = || device.trim(0);
                std::thread::scope(|scope| scope.spawn(look).join()).unwrap();
                stats(bytes);
                Ok(())
            });
            let graph = graph.unwrap();
            ask();
            let after = device.memory_stats();
            assert_eq!((after.pending_bytes, after.reserved_bytes), (0, 0));
            assert_eq!((after.releases, after.allocated_bytes), (after.reserves, 0));
            graph.launch().unwrap();
            device.synchronize().unwrap();
            assert_eq!(taken(), 0);
        }
    }
    lock.end();
}

/// A block without pending work is released without a wait.
#[test]
fn idle_streams_are_not_queried() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::Direct);
        let _guard = device.enter();
        let _stream = device.new_stream().unwrap();
        let events = lock.calls_of("cuEventRecord", || {
            drop(Buffer::new(&device, MIB).unwrap());
            assert_eq!(device.memory_stats().reserved_bytes, 0);
            let array = Array::<u8>::zeros(MIB).unwrap();
            device.synchronize().unwrap();
            drop(array);
            assert_eq!(device.memory_stats().reserved_bytes, 0);
        });
        assert_eq!(events, 0);
        // One event suffices for all blocks that wait for the same work.
        let arrays = [1, 2, 3].map(|_| Array::<u8>::zeros(MIB).unwrap());
        let events = lock.calls_of("cuEventRecord", || {
            drop(arrays);
            device.memory_stats();
        });
        assert_eq!(events, 1);
    }
    lock.end();
}

#[test]
fn a_limit_bounds_what_is_taken_from_the_device() {
    let lock = EmulatorLock::take();
    {
        let config = DeviceConfig {
            memory_limit: Some(10 * MIB as u64),
            ..DeviceConfig::default()
        };
        let device = Device::cuda_with(1, config).unwrap();
        let _guard = device.enter();
        let held: Vec<Array<u8>> = (0..).map_while(|_| Array::zeros(MIB).ok()).collect();
        assert_eq!(held.len(), 10);
        assert!(lock.control.report().used_bytes - lock.before.used_bytes <= 10 * MIB as u64);
    }
    lock.end();
}

/// Small arrays share a window of the memory that a kernel accesses. Large arrays span many
/// windows.
#[test]
fn what_only_the_device_touches_is_hidden_from_the_host() {
    let _lock = EmulatorLock::take();
    for pool in ["best-fit", "direct", "stream-ordered"] {
        let settings = [
            ("CACHESCOPE_EMULATOR_GUARD", "1"),
            ("CACHESCOPE_POOL", pool),
        ];
        let told = run_child("memory", "child_touches_memory", &settings);
        let accesses = told
            .matches("the host itself reads or writes memory of the device")
            .count();
        assert_eq!(accesses, 1, "{pool}: {told}");
        let (before, after) = told.split_once("the host looks").unwrap();
        assert!(!before.contains("the host itself"), "{pool}: {before}");
        assert!(after.contains("the host itself"), "{pool}: {after}");
    }
}

#[test]
fn child_touches_memory() {
    if !is_child() {
        return;
    }
    let device = Device::cuda(0).unwrap();
    let _guard = device.enter();
    for count in [1, 1000, 3 * MIB] {
        let x = Array::<f32>::ones(count).unwrap();
        let y = (&x + 1.0).eval().unwrap();
        assert_eq!(y.to_vec().unwrap(), vec![2.0; count]);
        drop(x);
        assert_eq!(y.sum().unwrap().item().unwrap(), 2.0 * count as f32);
    }
    let array = Array::<u8>::ones(16).unwrap();
    device.synchronize().unwrap();
    eprintln!("the host looks");
    // SAFETY: the emulator's device memory is host memory, and the array is alive.
    let first = unsafe { (array.address() as *const u8).read_volatile() };
    assert_eq!(first, 1);
}
