//! Tests of slabs that outlive their plan.

use super::*;
use crate::device::DevicePtr;

/// Runs an entry with requests of `sizes` on `stream`. Each block drops after the next request.
fn entry(caches: &CachesRef, sizes: &[u64], stream: StreamId) -> Result<()> {
    let _entered = enter(caches, "entry", Some(Policy::Plan));
    let mut last = None;
    for bytes in sizes {
        let handle = caches.allocate_on(*bytes, stream)?;
        assert_eq!(handle.block.stream, stream, "{bytes} bytes");
        last.replace(handle);
    }
    Ok(())
}

#[test]
fn a_slab_serves_no_plan_of_another_stream() -> Result<()> {
    let caches = caches(None, None);
    let other = caches.memory.backend().new_stream()?;
    for _ in 0..3 {
        entry(&caches, &[100_000, 50_000], StreamId::default())?;
    }
    // These five sequences are more than a plan stores. So the long sequence is removed, although
    // its slab would be long enough.
    for number in 1..6 {
        entry(&caches, &[1000 * number, 2000], other)?;
    }
    for _ in 0..3 {
        entry(&caches, &[5000, 2000], other)?;
        caches.check();
    }
    Ok(())
}

/// Runs a planned entry of three requests. Returns the addresses of the blocks. If `keep` is true,
/// also returns the handle of the second request.
fn step(caches: &CachesRef, keep: bool) -> Result<(Vec<u64>, Option<BlockHandle>)> {
    let _entered = enter(caches, "step", Some(Policy::Plan));
    let stream = StreamId::default();
    let first = caches.allocate_on(100_000, stream)?;
    let second = caches.allocate_on(50_000, stream)?;
    let mut addresses = vec![first.block.address.0, second.block.address.0];
    drop(first);
    let third = caches.allocate_on(100_000, stream)?;
    addresses.push(third.block.address.0);
    Ok((addresses, keep.then_some(second)))
}

#[test]
fn a_slab_that_is_lent_serves_no_other_request() -> Result<()> {
    let caches = caches(None, None);
    step(&caches, false)?;
    let (addresses, _) = step(&caches, false)?;
    assert_eq!(step(&caches, false)?.0, addresses);

    let exported = caches.export_slab(DevicePtr(addresses[2]));
    assert!(exported.is_some());
    caches.check();
    let lent_again = caches.export_slab(DevicePtr(addresses[0]));
    assert!(lent_again.is_some(), "from where it was set detached");
    let live = caches.cache_stats("step").unwrap();
    assert_eq!((live.live_blocks, live.escaped_blocks), (2, 2));
    for _ in 0..3 {
        let (others, _) = step(&caches, false)?;
        caches.check();
        let end = addresses[0].max(addresses[1]) + 100_000;
        let begin = addresses[0].min(addresses[1]);
        assert!(others.iter().all(|other| !(begin..end).contains(other)));
    }
    drop(exported);
    caches.check();
    drop(lent_again);
    caches.check();
    let stats = caches.cache_stats("step").unwrap();
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
    caches.invalidate("step");
    assert_eq!(caches.memory_stats().reserved_bytes, 0);
    Ok(())
}

#[test]
fn a_slab_is_lent_beside_what_escaped_from_it_and_amid_an_entry() -> Result<()> {
    let caches = caches(None, None);
    step(&caches, false)?;
    let (addresses, escaped) = step(&caches, true)?;
    let exported = caches.export_slab(DevicePtr(addresses[0]));
    assert!(exported.is_some());
    drop(escaped);
    caches.check();
    let held = caches.memory_stats().reserved_bytes;
    caches.invalidate("step");
    assert!(caches.memory_stats().reserved_bytes > 0 && held > 0);
    drop(exported);

    step(&caches, false)?;
    step(&caches, false)?;
    let entered = enter(&caches, "step", Some(Policy::Plan));
    let first = caches.allocate_on(100_000, StreamId::default())?;
    let exported = caches.export_slab(first.block.address);
    assert!(exported.is_some());
    let second = caches.allocate_on(50_000, StreamId::default())?;
    drop((first, second));
    drop(entered);
    caches.check();
    drop(exported);
    caches.check();
    assert!(caches.export_slab(DevicePtr(8)).is_none());
    caches.invalidate("step");
    assert_eq!(caches.memory_stats().reserved_bytes, 0);
    Ok(())
}

