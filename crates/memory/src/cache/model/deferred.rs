//! Models of deferred entries. The thread of a deferred entry has not entered the shard, or has
//! pushed no frame. Concurrent threads visit, signal or close the shard, or drop its blocks.

use super::*;

impl Bench {
    /// Enters "a" like `cache_scope!`. If the previous entry made no request, this entry is
    /// deferred.
    fn enter_lazily(&self) -> Entered {
        let place = Place::name("a");
        scope::reenter(place, None, &EntryOptions::NONE).unwrap_or_else(|| {
            let entered = self.enter();
            scope::remember(&entered, place, &EntryOptions::NONE);
            entered
        })
    }

    /// Returns true if this thread is inside its shard. Unlike `shards`, does not settle a deferred
    /// entry.
    fn shard_is_held(&self) -> bool {
        let registry = self.caches.registry.lock();
        let shards = registry.named["a"].shards();
        shards[0].is_held()
    }

    /// Makes a request like a user of the library. If the entry is deferred, the request enters the
    /// shard.
    fn request(&self) -> BlockHandle {
        self.caches.allocate(1000, Location::caller()).unwrap()
    }
}

/// Runs `work` on another thread while this thread runs `inside` in an entry. Then runs `verify`.
/// An earlier entry makes a request. If `escapes` is true, this earlier entry leaves a live block
/// for `work`. If `skips` is true, an entry without a request follows the earlier entry.
fn enter_while(
    (escapes, skips): (bool, bool),
    work: impl Fn(&Bench, Option<BlockHandle>) + Copy + Send + Sync + 'static,
    inside: impl Fn(&Bench) + Copy + Send + Sync + 'static,
    verify: impl Fn(&Bench) + Copy + Send + Sync + 'static,
) {
    check(move || {
        let bench = Bench::new();
        let block = {
            let _scope = bench.enter_lazily();
            bench.warm();
            escapes.then(|| bench.request())
        };
        if skips {
            drop(bench.enter_lazily());
        }
        let other = bench.spawn(move |bench| work(bench, block));
        {
            let _scope = bench.enter_lazily();
            inside(&bench);
        }
        other.join().unwrap();
        bench.check();
        verify(&bench);
        bench.end();
    });
}

/// Runs `work` while this thread is in a deferred entry. If `requests` is true, a request enters
/// the shard.
fn defer_while(
    escapes: bool,
    work: impl Fn(&Bench, Option<BlockHandle>) + Copy + Send + Sync + 'static,
    requests: bool,
    verify: impl Fn(&Bench) + Copy + Send + Sync + 'static,
) {
    let inside = move |bench: &Bench| {
        if requests {
            drop(bench.request());
        }
    };
    enter_while((escapes, true), work, inside, verify);
}

/// Runs `work` while this thread is in an entry with a deferred frame. If `looks` is true, a
/// look-up pushes the frame.
fn hold_while(
    work: impl Fn(&Bench, Option<BlockHandle>) + Copy + Send + Sync + 'static,
    looks: bool,
    verify: impl Fn(&Bench) + Copy + Send + Sync + 'static,
) {
    let inside = move |bench: &Bench| {
        drop(bench.request());
        assert!(
            !looks || scope::current_scope().is_some(),
            "this makes the frame"
        );
    };
    enter_while((true, false), work, inside, verify);
}

#[test]
fn an_entry_after_a_request_holds_its_shard() {
    check(|| {
        let bench = Bench::new();
        for _ in 0..2 {
            let _scope = bench.enter_lazily();
            assert!(bench.shard_is_held());
            bench.warm();
        }
        assert!(!bench.shard_is_held());
        assert_eq!(bench.caches.cache_stats("a").unwrap().entries, 2);
        bench.end();
    });
}

#[test]
fn what_happens_during_an_entry_without_a_frame_is_followed() {
    for looks in [false, true] {
        let visit = |bench: &Bench, block: Option<BlockHandle>| {
            bench.caches.cache_stats("a");
            drop(block);
        };
        hold_while(visit, looks, |bench| {
            let stats = bench.caches.cache_stats("a").unwrap();
            assert_eq!((stats.entries, stats.live_blocks), (2, 0));
        });
        let invalidate = |bench: &Bench, block| {
            bench.caches.invalidate("a");
            drop(block);
        };
        hold_while(invalidate, looks, |bench| {
            assert_eq!(bench.caches.cache_stats("a").unwrap().entries, 2);
        });
        let remove = |bench: &Bench, block| {
            bench.caches.remove("a");
            drop(block);
        };
        hold_while(remove, looks, |bench| {
            assert!(bench.shards().len() <= 1, "the cache after the removed one");
        });
    }
}

#[test]
fn the_third_entry_is_deferred() {
    check(|| {
        let bench = Bench::new();
        drop(bench.enter_lazily());
        drop(bench.enter_lazily());
        let scope = bench.enter_lazily();
        let is_held = || bench.shard_is_held();
        assert!(!is_held(), "it was made");
        drop(bench.request());
        assert!(is_held(), "the request made it");
        drop(scope);
        assert_eq!(bench.caches.cache_stats("a").unwrap().entries, 3);
        bench.end();
    });
}

#[test]
fn a_visitor_and_a_deferred_entry_do_not_affect_each_other() {
    let visit = |bench: &Bench, _| {
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.live_blocks, stats.cached_blocks), (0, 1));
    };
    defer_while(false, visit, false, |bench| {
        assert_eq!(bench.caches.cache_stats("a").unwrap().entries, 3);
    });
}

#[test]
fn a_visitor_and_a_request_in_a_deferred_entry_exclude_each_other() {
    let visit = |bench: &Bench, _| {
        bench.caches.cache_stats("a");
    };
    defer_while(false, visit, true, |bench| {
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.entries, stats.cached_blocks), (3, 1));
    });
}

#[test]
fn an_invalidation_is_not_lost_by_a_deferred_entry() {
    let invalidate = |bench: &Bench, _| {
        bench.caches.invalidate("a");
    };
    defer_while(false, invalidate, false, |bench| {
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.entries, stats.cached_blocks), (3, 0));
    });
}

#[test]
fn a_removal_is_not_lost_by_a_deferred_entry() {
    let remove = |bench: &Bench, _| {
        bench.caches.remove("a");
    };
    for requests in [false, true] {
        defer_while(false, remove, requests, |bench| {
            assert!(bench.shards().len() <= 1, "the cache after the removed one");
        });
    }
}

#[test]
fn a_block_returns_home_while_an_entry_is_deferred() {
    let drop_block = |_: &Bench, block: Option<BlockHandle>| read_and_drop(block.unwrap());
    for requests in [false, true] {
        defer_while(true, drop_block, requests, |bench| {
            let stats = bench.caches.cache_stats("a").unwrap();
            let counts = (stats.entries, stats.live_blocks, stats.escaped_blocks);
            assert_eq!(counts, (3, 0, 0));
        });
    }
}
