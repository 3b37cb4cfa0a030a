//! Models of a shard's visitors. Entering threads and other visitors run concurrently.

use super::*;

#[test]
fn a_visitor_and_an_entering_thread_exclude_each_other() {
    check(|| {
        let bench = Bench::new();
        drop(bench.enter());
        let visitor = bench.spawn(|bench| bench.caches.cache_stats("a").unwrap().entries);
        {
            let _scope = bench.enter();
            bench.warm();
        }
        assert!((1..=2).contains(&visitor.join().unwrap()));
        bench.check();
        assert_eq!(bench.caches.cache_stats("a").unwrap().cached_blocks, 1);
        bench.end();
    });
}

#[test]
fn two_visitors_and_an_entering_thread_exclude_each_other() {
    // The bound is needed, because with more preemptions, two threads may wait forever for the
    // third thread.
    check_within(2, || {
        let bench = Bench::new();
        {
            let _scope = bench.enter();
            bench.warm();
        }
        let shard = Arc::clone(&bench.shards()[0]);
        let visitors = [(); 2].map(|()| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || {
                if let Some(mut guard) = shard.guard() {
                    guard.publish();
                }
            })
        });
        {
            let _scope = bench.enter();
            bench.warm();
        }
        join(visitors);
        drop(shard);
        bench.check();
        bench.end();
    });
}
