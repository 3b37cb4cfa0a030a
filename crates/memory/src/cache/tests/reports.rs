//! Tests of out-of-memory reports: the advised limit, the reported lines, and the remedy.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::size::parse_bytes;
use crate::sync::AtomicBool;

const MIB: u64 = 1 << 20;

/// Cases of a limit, live bytes, and a request that the binned pool refuses.
const REFUSED: [(u64, u64, u64); 3] = [
    (96 * MIB, 0, 92 * MIB),
    (10 * MIB, 0, 9 * MIB + 5),
    (12 * MIB, 6 * MIB, 5 * MIB),
];

fn request(caches: &CachesRef, bytes: u64) -> Result<BlockHandle> {
    caches.allocate_on(bytes, StreamId::default())
}

fn advised_bytes(error: &crate::error::Error) -> u64 {
    let remedy = error.out_of_memory_report().unwrap().remedy();
    let (before, _) = remedy.split_once(" or more").expect("it advises a limit");
    let (_, size) = before.rsplit_once(" to ").expect("it advises a limit");
    parse_bytes(size).unwrap()
}

#[test]
fn the_advised_limit_suffices_for_the_size_that_the_pool_takes() {
    for (limit_bytes, live_bytes, bytes) in REFUSED {
        let caches = caches_over(PoolKind::Binned, Some(limit_bytes), None);
        let _live = request(&caches, live_bytes).unwrap();
        let error = request(&caches, bytes).unwrap_err();
        let advised_bytes = advised_bytes(&error);
        assert!(advised_bytes > limit_bytes, "{error}");
        caches.set_limit(Some(advised_bytes));
        assert!(request(&caches, bytes).is_ok(), "{error}");
    }
}

#[test]
fn the_advised_limit_suffices_for_the_blocks_of_the_largest_entry() {
    let caches = caches_over(PoolKind::Binned, None, None);
    let entry = || {
        let _scope = enter(&caches, "r", None);
        let first = request(&caches, 5 * MIB)?;
        request(&caches, 5 * MIB).map(|second| drop((first, second)))
    };
    entry().unwrap();
    caches.invalidate("r");
    caches.set_limit(Some(12 * MIB));
    let _outside = request(&caches, 6 * MIB).unwrap();
    let error = entry().unwrap_err();
    assert!(error.to_string().contains("so far took at most"), "{error}");
    caches.set_limit(Some(advised_bytes(&error)));
    entry().unwrap();
}

/// The policies with a record of every entry, and Plan with only its own record.
const RECORDED: [(Policy, bool); 5] = [
    (Policy::Recycle, true),
    (Policy::Release, true),
    (Policy::Bump, true),
    (Policy::Plan, true),
    (Policy::Plan, false),
];

fn recorded(policy: Policy, record: bool) -> CachesRef {
    let caches = caches(None, None);
    let config = CacheConfig {
        policy,
        record,
        ..CacheConfig::default()
    };
    caches.configure("r", config);
    caches
}

fn in_lines(caches: &CachesRef) -> (u64, u64) {
    let lines = caches.growth("r").unwrap().lines;
    let sums = lines.iter().map(|line| (line.bytes, line.blocks));
    sums.fold((0, 0), |sum, line| (sum.0 + line.0, sum.1 + line.1))
}

/// Functions that drop escaped blocks, on this thread and on another thread.
const DROPS: [fn(Vec<BlockHandle>); 2] = [drop, |blocks| {
    std::thread::scope(|threads| {
        threads.spawn(|| drop(blocks));
    });
}];

#[test]
fn the_lines_list_escaped_blocks_until_they_drop() {
    for (policy, record) in RECORDED {
        for drop_all in DROPS {
            let caches = recorded(policy, record);
            let mut kept = Vec::new();
            for entry in 0..3 {
                let before = std::mem::take(&mut kept);
                let _scope = enter(&caches, "r", Some(policy));
                kept.extend([10, 11].map(|mib| request(&caches, mib * MIB).unwrap()));
                drop_all(before);
                if entry == 0 || record {
                    assert_eq!(in_lines(&caches), (21 * MIB, 2), "{policy}, in the entry");
                }
            }
            if record {
                assert_eq!(in_lines(&caches), (21 * MIB, 2), "{policy}, after it");
            }
            drop_all(kept.split_off(1));
            let left = if record { (10 * MIB, 1) } else { (0, 0) };
            assert_eq!(in_lines(&caches), left, "{policy}");
            drop_all(kept);
            assert_eq!(in_lines(&caches), (0, 0), "{policy}");
        }
    }
}

#[test]
fn the_lines_list_no_block_that_followed_a_plan_which_the_entry_left() {
    let caches = recorded(Policy::Plan, false);
    let entry = |more: u64| {
        let _scope = enter(&caches, "r", Some(Policy::Plan));
        let kept = request(&caches, 10 * MIB).unwrap();
        drop(request(&caches, MIB).unwrap());
        (kept, request(&caches, more * MIB).unwrap())
    };
    for _ in 0..3 {
        drop(entry(2));
    }
    let (followed, other) = entry(3);
    assert_eq!(in_lines(&caches), (3 * MIB, 1));
    drop((followed, other));
    assert_eq!(in_lines(&caches), (0, 0));
}

#[test]
fn the_lines_list_no_block_of_a_shard_that_is_closed() {
    let caches = recorded(Policy::Recycle, true);
    let kept = {
        let _scope = enter(&caches, "r", None);
        request(&caches, MIB).unwrap()
    };
    let shard = Arc::clone(&caches.find("r").unwrap().shards()[0]);
    assert_eq!(shard.live_records().len(), 1);
    caches.remove("r");
    drop(kept);
    assert!(shard.live_records().is_empty());
}

/// Requests 14 MiB under a limit of 24 MiB. Another thread inside a scope has 12 MiB idle, in the
/// arena of a live block. If `answers` is true, the thread inside allocates repeatedly. Returns the
/// remedy.
fn remedy_for_inside(policy: Policy, answers: bool) -> String {
    let config = MemoryConfig {
        limit_bytes: Some(24 * MIB),
        reclaim_wait: Duration::from_millis(200),
        ..MemoryConfig::default()
    };
    let memory = DeviceMemory::new(Arc::new(HostBackend::new()), &config).unwrap();
    let caches = Caches::over(memory, CachesConfig::default());
    let (barrier, has_failed) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let use_arena = || {
                let live = request(&caches, MIB).unwrap();
                drop(request(&caches, 12 * MIB).unwrap());
                live
            };
            for _ in 0..3 {
                let _scope = enter(&caches, "h", Some(policy));
                drop(use_arena());
            }
            let _scope = enter(&caches, "h", Some(policy));
            let _live = use_arena();
            barrier.wait();
            while !has_failed.load(Ordering::Relaxed) {
                if answers {
                    drop(request(&caches, 100).unwrap());
                }
                // The sleep limits the number of requests, because Bump does not reuse freed memory
                // inside an entry.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        barrier.wait();
        let outcome = request(&caches, 14 * MIB);
        has_failed.store(true, Ordering::Relaxed);
        let error = outcome.unwrap_err();
        error.out_of_memory_report().unwrap().remedy()
    })
}

#[test]
fn a_thread_that_answers_is_not_blamed_for_an_arena_that_a_live_block_shares() {
    for policy in [Policy::Bump, Policy::Plan] {
        let remedy = remedy_for_inside(policy, true);
        assert!(
            remedy.contains("a live buffer shares their arena"),
            "{policy}: {remedy}"
        );
        let remedy = remedy_for_inside(policy, false);
        assert!(remedy.contains("released too little"), "{policy}: {remedy}");
    }
}
