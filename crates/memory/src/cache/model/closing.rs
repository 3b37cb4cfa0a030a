//! Models of the end of a shard and of its device. The end happens once, and not before the last
//! block drops.

use super::*;

/// Drops the last handle of the device while other threads drop escaped or uncached blocks.
fn close_while(blocks: impl Fn(&Bench) -> Vec<BlockHandle>) {
    let bench = Bench::new();
    let weak = bench.caches.downgrade();
    let blocks = blocks(&bench);
    let threads: Vec<_> = blocks
        .into_iter()
        .map(|block| {
            let weak = weak.clone();
            thread::spawn(move || {
                assert!(weak.strong_count() > 0, "a block keeps its device");
                read_and_drop(block);
            })
        })
        .collect();
    let closed = bench.close();
    join(threads);
    closed.assert_is_over();
}

fn escaped(bench: &Bench) -> BlockHandle {
    let _scope = bench.enter();
    bench.allocate()
}

#[test]
fn a_block_drops_while_its_shard_closes() {
    check(|| close_while(|bench| vec![escaped(bench)]));
}

#[test]
fn two_blocks_drop_while_their_shard_closes() {
    check(|| close_while(|bench| vec![escaped(bench), escaped(bench)]));
}

#[test]
fn a_block_of_no_cache_drops_while_the_device_closes() {
    check(|| close_while(|bench| vec![bench.allocate()]));
}

#[test]
fn the_last_block_of_a_closed_device_ends_it() {
    check(|| {
        let bench = Bench::new();
        let (first, second) = (escaped(&bench), escaped(&bench));
        let closed = bench.close();
        let other = thread::spawn(move || read_and_drop(first));
        read_and_drop(second);
        other.join().unwrap();
        closed.assert_is_over();
    });
}

#[test]
fn a_device_that_is_requested_as_it_closes_closes_again() {
    check(|| {
        let bench = Bench::new();
        let block = escaped(&bench);
        let other = thread::spawn(move || {
            let again = block.home().device().clone();
            read_and_drop(block);
            drop(again);
        });
        let closed = bench.close();
        other.join().unwrap();
        closed.assert_is_over();
    });
}

#[test]
fn a_block_drops_while_its_cache_is_removed() {
    check(|| {
        let bench = Bench::new();
        let block = escaped(&bench);
        let other = thread::spawn(move || read_and_drop(block));
        bench.caches.remove("a");
        other.join().unwrap();
        let stats = bench.caches.memory_stats();
        assert_eq!((stats.live_blocks, stats.allocated_bytes), (0, 0));
        bench.end();
    });
}

#[test]
fn what_is_allocated_on_a_device_as_it_closes_closes_it_again() {
    check(|| {
        let bench = Bench::new();
        let block = escaped(&bench);
        let other = thread::spawn(move || {
            // `device` is not a counted handle. Only the block keeps the device alive.
            let device = block.home().device();
            let caller = Location::caller();
            let next = device.allocate_uncached(1000, caller);
            drop(block);
            read_and_drop(next.unwrap());
        });
        let closed = bench.close();
        other.join().unwrap();
        closed.assert_is_over();
    });
}
