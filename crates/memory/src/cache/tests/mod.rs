//! Tests of random programs of scopes, allocations, drops, invalidations and removals against a
//! naive model. The programs assert the invariants of every shard after each step, or after some
//! steps.

mod bindings;
mod entries;
mod pressure;
mod reports;
mod shared;
mod shared_model;
mod slabs;
mod streams;
mod threads;

use std::collections::BTreeMap;
use std::panic::Location;

use proptest::prelude::*;

use super::shard::set_current_stream;
use super::*;
use crate::device::StreamId;
use crate::device::host::HostBackend;
use crate::error::Result;
use crate::memory::MemoryConfig;
use crate::memory::{DeviceMemory, Reclaim};
use crate::pool::PoolKind;
use crate::source::fault::FaultPlan;
use crate::sync::{Arc, Mutex, Ordering};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn caches(limit_bytes: Option<u64>, fault: Option<FaultPlan>) -> CachesRef {
    caches_over(PoolKind::BestFit, limit_bytes, fault)
}

fn caches_over(pool: PoolKind, limit_bytes: Option<u64>, fault: Option<FaultPlan>) -> CachesRef {
    let backend = Arc::new(HostBackend::new());
    let config = MemoryConfig {
        pool,
        limit_bytes,
        fault,
        ..MemoryConfig::default()
    };
    let memory = DeviceMemory::new(backend, &config).unwrap();
    Caches::over(memory, CachesConfig::default())
}

impl Caches {
    /// Asserts the invariants of the memory, and of every shard without another thread inside.
    /// Returns the bytes of all arenas.
    fn check(&self) -> u64 {
        self.memory.check();
        let shards = self.all().into_iter().flat_map(|cache| cache.shards());
        let arena_bytes = shards.filter_map(|shard| Some(shard.guard()?.check()));
        arena_bytes.sum()
    }

    /// Serves a request like for a thread inside `stream`.
    #[track_caller]
    fn allocate_on(&self, bytes: u64, stream: StreamId) -> Result<BlockHandle> {
        set_current_stream(stream);
        let mut policies = [Policy::Recycle, Policy::Bump, Policy::Plan].into_iter();
        let hit = policies.find_map(|policy| self.hit(policy, bytes));
        set_current_stream(StreamId::default());
        if hit.is_none() && scope::settle() {
            return self.allocate_on(bytes, stream);
        }
        hit.map_or_else(
            || self.allocate_slowly(bytes, stream, Location::caller()),
            Ok,
        )
    }
}

/// Enters a cache with the thread's call-site cache, like a program.
fn enter(caches: &CachesRef, name: &str, policy: Option<Policy>) -> Entered {
    let options = EntryOptions {
        policy,
        max_bytes: None,
    };
    let place = Place::name(name);
    scope::reenter(place, Some(caches), &options).unwrap_or_else(|| {
        scope::settle();
        let known = scope::reenter(place, Some(caches), &options);
        known.unwrap_or_else(|| {
            let entered = scope::enter_name_on(caches, name, &options);
            scope::remember(&entered, place, &options);
            entered
        })
    })
}

#[derive(Clone, Debug)]
enum CacheStep {
    Enter(usize, Option<Policy>),
    EnterUncached,
    Leave,
    LeaveOutOfOrder(usize),
    Allocate(u64),
    Share(usize),
    Drop(usize),
    DropElsewhere(usize),
    Invalidate(usize),
    Remove(usize),
    Trim,
    LookUp,
}

fn steps() -> impl Strategy<Value = Vec<CacheStep>> {
    let policy = prop::option::of(prop::sample::select(vec![
        Policy::Recycle,
        Policy::Release,
        Policy::Bump,
        Policy::Plan,
    ]));
    let step = prop_oneof![
        4 => (0..NAMES.len(), policy).prop_map(|(name, policy)| CacheStep::Enter(name, policy)),
        1 => Just(CacheStep::EnterUncached),
        4 => Just(CacheStep::Leave),
        1 => any::<usize>().prop_map(CacheStep::LeaveOutOfOrder),
        10 => (0u64..100_000).prop_map(CacheStep::Allocate),
        2 => any::<usize>().prop_map(CacheStep::Share),
        8 => any::<usize>().prop_map(CacheStep::Drop),
        2 => any::<usize>().prop_map(CacheStep::DropElsewhere),
        1 => (0..NAMES.len()).prop_map(CacheStep::Invalidate),
        1 => (0..NAMES.len()).prop_map(CacheStep::Remove),
        1 => Just(CacheStep::Trim),
        1 => Just(CacheStep::LookUp),
    ];
    prop::collection::vec(step, 1..150)
}

