//! Tests of programs with many threads in one scope.

use super::*;

#[test]
fn threads_that_share_a_name_never_share_a_block() {
    for pool in PoolKind::ON_HOST {
        share_a_name(pool, Policy::Recycle);
        share_a_name(pool, Policy::Bump);
        share_a_name(pool, Policy::Plan);
    }
}

const ROUNDS: u64 = 200;

fn share_a_name(pool: PoolKind, policy: Policy) {
    const THREADS: u64 = 4;
    let caches = caches_over(pool, Some(64 << 20), None);
    // The channel is bounded. On a loaded machine, blocks in an unbounded channel would exhaust the
    // limit.
    let (sender, receiver) = std::sync::mpsc::sync_channel::<BlockHandle>(64);
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (caches, sender) = (caches.clone(), sender.clone());
            threads.spawn(move || work(&caches, policy, thread, &sender));
        }
        let other = caches.clone();
        threads.spawn(move || {
            for entry in 0..ROUNDS {
                match entry % 4 {
                    0 => drop(other.invalidate("shared")),
                    1 => drop(other.memory_stats()),
                    2 => drop(other.remove("shared")),
                    _ => drop(other.reclaim(1 << 20)),
                }
                std::thread::yield_now();
            }
        });
        drop(sender);
        threads.spawn(move || receiver.into_iter().for_each(drop));
    });
    caches.invalidate_all();
    caches.trim(0);
    caches.check();
    let stats = caches.memory_stats();
    assert_eq!(
        (
            stats.live_blocks,
            stats.allocated_bytes,
            stats.reserved_bytes
        ),
        (0, 0, 0)
    );
    let weak = caches.this.clone();
    drop(caches);
    assert!(weak.upgrade().is_none());
}

/// Runs entries that allocate, write and check blocks. The blocks drop on this thread or on other
/// threads. Some entries panic.
fn work(
    caches: &CachesRef,
    policy: Policy,
    thread: u64,
    elsewhere: &std::sync::mpsc::SyncSender<BlockHandle>,
) {
    let mut random = thread + 1;
    let mut next = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for entry in 0..ROUNDS {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _scope = enter(caches, "shared", Some(policy));
            let mut live = Vec::new();
            for _ in 0..next(20) {
                let handle = caches
                    .allocate_on(next(50_000), StreamId::default())
                    .unwrap();
                let byte = (thread * 50 + next(50)) as u8;
                shard::fill(caches.memory.backend(), &handle, byte).unwrap();
                live.push((handle, byte));
                if next(3) == 0 {
                    let at = next(live.len() as u64) as usize;
                    elsewhere.send(live.swap_remove(at).0).unwrap();
                }
                for (handle, byte) in &live {
                    let held = shard::read(caches.memory.backend(), handle);
                    assert!(
                        held.iter().all(|other| other == byte),
                        "a block has two owners"
                    );
                }
            }
            if entry % 50 == 49 {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }));
        if let Err(payload) = unwound {
            let expected = payload.downcast_ref::<&str>() == Some(&"on purpose");
            assert!(expected, "{:?}", payload.downcast_ref::<String>());
        }
    }
}
