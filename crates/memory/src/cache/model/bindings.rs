//! Models of threads that end, and of threads that adopt the shards of ended threads.

use super::*;

fn work(bench: &Bench) {
    let _scope = bench.enter();
    bench.warm();
}

#[test]
fn threads_end_while_others_enter_for_the_first_time() {
    check(|| {
        let bench = Bench::new();
        let threads = [(); 2].map(|()| bench.spawn(work));
        // `join` does not wait until a thread's bindings have ended.
        join(threads);
        work(&bench);
        assert!(bench.shards().len() <= 3);
        bench.check();
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.entries, stats.live_blocks), (3, 0));
        bench.end();
    });
}

#[test]
fn one_of_two_threads_takes_over_what_was_left() {
    check(|| {
        let bench = Bench::new();
        work(&bench);
        bench.shards()[0].end_binding(); // The end of a thread makes this call.
        let threads = [(); 2].map(|()| bench.spawn(work));
        join(threads);
        assert!(bench.shards().len() <= 2);
        bench.check();
        assert!(bench.caches.cache_stats("a").unwrap().hits > 0);
        bench.end();
    });
}

#[test]
fn a_cache_is_removed_while_its_shard_is_taken_over() {
    check(|| {
        let bench = Bench::new();
        work(&bench);
        bench.shards()[0].end_binding();
        let next = bench.spawn(work);
        bench.caches.remove("a");
        next.join().unwrap();
        bench.check();
        bench.end();
    });
}