/// The live handles of a program. Invariant: the blocks do not overlap, and each block contains the
/// byte that was written at its creation.
#[derive(Default)]
struct Model {
    live: Vec<(BlockHandle, u8)>,
    written: u8,
}

impl Model {
    fn allocate(&mut self, caches: &Caches, bytes: u64) {
        let handle = match caches.allocate_on(bytes, StreamId::default()) {
            Ok(handle) => handle,
            Err(error) => return assert!(error.is_out_of_memory()),
        };
        assert_eq!(handle.requested_bytes, bytes);
        assert!(handle.block.bytes() >= bytes);
        self.written = self.written.wrapping_add(1);
        shard::fill(caches.memory.backend(), &handle, self.written).unwrap();
        self.live.push((handle, self.written));
    }

    fn remove(&mut self, index: usize) -> Option<BlockHandle> {
        let index = index.checked_rem(self.live.len())?;
        Some(self.live.swap_remove(index).0)
    }

    fn check(&self, caches: &Caches) {
        let mut distinct = BTreeMap::new();
        for (handle, written) in &self.live {
            if handle.block.bytes() == 0 {
                continue;
            }
            let bytes = shard::read(caches.memory.backend(), handle);
            assert!(
                bytes.iter().all(|byte| byte == written),
                "somebody wrote into a live block"
            );
            distinct.insert(handle.block.address.0, handle.requested_bytes);
        }
        let stats = caches.memory_stats();
        assert_eq!(stats.live_blocks, distinct.len() as u64);
        assert_eq!(stats.live_bytes, distinct.values().sum::<u64>());
        assert!(
            stats.live_bytes <= stats.allocated_bytes
                && stats.allocated_bytes <= stats.reserved_bytes
        );
        assert!(stats.peak_live_bytes >= stats.live_bytes);
    }
}

/// Runs a program inside the device. Checks the invariants after every `stride` steps. A check
/// settles a deferred entry, so a larger stride lets more steps run in deferred entries.
fn run(caches: &CachesRef, steps: Vec<CacheStep>, stride: usize) {
    let _device = scope::enter_device(caches);
    let mut model = Model::default();
    let mut entered = Vec::new();
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            CacheStep::Enter(name, policy) if entered.len() < 6 => {
                entered.push(enter(caches, NAMES[name], policy));
            }
            CacheStep::EnterUncached if entered.len() < 6 => entered.push(scope::enter_uncached()),
            CacheStep::Enter(..) | CacheStep::EnterUncached => {}
            CacheStep::Leave => drop(entered.pop()),
            CacheStep::LeaveOutOfOrder(index) if !entered.is_empty() => {
                drop(entered.remove(index % entered.len()));
            }
            CacheStep::LeaveOutOfOrder(_) => {}
            CacheStep::Allocate(bytes) => model.allocate(caches, bytes),
            CacheStep::Share(index) if !model.live.is_empty() => {
                let (handle, written) = &model.live[index % model.live.len()];
                let shared = (handle.clone(), *written);
                model.live.push(shared);
            }
            CacheStep::Share(_) => {}
            CacheStep::Drop(index) => drop(model.remove(index)),
            CacheStep::DropElsewhere(index) => {
                if let Some(handle) = model.remove(index) {
                    std::thread::spawn(move || drop(handle)).join().unwrap();
                }
            }
            CacheStep::Invalidate(name) => {
                let cached = caches
                    .cache_stats(NAMES[name])
                    .map_or(0, |stats| stats.cached_bytes);
                let given = caches.invalidate(NAMES[name]).bytes;
                // The remaining bytes belong to arenas with live suballocations.
                assert!(given <= cached && cached - given <= caches.check());
            }
            CacheStep::Remove(name) => drop(caches.remove(NAMES[name])),
            CacheStep::Trim => drop(caches.trim(0)),
            CacheStep::LookUp => drop(caches.memory_stats()),
        }
        if index % stride == 0 {
            caches.check();
            model.check(caches);
        }
    }
    while let Some(guard) = entered.pop() {
        drop(guard);
    }
    let shards = caches.all().into_iter().flat_map(|cache| cache.shards());
    assert!(
        shards.into_iter().all(|shard| !shard.is_held()),
        "all were left"
    );
    drop(model);
    caches.invalidate_all();
    caches.trim(0);
    caches.check();
    let stats = caches.memory_stats();
    assert_eq!(
        (stats.live_blocks, stats.live_bytes, stats.cached_bytes),
        (0, 0, 0)
    );
    assert_eq!(
        (stats.allocated_bytes, stats.reserved_bytes),
        (0, 0),
        "nothing is stranded"
    );
}

