//! Models of concurrent threads that share a handle on a cache, or invalidate or record the cache.

use super::*;

fn serve(cache: &SharedCache) {
    let stream = StreamId::default();
    let block = match cache.hit(1000, stream) {
        Some(block) => block,
        None => {
            let served = cache.allocate(1000, stream, Location::caller());
            served.unwrap().0
        }
    };
    drop(block.free());
}

#[test]
fn two_threads_of_one_handle_exclude_each_other() {
    check_within(2, || {
        let bench = Bench::new();
        let cache = Arc::new(SharedCache::open(&bench.caches, "a"));
        serve(&cache);
        let other = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || serve(&cache))
        };
        serve(&cache);
        other.join().unwrap();
        drop(cache);
        bench.check();
        bench.end();
    });
}

#[test]
fn a_block_that_an_invalidation_meets_is_released_once() {
    check_within(2, || {
        let bench = Bench::new();
        let cache = Arc::new(SharedCache::open(&bench.caches, "a"));
        assert!(cache.enter());
        let other = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || serve(&cache))
        };
        bench.caches.invalidate("a");
        other.join().unwrap();
        assert!(cache.exit());
        drop(cache);
        bench.check();
        bench.end();
    });
}

#[test]
fn a_free_that_a_recording_meets_is_recorded() {
    check_within(2, || {
        let bench = Bench::new();
        let cache = SharedCache::open(&bench.caches, "a");
        let served = cache.allocate(1000, StreamId::default(), Location::caller());
        let block = served.unwrap().0;
        let shard = Arc::clone(&bench.shards()[0]);
        let recording = thread::spawn(move || {
            let mut guard = shard.guard().expect("nobody is inside");
            guard.observe(true);
            shard.counters.live_blocks.get() > 0
        });
        let busy = block.free();
        let is_slow = busy.is_some();
        drop(busy);
        let was_live = recording.join().unwrap();
        assert!(
            is_slow || !was_live,
            "the free of a recorded block was lost"
        );
        drop(cache);
        bench.check();
        bench.end();
    });
}
