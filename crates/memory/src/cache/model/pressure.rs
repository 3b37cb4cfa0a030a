//! Models of a thread that waits for memory, and of threads inside scopes with idle blocks. The
//! waiting thread gets memory, whatever action the threads inside take next.

use super::*;
use crate::sync::{AtomicU64, Ordering, yield_now};

/// A limit of two blocks.
const LIMIT: u64 = 2048;

/// Runs `inside` in a scope with a live and an idle block, while another thread requests a block.
/// At most one block of the scope is live, so the limit allows the requested block.
fn request_while(inside: impl Fn(&Bench, Entered, BlockHandle) + Copy + Send + Sync + 'static) {
    check_within(2, move || {
        let bench = Bench::limited(Some(LIMIT));
        let scope = bench.enter();
        let live = bench.allocate();
        bench.warm();
        let requester = bench.spawn(|bench| {
            let block = bench
                .try_allocate(1000)
                .expect("a live block leaves room for it");
            read_and_drop(block);
        });
        inside(&bench, scope, live);
        requester.join().unwrap();
        bench.caches.drain_all();
        bench.check();
        bench.end();
    });
}

#[test]
fn a_thread_that_leaves_releases() {
    request_while(|_, scope, live| {
        drop(scope);
        read_and_drop(live);
    });
}

#[test]
fn a_thread_that_drops_a_block_releases() {
    request_while(|_, scope, live| {
        read_and_drop(live);
        drop(scope);
    });
}

#[test]
fn a_thread_that_makes_a_request_releases() {
    request_while(|bench, scope, live| {
        read_and_drop(live);
        drop(bench.try_allocate(1000));
        drop(scope);
    });
}

#[test]
fn a_thread_that_enters_again_releases() {
    request_while(|bench, scope, live| {
        read_and_drop(live);
        drop(scope);
        drop(bench.enter());
    });
}

#[test]
fn a_thread_that_stays_inside_releases() {
    check_within(1, || {
        let bench = Bench::limited(Some(LIMIT));
        let is_served = Arc::new(AtomicU64::new(0));
        let scope = bench.enter();
        drop([bench.allocate(), bench.allocate()]);
        let served = Arc::clone(&is_served);
        let requester = bench.spawn(move |bench| {
            let block = bench.try_allocate(1000).expect("there is room for it");
            read_and_drop(block);
            served.store(1, Ordering::Release);
        });
        // The first request of this loop may still be a hit.
        while is_served.load(Ordering::Acquire) == 0 {
            drop(bench.try_allocate(1000));
            yield_now();
        }
        drop(scope);
        requester.join().unwrap();
        bench.caches.drain_all();
        bench.check();
        bench.end();
    });
}

#[test]
fn threads_that_wait_for_each_other_do_not_deadlock() {
    check_within(2, || {
        let bench = Bench::limited(Some(LIMIT));
        let work = |bench: &Bench| {
            let _scope = bench.enter();
            drop(bench.try_allocate(1000));
            // This request needs the idle blocks of the two threads. While the other thread holds
            // these two blocks, the request fails.
            bench.try_allocate(2000).is_ok()
        };
        let other = bench.spawn(work);
        let here = work(&bench);
        assert!(here | other.join().unwrap(), "both were refused");
        bench.caches.drain_all();
        bench.check();
        bench.end();
    });
}
