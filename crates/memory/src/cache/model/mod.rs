//! Models of threads that affect each other through the caches. The tool loom runs the models in
//! every order of the threads' steps. It also tries every value that the memory model allows for a
//! load. The command is `RUSTFLAGS="--cfg loom" cargo test --profile loom --lib cache::model`. Each
//! file of this module documents the subject of its models.
//!
//! Each model is a program of two or three threads that uses the real types. A model is small
//! enough to run in all orders with a bounded number of preemptions. A model fails if threads
//! deadlock, or race on a header or on the guarded state of a shard. Assertions check other
//! properties.

mod bindings;
mod closing;
mod deferred;
mod elsewhere;
mod handles;
mod pressure;
mod remote;
mod shared;
mod signals;
mod visits;

use std::panic::Location;
use std::time::Duration;

use loom::thread;

use super::shard::Shard;
use super::*;
use crate::device::StreamId;
use crate::device::host::HostBackend;
use crate::error::Result;
use crate::memory::{DeviceMemory, MemoryConfig, Reclaim};
use crate::pool::PoolKind;
use crate::sync::Arc;

/// The maximum number of preemptions in one run, unless `LOOM_MAX_PREEMPTIONS` overrides it.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_within(usize::MAX, model);
}

/// Like [`check`], but with at most `preemptions` preemptions, even if `LOOM_MAX_PREEMPTIONS` is
/// larger.
fn check_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let bound = builder.preemption_bound.unwrap_or(PREEMPTIONS);
    builder.preemption_bound = Some(bound.min(preemptions));
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A device whose memory comes from the system, block by block.
struct Bench {
    caches: CachesRef,
    backend: Arc<HostBackend>,
}

impl Bench {
    fn new() -> Arc<Self> {
        Self::limited(None)
    }

    /// Creates a device with a memory limit. The wait of a request never times out, because its
    /// bound exceeds the time of a run.
    fn limited(limit_bytes: Option<u64>) -> Arc<Self> {
        let backend = Arc::new(HostBackend::of(1 << 30));
        let config = MemoryConfig {
            pool: PoolKind::Direct,
            expandable: false,
            limit_bytes,
            reclaim_wait: Duration::from_secs(1000),
            ..MemoryConfig::default()
        };
        let memory = DeviceMemory::new(Arc::<HostBackend>::clone(&backend), &config).unwrap();
        let caches = Caches::over(memory, CachesConfig::default());
        Arc::new(Self { caches, backend })
    }

    fn enter(&self) -> Entered {
        scope::enter_name(&self.caches, "a", &EntryOptions::NONE)
    }

    fn allocate(&self) -> BlockHandle {
        self.try_allocate(1000).unwrap()
    }

    fn try_allocate(&self, bytes: u64) -> Result<BlockHandle> {
        let (stream, caller) = (StreamId::default(), Location::caller());
        self.caches.allocate_slowly(bytes, stream, caller)
    }

    /// Leaves one idle block in the thread's current shard.
    fn warm(&self) {
        drop(self.allocate());
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
        self.caches
            .all()
            .iter()
            .flat_map(|cache| cache.shards())
            .collect()
    }

    /// Asserts the invariants of every shard. No thread may be inside a shard.
    fn check(&self) {
        for shard in self.shards() {
            assert!(!shard.is_signalled(), "a signal was not followed");
            let mut guard = shard.guard().expect("nobody is inside");
            guard.drain_remote();
            guard.check();
        }
    }

    fn spawn<R: 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let bench = Arc::clone(self);
        thread::spawn(move || work(&bench))
    }

    /// Drops the last handle on the device. No other thread may use the bench.
    fn close(self: Arc<Self>) -> Closed {
        let Self { caches, backend } = Arc::into_inner(self).expect("the threads were joined");
        Closed(caches.downgrade(), backend)
    }

    /// Drops the device, and asserts that it ends and has released all memory. No other handle or
    /// block may exist.
    fn end(self: Arc<Self>) {
        self.close().assert_is_over();
    }
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A device whose last handle has dropped.
struct Closed(WeakCaches, Arc<HostBackend>);

impl Closed {
    fn assert_is_over(self) {
        let Self(caches, backend) = self;
        assert_eq!(caches.strong_count(), 0, "somebody keeps the device");
        assert!(backend.holds_nothing(), "memory is stranded");
    }
}

/// Reads a block and drops it. A data race on the header fails the model.
fn read_and_drop(block: BlockHandle) {
    assert_eq!(block.requested_bytes, 1000);
    drop(block);
}
