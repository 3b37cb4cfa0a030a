//! Models of signals to a shard while a thread leaves the shard. After the sender and the leaving
//! thread are done, no signal is pending.

use super::*;
use crate::sync::barrier;

/// Runs `signal` on another thread while this thread leaves a scope with an idle block. Runs the
/// model with and without heavy barriers.
fn leave_while(
    signal: impl Fn(&Bench) + Copy + Send + Sync + 'static,
    verify: impl Fn(&Bench) + Copy + Send + Sync + 'static,
) {
    let model = move || {
        let bench = Bench::new();
        let scope = bench.enter();
        bench.warm();
        let sender = bench.spawn(signal);
        drop(scope);
        sender.join().unwrap();
        bench.check();
        verify(&bench);
        bench.end();
    };
    check(model);
    barrier::without(|| check(model));
}

fn holds_nothing_idle(bench: &Bench) {
    for shard in bench.shards() {
        assert_eq!(shard.counters.cached_blocks(), 0);
    }
}

#[test]
fn an_invalidation_is_not_lost() {
    leave_while(
        |bench| {
            bench.caches.invalidate("a");
        },
        holds_nothing_idle,
    );
}

#[test]
fn a_drain_is_not_lost() {
    leave_while(
        |bench| {
            bench.caches.reclaim(u64::MAX);
        },
        holds_nothing_idle,
    );
}

#[test]
fn a_removal_is_not_lost() {
    leave_while(
        |bench| {
            bench.caches.remove("a");
        },
        |bench| assert!(bench.shards().is_empty(), "a removed cache is not closed"),
    );
}

#[test]
fn an_invalidation_is_not_lost_by_the_next_entry() {
    let model = || {
        let bench = Bench::new();
        let scope = bench.enter();
        bench.warm();
        let sender = bench.spawn(|bench| bench.caches.invalidate("a"));
        drop(scope);
        drop(bench.enter());
        sender.join().unwrap();
        bench.check();
        holds_nothing_idle(&bench);
        bench.end();
    };
    check(model);
    barrier::without(|| check(model));
}

#[test]
fn a_block_that_is_live_at_an_invalidation_returns_to_the_pool() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let sender = bench.spawn(|bench| bench.caches.invalidate("a"));
        drop(scope);
        sender.join().unwrap();
        read_and_drop(block);
        bench.check();
        bench.caches.cache_stats("a");
        holds_nothing_idle(&bench);
        bench.end();
    });
}

#[test]
fn a_removal_is_seen_by_a_thread_that_enters_for_the_first_time() {
    check(|| {
        let bench = Bench::new();
        bench.caches.configure("a", CacheConfig::default());
        let remover = bench.spawn(|bench| bench.caches.remove("a"));
        {
            let _scope = bench.enter();
            bench.warm();
        }
        remover.join().unwrap();
        bench.check();
        let retired = bench.shards().len();
        assert!(retired <= 1, "the removed cache and the one after it");
        bench.end();
    });
}
