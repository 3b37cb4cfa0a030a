//! Models of drops by threads that do not hold the shard, while the holder changes.

use super::*;

#[test]
fn a_block_returns_home_while_its_shard_is_left() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let other = thread::spawn(move || read_and_drop(block));
        bench.warm();
        drop(scope);
        other.join().unwrap();
        bench.check();
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
        bench.end();
    });
}

#[test]
fn a_block_returns_home_while_another_thread_adopts_its_shard() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let dropper = thread::spawn(move || read_and_drop(block));
        let next = bench.spawn(|bench| {
            let _scope = bench.enter();
            bench.warm();
        });
        let shard = Arc::clone(&bench.shards()[0]);
        drop(scope);
        shard.end_binding(); // The end of a thread makes this call.
        dropper.join().unwrap();
        next.join().unwrap();
        drop(shard);
        bench.check();
        let stats = bench.caches.cache_stats("a").unwrap();
        assert_eq!((stats.live_blocks, stats.entries), (0, 2));
        bench.end();
    });
}

#[test]
fn a_block_that_returned_home_is_reused_only_after_its_release() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let dropper = thread::spawn(move || read_and_drop(block));
        // A miss drains the blocks that other threads dropped. The request gets a drained block or
        // another block.
        let again = bench.allocate();
        drop(scope);
        dropper.join().unwrap();
        read_and_drop(again);
        bench.check();
        bench.end();
    });
}
