//! Tests of the shard that a thread gets: its own shard, an ended thread's shard, or a new shard.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::sync::Arc;

/// Enters "a" on a new thread, allocates once, and ends the thread. Returns the block's address.
fn visit(caches: &CachesRef) -> u64 {
    let caches = caches.clone();
    let visit = move || {
        let _scope = enter(&caches, "a", None);
        let block = caches.allocate_on(1000, StreamId::default()).unwrap();
        block.block.address.0
    };
    thread::spawn(visit).join().unwrap()
}

fn shards(caches: &CachesRef) -> usize {
    caches.all()[0].shards().len()
}

/// A thread that executes sent tasks, until this value drops.
struct Worker {
    tasks: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    fn new() -> Self {
        let (tasks, told) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        Self {
            tasks: Some(tasks),
            thread: Some(thread::spawn(move || {
                told.into_iter().for_each(|task| task());
            })),
        }
    }

    fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send + 'static) -> R {
        let (answer, answered) = mpsc::channel();
        let task = move || answer.send(task()).unwrap();
        self.tasks.as_ref().unwrap().send(Box::new(task)).unwrap();
        answered.recv().unwrap()
    }

    fn allocate_in_scope(&self, caches: &CachesRef) -> u64 {
        let caches = caches.clone();
        self.run(move || {
            let _scope = enter(&caches, "a", None);
            let block = caches.allocate_on(1000, StreamId::default()).unwrap();
            block.block.address.0
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.tasks.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn threads_one_after_another_use_one_shard() {
    let caches = caches(None, None);
    let first = visit(&caches);
    for entry in 1..=5 {
        assert_eq!(visit(&caches), first, "the idle block is used again");
        let stats = caches.cache_stats("a").unwrap();
        assert_eq!((stats.misses, stats.hits), (1, entry), "and counted on");
    }
    assert_eq!(shards(&caches), 1);
}

#[test]
fn a_thread_that_was_there_before_takes_over_what_an_ended_one_left() {
    let caches = caches(None, None);
    // This thread already has a thread identity, so it cannot get the identity of the ended thread.
    let patient = Worker::new();
    patient.run(|| ());
    let (first, second) = (Worker::new(), Worker::new());
    let left = first.allocate_in_scope(&caches);
    let kept = second.allocate_in_scope(&caches);
    drop(first);
    assert_eq!(patient.allocate_in_scope(&caches), left);
    assert_eq!(second.allocate_in_scope(&caches), kept);
    assert_eq!(shards(&caches), 2);
}

#[test]
fn no_thread_adopts_the_shard_of_a_living_thread() {
    let caches = caches(None, None);
    let (first, second) = (Worker::new(), Worker::new());
    let own = first.allocate_in_scope(&caches);
    assert_ne!(second.allocate_in_scope(&caches), own);
    assert_eq!(first.allocate_in_scope(&caches), own);
    assert_eq!(shards(&caches), 2);
}

#[test]
fn the_shard_that_was_used_last_is_taken_over_first() {
    let caches = caches(None, None);
    let (first, second) = (Worker::new(), Worker::new());
    let early = first.allocate_in_scope(&caches);
    let late = second.allocate_in_scope(&caches);
    drop((second, first));
    let (third, fourth) = (Worker::new(), Worker::new());
    assert_eq!(third.allocate_in_scope(&caches), late);
    assert_eq!(fourth.allocate_in_scope(&caches), early);
}

#[test]
fn a_forgotten_guard_does_not_keep_the_shard() {
    let caches = caches(None, None);
    for entries in 1..4 {
        let forgetful = caches.clone();
        let forget = move || {
            let _device = scope::enter_device(&forgetful);
            // From the second entry on, the frame of each entry is deferred.
            for entry in 0..entries {
                let scope = enter(&forgetful, "a", None);
                drop(forgetful.allocate_on(1000, StreamId::default()));
                if entry + 1 == entries {
                    std::mem::forget(scope);
                }
            }
        };
        thread::spawn(forget).join().unwrap();
        visit(&caches);
        assert_eq!(shards(&caches), 1);
    }
}

#[test]
fn a_thousand_short_threads_need_no_more_than_four_at_once_do() {
    let caches = caches_over(PoolKind::Direct, None, None);
    for _ in 0..250 {
        let wave: [_; 4] = std::array::from_fn(|_| {
            let caches = caches.clone();
            thread::spawn(move || {
                let _scope = enter(&caches, "a", None);
                let blocks =
                    [1 << 16, 1 << 12].map(|bytes| caches.allocate_on(bytes, StreamId::default()));
                drop(blocks.map(Result::unwrap));
            })
        });
        for thread in wave {
            thread.join().unwrap();
        }
    }
    assert!(shards(&caches) <= 4, "{} shards", shards(&caches));
    let stats = caches.memory_stats();
    assert!(
        stats.reserved_bytes <= 4 * ((1 << 16) + (1 << 12)),
        "{stats:?}"
    );
    let stats = caches.cache_stats("a").unwrap();
    assert_eq!(stats.hits + stats.misses, 2000);
    assert!(stats.misses <= 8, "{stats:?}");
}

#[test]
fn a_thread_unbinds_the_shards_of_removed_caches() {
    let caches = caches(None, None);
    drop(enter(&caches, "a", None));
    let first = Arc::downgrade(&caches.all()[0].shards()[0]);
    caches.remove("a");
    for number in 0..100 {
        let name = number.to_string();
        drop(enter(&caches, &name, None));
        caches.remove(&name);
    }
    assert!(first.upgrade().is_none());
}
