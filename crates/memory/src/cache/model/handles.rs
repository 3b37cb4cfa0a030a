//! Models of concurrent handles on one block.

use super::*;

#[test]
fn the_last_of_two_handles_gives_the_block_back_once() {
    check(|| {
        let bench = Bench::new();
        let block = bench.allocate();
        let other = block.clone();
        let thread = thread::spawn(move || read_and_drop(other));
        read_and_drop(block);
        thread.join().unwrap();
        assert_eq!(bench.caches.memory_stats().live_blocks, 0);
        bench.end();
    });
}

#[test]
fn handles_are_counted_up_and_down_at_once() {
    check(|| {
        let bench = Bench::new();
        let block = bench.allocate();
        let other = block.clone();
        let thread = thread::spawn(move || {
            let third = other.clone();
            drop(other);
            read_and_drop(third);
        });
        read_and_drop(block.clone());
        read_and_drop(block);
        thread.join().unwrap();
        assert_eq!(bench.caches.memory_stats().live_blocks, 0);
        bench.end();
    });
}

#[test]
fn three_threads_drop_the_last_handles() {
    check(|| {
        let bench = Bench::new();
        let block = bench.allocate();
        let threads =
            [block.clone(), block.clone()].map(|block| thread::spawn(move || read_and_drop(block)));
        read_and_drop(block);
        join(threads);
        assert_eq!(bench.caches.memory_stats().live_blocks, 0);
        bench.end();
    });
}
