//! Allocated and released blocks: their sizes, their separation, and the accounting of every byte.
//! The checks follow the suites of CuPy's pool, RMM's resources and CUB's caching allocator.

use std::collections::BTreeMap;
use std::thread;

use cachescope::{Array, Buffer, Device, PoolKind, Result};

use crate::pools::{MIB, POOLS, Setup, assert_empty, device};

const UNIT: usize = 512;

/// Returns a pseudorandom length of at most `most` bytes.
fn length(seed: usize, most: usize) -> usize {
    1 + seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) % most
}

/// Returns the size of the block for `len` bytes.
fn rounded(setup: Setup, len: usize) -> u64 {
    let units = len.next_multiple_of(UNIT);
    let bytes = match setup.pool {
        PoolKind::Binned => units.next_power_of_two(),
        _ => units,
    };
    bytes as u64
}

#[test]
fn lengths_round_up_to_units_or_powers_of_two() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        for (len, block) in [(1, 512), (511, 512), (512, 512), (513, 1024), (1024, 1024)] {
            let buffer = Buffer::new(&device, len)?;
            assert_eq!(
                device.memory_stats().allocated_bytes,
                block,
                "{pool}, {len}"
            );
            assert_eq!(
                device.memory_stats().live_bytes,
                len as u64,
                "{pool}, {len}"
            );
            assert_eq!(buffer.address() % UNIT as u64, 0, "{pool}, {len}");
        }
        let stats = device.memory_stats();
        assert_eq!((stats.live_blocks, stats.allocated_bytes), (0, 0), "{pool}");
    }
    Ok(())
}

#[test]
fn split_blocks_coalesce_in_any_order_of_frees() -> Result<()> {
    for expandable in [true, false] {
        let setup = Setup {
            pool: PoolKind::BestFit,
            expandable,
        };
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let device = device(setup);
            let whole = Buffer::new(&device, 12 * UNIT)?;
            let address = whole.address();
            let _after = Buffer::new(&device, UNIT)?;
            drop(whole);
            // The three parts fill the memory of the whole block.
            let mut parts = [3, 4, 5].map(|units| Buffer::new(&device, units * UNIT).ok());
            let addresses = parts
                .each_ref()
                .map(|part| part.as_ref().unwrap().address());
            assert!(
                addresses
                    .iter()
                    .all(|at| (address..address + 12 * UNIT as u64).contains(at))
            );
            for index in order {
                parts[index] = None;
            }
            let again = Buffer::new(&device, 12 * UNIT)?;
            assert_eq!(again.address(), address, "{order:?}");
        }
    }
    Ok(())
}

#[test]
fn used_and_free_are_the_total_at_all_times() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let mut live: BTreeMap<usize, Buffer> = BTreeMap::new();
        for step in 0..600 {
            // At first two blocks are allocated for each released block. Then the remaining blocks
            // are released.
            if step % 3 == 2 || step >= 450 {
                let oldest = live.keys().next().copied();
                live.remove(&oldest.unwrap_or_default());
            } else {
                let most = if step % 7 == 0 { 4 * MIB } else { 20_000 };
                live.insert(step, Buffer::new(&device, length(step, most))?);
            }
            device.synchronize()?;
            let stats = device.memory_stats();
            let requested: usize = live.values().map(Buffer::size_bytes).sum();
            let used: u64 = live
                .values()
                .map(|buffer| rounded(pool, buffer.size_bytes()))
                .sum();
            assert_eq!(stats.live_blocks, live.len() as u64, "{pool}");
            assert_eq!(stats.live_bytes, requested as u64, "{pool}");
            assert_eq!(stats.allocated_bytes, used, "{pool}");
            let free = stats.reserved_bytes - used;
            assert!(stats.largest_free_block_bytes <= free, "{pool}");
            assert_eq!(stats.largest_free_block_bytes == 0, free == 0, "{pool}");
            assert!(stats.peak_reserved_bytes >= stats.reserved_bytes, "{pool}");
        }
        drop(live);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn live_blocks_keep_their_contents_beside_other_requests() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let _guard = device.enter();
        let mut live: Vec<(u8, Array<u8>)> = Vec::new();
        for step in 0..400usize {
            if step % 5 < 3 {
                let value = step as u8;
                live.push((value, Array::full([length(step, 100_000)], value)?));
            } else {
                let (value, array) = live.swap_remove(length(step, live.len()) - 1);
                assert!(array.to_vec()?.iter().all(|&byte| byte == value), "{pool}");
            }
            if step % 50 == 49 {
                device.trim(0);
            }
        }
        for (value, array) in live {
            assert!(array.to_vec()?.iter().all(|&byte| byte == value), "{pool}");
        }
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn blocks_are_freed_on_other_threads() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        for round in 0..5 {
            let buffers: Result<Vec<_>> = (0..20)
                .map(|iteration| Buffer::new(&device, length(20 * round + iteration, MIB)))
                .collect();
            let buffers = buffers?;
            thread::spawn(move || drop(buffers)).join().unwrap();
            let stats = device.memory_stats();
            assert_eq!((stats.live_blocks, stats.allocated_bytes), (0, 0), "{pool}");
        }
        // Blocks may also be allocated on another thread.
        let sent = thread::scope(|scope| {
            let worker = scope.spawn(|| Buffer::new(&device, 5 * MIB));
            worker.join().unwrap()
        })?;
        assert_eq!(device.memory_stats().live_bytes, 5 * MIB as u64, "{pool}");
        drop(sent);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn threads_that_allocate_at_once_never_share_a_block() {
    for pool in POOLS {
        let device = device(pool);
        let work = |worker: usize| -> Result<()> {
            let mut live = Vec::new();
            for step in 0..150 {
                let array = Array::<u8>::full([length(997 * worker + step, 30_000)], worker as u8)?;
                live.push(array);
                if live.len() > 10 {
                    let array = live.swap_remove(step % 10);
                    assert!(array.to_vec()?.iter().all(|&byte| byte == worker as u8));
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            for worker in 0..4 {
                let (device, work) = (&device, &work);
                scope.spawn(move || {
                    let _guard = device.enter();
                    work(worker).unwrap();
                });
            }
        });
        device.trim(0);
        assert_empty(&device, pool);
    }
}

#[test]
fn each_device_accounts_for_its_own() -> Result<()> {
    for pool in POOLS {
        let devices = [device(pool), device(pool)];
        let first = Buffer::new(&devices[0], 3 * MIB)?;
        assert_empty(&devices[1], pool);
        let second = Buffer::new(&devices[1], 700)?;
        let live = |device: &Device| device.memory_stats().live_bytes;
        assert_eq!(
            devices.each_ref().map(live),
            [3 * MIB as u64, 700],
            "{pool}"
        );
        drop(first);
        assert_eq!(devices.each_ref().map(live), [0, 700], "{pool}");
        // A trim of the second device does not release idle memory of the first device.
        assert_eq!(devices[1].trim(u64::MAX), 0, "{pool}");
        devices[0].trim(0);
        assert_empty(&devices[0], pool);
        drop(second);
        devices[1].trim(0);
        assert_empty(&devices[1], pool);
    }
    Ok(())
}

#[test]
fn a_buffer_of_nothing_takes_nothing() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let _nothing = [Buffer::new(&device, 0)?, Buffer::new(&device, 0)?];
        let stats = device.memory_stats();
        assert_eq!(
            (stats.allocated_bytes, stats.reserved_bytes),
            (0, 0),
            "{pool}"
        );
    }
    Ok(())
}