fn pools() -> impl Strategy<Value = PoolKind> {
    prop::sample::select(&PoolKind::ON_HOST[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_agree_with_a_naive_model(
        pool in pools(),
        steps in steps(),
        stride in 1usize..6,
    ) {
        run(&caches_over(pool, None, None), steps, stride);
    }

    #[test]
    fn random_programs_survive_exhaustion(
        pool in pools(),
        steps in steps(),
        limit in 100_000u64..3_000_000,
        stride in 1usize..6,
    ) {
        run(&caches_over(pool, Some(limit), None), steps, stride);
    }

    #[test]
    fn random_programs_survive_failing_reservations(
        pool in pools(),
        steps in steps(),
        seed: u64,
        stride in 1usize..6,
    ) {
        let fault = FaultPlan::Random { probability: 0.3, seed };
        run(&caches_over(pool, Some(4 << 20), Some(fault)), steps, stride);
    }
}

#[test]
fn a_device_ends_with_its_last_handle_and_its_last_live_block() {
    let caches = caches(None, None);
    let weak = caches.this.clone();
    let (escaped, uncached, empty) = {
        let _scope = enter(&caches, "a", None);
        let escaped = caches.allocate_on(1000, StreamId::default()).unwrap();
        drop(caches.allocate_on(5000, StreamId::default()).unwrap());
        let _outside = scope::enter_uncached();
        let uncached = caches.allocate_on(2000, StreamId::default()).unwrap();
        (
            escaped,
            uncached,
            caches.allocate_on(0, StreamId::default()).unwrap(),
        )
    };
    drop(caches);
    let inside = weak.upgrade().expect("live blocks keep the device");
    let stats = inside.memory_stats();
    assert_eq!(
        (stats.live_blocks, stats.live_bytes, stats.cached_bytes),
        (2, 3000, 0)
    );
    drop(inside);

    // A live block still returns a valid handle on its device. When this handle drops, the device
    // closes again.
    let again = escaped.home().device().clone();
    let second = again.allocate_on(3000, StreamId::default()).unwrap();
    {
        let _scope = enter(&again, "a", None);
        drop(again.allocate_on(3000, StreamId::default()).unwrap());
    }
    assert_eq!(again.memory_stats().live_blocks, 3);
    drop(again);
    std::thread::spawn(move || drop(second)).join().unwrap();
    drop(escaped);
    drop(uncached);
    assert!(
        weak.upgrade().is_some(),
        "a handle without a block counts too"
    );
    drop(empty);
    assert!(weak.upgrade().is_none(), "nothing is left to keep it");
}

#[test]
fn headers_of_nothing_do_not_pile_up() {
    let caches = caches(None, None);
    for _ in 0..1000 {
        drop(caches.allocate_on(0, StreamId::default()).unwrap());
    }
    let shard = caches.uncached.lock().clone().unwrap();
    let remote = shard.remote.drain();
    assert!(remote.iter().count() < 2);
    for header in remote {
        shard.guard().unwrap().free(header);
    }
}

#[test]
fn a_shard_drains_after_a_signal_during_its_exit() {
    const ROUNDS: usize = 2000;
    let caches = caches(None, None);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..ROUNDS {
                let scope = enter(&caches, "a", Some(Policy::Release));
                let blocks = (0..16).map(|_| caches.allocate_on(512, StreamId::default()).unwrap());
                drop(blocks.collect::<Vec<_>>());
                barrier.wait();
                drop(scope);
                barrier.wait();
            }
        });
        let mut missed = 0;
        for _ in 0..ROUNDS {
            barrier.wait();
            caches.invalidate("a");
            barrier.wait();
            let shards = caches.all()[0].shards();
            missed += usize::from(shards.iter().any(|shard| shard.is_signalled()));
        }
        assert_eq!(missed, 0, "of {ROUNDS} invalidations");
    });
}

#[test]
fn a_forgotten_guard_is_left_at_the_end_of_its_thread() {
    let caches = caches(None, None);
    let other = caches.clone();
    std::thread::spawn(move || {
        std::mem::forget(enter(&other, "a", None));
        drop(other.allocate_on(1000, StreamId::default()).unwrap());
    })
    .join()
    .unwrap();
    assert_eq!(caches.cache_stats("a").unwrap().cached_blocks, 1);
    assert_eq!(
        caches.invalidate("a").blocks,
        1,
        "nobody is inside any more"
    );
    let weak = caches.this.clone();
    drop(caches);
    assert!(
        weak.upgrade().is_none(),
        "the forgotten frame let go of the device"
    );
}
