//! Tests of shared handles on caches without a thread inside.

use std::thread;

use super::*;
use crate::device::DevicePtr;

const MIB: u64 = 1 << 20;

pub(super) fn allocate(cache: &SharedCache, bytes: u64) -> SharedBlock {
    let stream = StreamId::default();
    match cache.hit(bytes, stream) {
        Some(block) => block,
        None => {
            let (block, _) = cache.allocate(bytes, stream, Location::caller()).unwrap();
            block
        }
    }
}

/// Frees a block, even if the block's shard is in use.
pub(super) fn free(block: SharedBlock) {
    drop(block.free());
}

#[test]
fn an_entry_ends_on_another_thread() {
    let caches = caches(None, None);
    let cache = SharedCache::open(&caches, "a");
    assert!(!cache.exit(), "nothing was entered");
    assert!(cache.enter());
    let escaped = allocate(&cache, MIB);
    thread::scope(|scope| {
        scope.spawn(|| assert!(cache.exit()));
    });
    let stats = caches.cache_stats("a").unwrap();
    assert_eq!((stats.entries, stats.misses), (1, 1));
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (1, 1));
    thread::spawn(move || free(escaped)).join().unwrap();
    let stats = caches.cache_stats("a").unwrap();
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
    assert_eq!(stats.cached_blocks, 1);
    caches.check();
}

#[test]
fn entries_of_two_caches_interleave() {
    let caches = caches(None, None);
    for policy in [Policy::Recycle, Policy::Bump, Policy::Plan] {
        let names = [format!("{policy} first"), format!("{policy} second")];
        let [first, second] = names.each_ref().map(|name| {
            let config = CacheConfig {
                policy,
                ..CacheConfig::default()
            };
            caches.configure(name, config);
            SharedCache::open(&caches, name)
        });
        for _ in 0..8 {
            assert!(first.enter());
            let own = allocate(&first, MIB);
            assert!(second.enter());
            let other = allocate(&second, MIB);
            assert!(first.exit());
            free(own);
            free(allocate(&second, MIB));
            free(other);
            assert!(second.exit());
        }
        for name in &names {
            let stats = caches.cache_stats(name).unwrap();
            assert_eq!(stats.entries, 8, "{name}");
            assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0), "{name}");
        }
        caches.check();
    }
}

#[test]
fn a_second_handle_takes_over_the_idle_blocks() {
    let caches = caches(None, None);
    let first = SharedCache::open(&caches, "a");
    let beside = SharedCache::open(&caches, "a");
    free(allocate(&first, MIB));
    assert!(beside.hit(MIB, StreamId::default()).is_none());
    drop(first);
    let again = SharedCache::open(&caches, "a");
    free(again.hit(MIB, StreamId::default()).unwrap());
    assert_eq!(caches.cache_stats("a").unwrap().misses, 1);
    caches.check();
}

#[test]
fn a_block_outlives_its_handle_and_its_cache() {
    let caches = caches(None, None);
    let cache = SharedCache::open(&caches, "a");
    let raw = allocate(&cache, MIB).into_raw();
    drop(cache);
    caches.remove("a");
    assert_eq!(caches.memory_stats().live_bytes, MIB);
    // SAFETY: `into_raw` returned `raw`, and `raw` is converted back only here.
    free(unsafe { SharedBlock::from_raw(raw) });
    assert_eq!(caches.memory_stats().live_bytes, 0);
    caches.check();
}

#[test]
fn a_held_cache_serves_again_after_its_release() {
    let caches = caches(None, None);
    let cache = SharedCache::open(&caches, "a");
    let block = allocate(&cache, MIB);
    free(allocate(&cache, 2 * MIB));
    assert!(cache.hold());
    assert!(cache.hit(2 * MIB, StreamId::default()).is_none());
    let busy = block.free().expect("the shard is in use");
    cache.release();
    free(busy);
    free(cache.hit(MIB, StreamId::default()).unwrap());
    caches.check();
}

/// Allocates, checks and frees blocks inside entries. These entries overlap entries of other
/// threads.
fn work(caches: &CachesRef, cache: &SharedCache, thread: u64) {
    let pointer =
        |block: &SharedBlock| crate::device::host::host_pointer(DevicePtr(block.address()));
    let mut blocks = Vec::new();
    for step in 0..1500_u64 {
        if step % 20 == 0 {
            assert!(cache.enter());
        }
        let bytes = 4096 * (1 + (step * 7 + thread) % 5);
        let block = allocate(cache, bytes);
        // SAFETY: only this thread uses the block, and the block has `bytes` bytes.
        unsafe { pointer(&block).write_bytes(thread as u8, bytes as usize) };
        blocks.push((block, bytes));
        if blocks.len() > 8 {
            let (block, bytes) = blocks.remove(step as usize % 8);
            // SAFETY: only this thread uses the block, and it has written all `bytes` bytes.
            let found = unsafe { std::slice::from_raw_parts(pointer(&block), bytes as usize) };
            assert!(found.iter().all(|byte| u64::from(*byte) == thread));
            free(block);
        }
        if step % 20 == 19 {
            assert!(cache.exit());
        }
        if step % 500 == 0 {
            caches.invalidate("a");
        }
    }
    blocks.into_iter().for_each(|(block, _)| free(block));
}

#[test]
fn threads_share_one_handle() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let caches = caches(None, None);
        let config = CacheConfig {
            policy,
            ..CacheConfig::default()
        };
        caches.configure("a", config);
        let cache = SharedCache::open(&caches, "a");
        thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, caches) = (&cache, &caches);
                scope.spawn(move || work(caches, cache, thread));
            }
        });
        assert_eq!(caches.cache_stats("a").unwrap().live_blocks, 0, "{policy}");
        assert!(!cache.exit(), "every entry has ended");
        caches.check();
    }
}
