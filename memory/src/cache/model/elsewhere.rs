//! Blocks that are dropped while their thread does not hold the shard, and the holder changes.

use loom::thread;

use super::*;

#[test]
fn a_block_comes_home_while_its_shard_is_left() {
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
fn a_block_comes_home_while_another_thread_takes_its_shard_over() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let dropper = thread::spawn(move || read_and_drop(block));
        let next = {
            let bench = Arc::clone(&bench);
            thread::spawn(move || {
                let _scope = bench.enter();
                bench.warm();
            })
        };
        let shard = Arc::clone(&bench.shards()[0]);
        drop(scope);
        shard.end_binding(); // As the end of a thread does.
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
fn what_came_home_is_handed_out_again_only_when_it_was_let_go() {
    check(|| {
        let bench = Bench::new();
        let scope = bench.enter();
        let block = bench.allocate();
        let dropper = thread::spawn(move || read_and_drop(block));
        // A miss drains what was dropped elsewhere, and returns the same block or another one.
        let again = bench.allocate();
        drop(scope);
        dropper.join().unwrap();
        read_and_drop(again);
        bench.check();
        bench.end();
    });
}
