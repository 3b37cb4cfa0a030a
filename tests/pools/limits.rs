//! Limits, exhaustion and trims: requests that fit are served, and a trim keeps the required
//! memory.

use cachescope::{Array, Buffer, Device, PoolKind, Result};

use crate::pools::{MIB, POOLS, Setup, assert_empty, device, limited};

const UNIT: usize = 512;

fn reserved(device: &Device) -> usize {
    device.memory_stats().reserved_bytes as usize
}

/// Returns the setups that can release any idle memory of at least one block. If segments are
/// shared and do not grow, they cannot release all idle memory.
fn releasing() -> impl Iterator<Item = Setup> {
    POOLS.into_iter().filter(|setup| {
        setup.expandable && (setup.pool != PoolKind::BestFit || grows(&device(*setup)))
    })
}

/// Returns whether the segments of a device grow in place. The platform must support this growth.
fn grows(device: &Device) -> bool {
    let two = [2, 4].map(|mib| Buffer::new(device, mib * MIB).unwrap());
    let gap = two[1].address().wrapping_sub(two[0].address());
    gap == 2 * MIB as u64 && reserved(device) == 6 * MIB
}

/// Under a limit of six units, five units are allocated and freed, and then six units are
/// allocated. For a binned pool, the numbers are four and eight.
#[test]
fn idle_memory_of_another_length_is_released_under_a_limit() -> Result<()> {
    for pool in POOLS {
        let (less, limit) = match pool.pool {
            PoolKind::Binned => (4, 8),
            _ => (5, 6),
        };
        let device = limited(pool, limit * UNIT);
        for _ in 0..3 {
            drop(Buffer::new(&device, less * UNIT)?);
            let whole = Buffer::new(&device, limit * UNIT)?;
            assert_eq!(reserved(&device), limit * UNIT, "{pool}");
            let error = Buffer::new(&device, 1).unwrap_err();
            assert!(error.is_out_of_memory(), "{pool}");
            drop(whole);
        }
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

/// Every second block of a full device is freed. The large block then fits only if the scattered
/// pages of the freed blocks are released.
#[test]
fn scattered_idle_memory_makes_room_for_one_large_block() -> Result<()> {
    for pool in releasing() {
        let device = limited(pool, 32 * MIB);
        let _guard = device.enter();
        let filled = (0..16).map(|value| Array::<u8>::full([2 * MIB], value));
        let filled: Vec<_> = filled.collect::<Result<_>>()?;
        assert_eq!(reserved(&device), 32 * MIB, "{pool}");
        let left: Vec<_> = filled.into_iter().skip(1).step_by(2).collect();
        let large = Buffer::new(&device, 16 * MIB)?;
        assert!(reserved(&device) <= 32 * MIB, "{pool}");
        for (array, value) in left.iter().zip((1..).step_by(2)) {
            assert!(array.to_vec()?.iter().all(|&byte| byte == value), "{pool}");
        }
        drop((left, large));
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

/// Blocks share pages. The blocks on every second page are freed. The large block then fits only if
/// these pages are released.
#[test]
fn idle_pages_of_small_blocks_make_room_for_large_ones() -> Result<()> {
    if !grows(&device(PoolKind::BestFit)) {
        return Ok(());
    }
    let device = limited(PoolKind::BestFit, 32 * MIB);
    let small: Result<Vec<_>> = (0..64).map(|_| Buffer::new(&device, MIB / 2)).collect();
    let is_kept = |buffer: &Buffer| buffer.address() as usize / (2 * MIB) % 2 == 1;
    let left: Vec<_> = small?.into_iter().filter(is_kept).collect();
    assert_eq!(left.len(), 32);
    let large = Buffer::new(&device, 16 * MIB)?;
    assert_eq!(reserved(&device), 32 * MIB);
    drop((left, large));
    device.trim(0);
    assert_empty(&device, PoolKind::BestFit);
    Ok(())
}

#[test]
fn a_device_serves_on_after_it_was_exhausted() -> Result<()> {
    for pool in POOLS {
        let device = limited(pool, 16 * MIB);
        let mut live = Vec::new();
        while let Ok(buffer) = Buffer::new(&device, MIB) {
            live.push(buffer);
        }
        assert_eq!(live.len(), 16, "{pool}");
        assert_eq!(device.memory_stats().out_of_memory, 1, "{pool}");
        // A dropped block frees memory for one block.
        live.pop();
        live.push(Buffer::new(&device, MIB)?);
        assert!(Buffer::new(&device, MIB).is_err(), "{pool}");
        // A higher limit allows further blocks.
        device.set_memory_limit(Some(24 * MIB as u64));
        live.push(Buffer::new(&device, 8 * MIB)?);
        assert!(Buffer::new(&device, 1).is_err(), "{pool}");
        device.set_memory_limit(None);
        live.push(Buffer::new(&device, 64 * MIB)?);
        drop(live);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn trim_keeps_the_requested_bytes() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        let live = Buffer::new(&device, 3 * MIB)?;
        let idle: Result<Vec<_>> = (0..20).map(|_| Buffer::new(&device, 2 * MIB)).collect();
        drop(idle?);
        let grows_in_place = grows(&crate::pools::device(pool)) || pool.pool != PoolKind::BestFit;
        let mut before = reserved(&device);
        for keep in [before, 37 * MIB, 30 * MIB + 5, 14 * MIB, 6 * MIB, 0] {
            let released = device.trim(keep as u64) as usize;
            let after = reserved(&device);
            assert_eq!(before - released, after, "{pool}");
            let busy = device.memory_stats().allocated_bytes as usize;
            // Segments with a live block are not released, and a trim releases at most one segment
            // more than necessary.
            let segment = if grows_in_place { 2 * MIB } else { 20 * MIB };
            assert!(
                after <= keep.max(busy + segment),
                "{pool}: {after} of {keep}"
            );
            assert!(
                after + segment > keep.min(before),
                "{pool}: {after} of {keep}"
            );
            before = after;
        }
        drop(live);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn a_limit_below_what_is_reserved_trims_at_once_and_live_blocks_stay() -> Result<()> {
    for pool in releasing() {
        let device = device(pool);
        let _guard = device.enter();
        let live = Array::<u8>::full([4 * MIB], 7)?;
        drop(Buffer::new(&device, 40 * MIB)?);
        device.set_memory_limit(Some(20 * MIB as u64));
        assert!(reserved(&device) <= 20 * MIB, "{pool}");
        device.set_memory_limit(Some(MIB as u64));
        assert!(live.to_vec()?.iter().all(|&byte| byte == 7), "{pool}");
        assert!(Buffer::new(&device, 5 * MIB).is_err(), "{pool}");
        drop(live);
        device.set_memory_limit(None);
        drop(Buffer::new(&device, 40 * MIB)?);
        device.trim(0);
        assert_empty(&device, pool);
    }
    Ok(())
}

#[test]
fn peaks_begin_anew_where_they_are_reset() -> Result<()> {
    for pool in POOLS {
        let device = device(pool);
        drop(Buffer::new(&device, 30 * MIB)?);
        device.trim(0);
        assert!(
            device.memory_stats().peak_reserved_bytes >= 30 * MIB as u64,
            "{pool}"
        );
        device.reset_peaks();
        let _live = Buffer::new(&device, 2 * MIB)?;
        let peak = device.memory_stats().peak_reserved_bytes as usize;
        assert!((2 * MIB..30 * MIB).contains(&peak), "{pool}: {peak}");
    }
    Ok(())
}

/// Segments that grow in place never need more memory than whole segments, and in this test they
/// need much less.
#[test]
fn segments_that_grow_in_place_hold_less() -> Result<()> {
    if !grows(&device(PoolKind::BestFit)) {
        return Ok(());
    }
    let [growing, whole] = [true, false].map(|expandable| {
        let device = device(Setup {
            pool: PoolKind::BestFit,
            expandable,
        });
        let live: Result<Vec<_>> = (1..12).map(|mib| Buffer::new(&device, mib * MIB)).collect();
        live.map(|_| reserved(&device))
    });
    let (growing, whole) = (growing?, whole?);
    assert!((66 * MIB..=68 * MIB).contains(&growing), "{growing}");
    assert!(growing < whole, "{growing} {whole}");
    Ok(())
}