#[test]
fn a_lent_slab_outlives_its_cache() -> Result<()> {
    let caches = caches(None, None);
    step(&caches, false)?;
    let (addresses, _) = step(&caches, false)?;
    let exported = caches.export_slab(DevicePtr(addresses[0]));
    assert!(exported.is_some());
    caches.remove("step");
    assert!(caches.memory_stats().reserved_bytes > 0);
    drop(exported);
    caches.trim(0);
    assert_eq!(caches.memory_stats().reserved_bytes, 0);
    Ok(())
}

/// The maximum number of sequences of a plan.
const SEQUENCES: u64 = 4;

/// Runs an entry for a batch of `length`. The sizes of some requests are proportional to the
/// length.
fn batch(caches: &CachesRef, length: u64) -> Result<()> {
    let _entered = enter(caches, "batch", Some(Policy::Plan));
    let stream = StreamId::default();
    let first = caches.allocate_on(length * 10_000, stream)?;
    let number = caches.allocate_on(8, stream)?;
    let second = caches.allocate_on(length * 3000, stream)?;
    drop(first);
    let third = caches.allocate_on(length * 7000 + 64, stream)?;
    drop((number, second));
    let fourth = caches.allocate_on(4096, stream)?;
    caches.check();
    drop((third, fourth));
    Ok(())
}

fn divergences_and_misses(caches: &CachesRef) -> (u64, u64) {
    let stats = caches.cache_stats("batch").unwrap();
    (stats.divergences, stats.misses)
}

#[test]
fn a_plan_for_the_longest_entry_serves_every_shorter_one() -> Result<()> {
    let caches = caches(None, None);
    batch(&caches, 64)?;
    batch(&caches, 64)?;
    let before = divergences_and_misses(&caches);
    for length in (1..=64).rev().chain([64, 3, 40, 1]) {
        batch(&caches, length)?;
        caches.check();
    }
    assert_eq!(divergences_and_misses(&caches), before);
    let stats = caches.cache_stats("batch").unwrap();
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
    Ok(())
}

#[test]
fn longer_entries_of_one_program_are_one_sequence() -> Result<()> {
    let caches = caches(None, None);
    // The number of lengths exceeds the number of sequences that a plan stores.
    for length in 1..=3 * SEQUENCES {
        batch(&caches, length)?;
        batch(&caches, length)?;
    }
    let (divergences, misses) = divergences_and_misses(&caches);
    assert!(divergences <= 3 * SEQUENCES, "{divergences}");
    for length in (1..=3 * SEQUENCES).rev() {
        batch(&caches, length)?;
    }
    assert_eq!(divergences_and_misses(&caches), (divergences, misses));
    Ok(())
}

#[test]
fn an_entry_of_another_program_that_fits_at_first_gets_a_plan() -> Result<()> {
    let caches = caches(None, None);
    batch(&caches, 64)?;
    batch(&caches, 64)?;
    let other = |caches: &CachesRef| -> Result<()> {
        let _entered = enter(caches, "batch", Some(Policy::Plan));
        let stream = StreamId::default();
        let first = caches.allocate_on(2000, stream)?;
        let second = caches.allocate_on(500_000, stream)?;
        drop(first);
        let third = caches.allocate_on(1_000_000, stream)?;
        caches.check();
        drop((second, third));
        Ok(())
    };
    for _ in 0..3 {
        other(&caches)?;
        batch(&caches, 50)?;
    }
    let before = divergences_and_misses(&caches);
    for length in [64, 10, 33] {
        other(&caches)?;
        batch(&caches, length)?;
        caches.check();
    }
    assert_eq!(divergences_and_misses(&caches), before);
    Ok(())
}

#[test]
fn an_empty_request_takes_no_planned_memory() -> Result<()> {
    let caches = caches(None, None);
    let mut slab = None;
    for _ in 0..5 {
        let _entered = enter(&caches, "batch", Some(Policy::Plan));
        let stream = StreamId::default();
        let first = caches.allocate_on(4096, stream)?;
        let empty = caches.allocate_on(0, stream)?;
        let second = caches.allocate_on(8192, stream)?;
        assert_eq!(empty.block.address.0, 0);
        caches.check();
        slab = Some(first.block.address.0.min(second.block.address.0));
        drop((first, empty, second));
    }
    assert!(slab.is_some());
    assert_eq!(divergences_and_misses(&caches).0, 0);
    Ok(())
}

/// Runs an entry of two requests. If `overlap` is true, the first block drops after the second
/// request.
fn pair(caches: &CachesRef, sizes: [u64; 2], overlap: bool) -> Result<()> {
    let _entered = enter(caches, "batch", Some(Policy::Plan));
    let stream = StreamId::default();
    let mut last = None;
    for (number, bytes) in sizes.into_iter().enumerate() {
        if number == 1 && !overlap {
            last = None;
        }
        let handle = caches.allocate_on(bytes * 4096, stream)?;
        caches.check();
        drop(last.replace(handle));
    }
    Ok(())
}

/// A merged sequence replaces the sequences that fit in it.
#[test]
fn sequences_that_another_one_has_room_for_are_forgotten() -> Result<()> {
    let caches = caches(None, None);
    for sizes in [[8, 20], [10, 10], [10, 20], [10, 10]] {
        pair(&caches, sizes, false)?;
        pair(&caches, sizes, false)?;
    }
    for _ in 0..2 {
        pair(&caches, [10, 10], true)?;
    }
    let before = divergences_and_misses(&caches);
    for _ in 0..4 {
        for sizes in [[10, 10], [8, 20], [10, 20], [3, 4]] {
            pair(&caches, sizes, true)?;
        }
    }
    assert_eq!(divergences_and_misses(&caches), before);
    Ok(())
}

/// A plan stays valid although the pool rounds to powers of two, and a hit rounds to 512 bytes.
#[test]
fn a_plan_over_size_classes_is_not_forgotten() -> Result<()> {
    let caches = caches_over(PoolKind::Binned, None, None);
    for _ in 0..3 {
        entry(&caches, &[(1 << 20) + 1, 5000], StreamId::default())?;
    }
    let misses = || caches.cache_stats("entry").unwrap().misses;
    let before = misses();
    for _ in 0..200 {
        entry(&caches, &[(1 << 20) + 1, 5000], StreamId::default())?;
    }
    caches.check();
    assert_eq!(misses(), before);
    Ok(())
}

/// Each of fifty entries leaves one block of 512 bytes in an arena of 64 KiB.
#[test]
fn what_escaped_blocks_keep_is_detached_and_not_cached() -> Result<()> {
    let caches = caches(None, None);
    let mut escaped = Vec::new();
    for _ in 0..50 {
        let _entered = enter(&caches, "bump", Some(Policy::Bump));
        let first = caches.allocate_on(1024, StreamId::default())?;
        escaped.push(caches.allocate_on(512, StreamId::default())?);
        drop(first);
    }
    let stats = || caches.cache_stats("bump").unwrap();
    let kept_bytes = 50 * ((64 << 10) - 512);
    let figures = |stats: CacheStats| {
        let CacheStats {
            live_bytes,
            cached_blocks,
            cached_bytes,
            detached_bytes,
            ..
        } = stats;
        (live_bytes, cached_blocks, cached_bytes, detached_bytes)
    };
    assert_eq!(figures(stats()), (50 * 512, 0, 0, kept_bytes));
    assert_eq!(caches.memory_stats().cached_bytes, 0);
    caches.invalidate("bump");
    assert_eq!(figures(stats()), (50 * 512, 0, 0, kept_bytes));
    escaped.truncate(10);
    assert_eq!(figures(stats()), (10 * 512, 0, 0, kept_bytes / 5));
    caches.check();
    escaped.clear();
    assert_eq!(figures(stats()), (0, 0, 0, 0));
    assert_eq!(caches.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn a_slab_of_an_escaped_block_is_detached() -> Result<()> {
    let caches = caches(None, None);
    let stats = |caches: &CachesRef| caches.cache_stats("step").unwrap();
    step(&caches, false)?;
    step(&caches, false)?;
    let slab_bytes = stats(&caches).cached_bytes;
    assert!(slab_bytes > 0 && stats(&caches).detached_bytes == 0);
    let (_, second) = step(&caches, true)?;
    let kept = second.as_ref().unwrap().block.bytes();
    assert_eq!(stats(&caches).detached_bytes, slab_bytes - kept);
    drop(second);
    assert_eq!(stats(&caches).detached_bytes, 0);
    caches.check();
    Ok(())
}
