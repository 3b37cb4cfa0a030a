//! Random entries of one scope that differ in a few steps, or alternate between a few bodies with
//! common prefixes. So entries follow, leave and lose plans, while a memory-pressure callback drops
//! and allocates blocks.

use proptest::prelude::*;

use super::*;
use crate::memory::CallbackId;

const SIZES: [u64; 6] = [0, 600, 1000, 5000, 40_000, 90_000];

#[derive(Clone, Debug)]
enum EntryStep {
    Allocate(usize),
    AllocateOnOther(usize),
    AllocateUncached(usize),
    Drop(usize),
    DropElsewhere(usize),
    /// Retains a live block after the end of the entry.
    Escape(usize),
    /// Moves a live block to the callback, which may drop it.
    Spare(usize),
    DropEscaped,
    EnterAgain,
    EnterOther,
    Leave,
    Invalidate,
    Reclaim(u64),
    Configure(Policy, bool, Option<u64>),
    Limit(Option<u64>),
}

fn policies() -> impl Strategy<Value = Policy> {
    let policies = [
        Policy::Plan,
        Policy::Plan,
        Policy::Bump,
        Policy::Recycle,
        Policy::Release,
    ];
    prop::sample::select(policies.to_vec())
}

fn one_step() -> impl Strategy<Value = EntryStep> {
    let limit = prop::option::of(100_000u64..2_000_000);
    prop_oneof![
        12 => (0..SIZES.len()).prop_map(EntryStep::Allocate),
        1 => (0..SIZES.len()).prop_map(EntryStep::AllocateOnOther),
        1 => (0..SIZES.len()).prop_map(EntryStep::AllocateUncached),
        8 => any::<usize>().prop_map(EntryStep::Drop),
        1 => any::<usize>().prop_map(EntryStep::DropElsewhere),
        1 => any::<usize>().prop_map(EntryStep::Escape),
        1 => any::<usize>().prop_map(EntryStep::Spare),
        1 => Just(EntryStep::DropEscaped),
        1 => Just(EntryStep::EnterAgain),
        1 => Just(EntryStep::EnterOther),
        2 => Just(EntryStep::Leave),
        2 => Just(EntryStep::Invalidate),
        1 => (1u64..1_000_000).prop_map(EntryStep::Reclaim),
        1 => (policies(), any::<bool>(), prop::option::of(10_000u64..400_000))
            .prop_map(|(policy, record, max_bytes)| EntryStep::Configure(policy, record, max_bytes)),
        2 => limit.prop_map(EntryStep::Limit),
    ]
}

/// Returns steps that mostly allocate and drop blocks.
fn base() -> impl Strategy<Value = Vec<EntryStep>> {
    let step = prop_oneof![
        24 => (1..SIZES.len()).prop_map(EntryStep::Allocate),
        1 => (1..SIZES.len()).prop_map(EntryStep::AllocateOnOther),
        18 => any::<usize>().prop_map(EntryStep::Drop),
        2 => any::<usize>().prop_map(EntryStep::Escape),
        2 => Just(EntryStep::EnterAgain),
        2 => Just(EntryStep::Leave),
    ];
    prop::collection::vec(step, 1..25)
}

/// Returns a body, and further bodies that have a common prefix with it and continue differently.
fn bodies() -> impl Strategy<Value = Vec<Vec<EntryStep>>> {
    let others = prop::collection::vec((any::<prop::sample::Index>(), base()), 0..5);
    (base(), others).prop_map(|(first, others)| {
        let other = |(cut, rest): (prop::sample::Index, Vec<EntryStep>)| {
            [&first[..cut.index(first.len() + 1)], &rest].concat()
        };
        let others: Vec<_> = others.into_iter().map(other).collect();
        others.into_iter().chain([first.clone()]).collect()
    })
}

fn sum_bytes(steps: &[EntryStep]) -> u64 {
    let bytes = steps.iter().map(|step| match step {
        EntryStep::Allocate(size)
        | EntryStep::AllocateOnOther(size)
        | EntryStep::AllocateUncached(size) => SIZES[*size].next_power_of_two().max(512),
        _ => 0,
    });
    bytes.sum()
}

type Held = Arc<Mutex<Vec<(BlockHandle, u8)>>>;

/// The live blocks, by holder.
#[derive(Default)]
struct Entries {
    live: Vec<(BlockHandle, u8)>,
    escaped: Vec<(BlockHandle, u8)>,
    spare: Held,
    written: Arc<std::sync::atomic::AtomicU8>,
    /// A stream other than the default stream.
    other: StreamId,
}

fn fresh(
    caches: &Caches,
    written: &std::sync::atomic::AtomicU8,
    bytes: u64,
    stream: Option<StreamId>,
) -> Option<(BlockHandle, u8)> {
    let result = match stream {
        Some(stream) => caches.allocate_on(bytes, stream),
        None => caches.allocate_uncached(bytes, Location::caller()),
    };
    let handle = result
        .map_err(|error| assert!(error.is_out_of_memory()))
        .ok()?;
    let byte = written.fetch_add(1, Ordering::Relaxed);
    shard::fill(caches.memory.backend(), &handle, byte).unwrap();
    Some((handle, byte))
}

impl Entries {
    /// Registers a pressure callback that drops the spare blocks, and allocates the requested bytes
    /// before the request is served.
    fn install(&self, caches: &CachesRef) -> CallbackId {
        let weak = caches.downgrade();
        let (spare, written) = (Arc::clone(&self.spare), Arc::clone(&self.written));
        caches.memory.callbacks().add(move |request| {
            let given = std::mem::take(&mut *spare.lock());
            let bytes: u64 = given.iter().map(|(handle, _)| handle.block.bytes()).sum();
            drop(given);
            if let Some(caches) = weak.upgrade().filter(|_| bytes > 0) {
                for bytes in [request, 600] {
                    let one = fresh(&caches, &written, bytes, Some(StreamId::default()));
                    spare.lock().extend(one);
                }
            }
            bytes
        })
    }

    /// Asserts that each live block contains its written byte and overlaps with no other block.
    /// Asserts that the statistics are consistent. Asserts that the reserved bytes are in
    /// proportion to `entry_bytes`, the maximum bytes of an entry. Idle blocks and slabs may need
    /// about the bytes of one entry. Each array that outlives its entry may add a slab or arena.
    fn check(&self, caches: &Caches, entry_bytes: u64) {
        let spare = self.spare.lock();
        let mut ranges = Vec::new();
        let mut live_bytes = 0;
        for (handle, byte) in self.live.iter().chain(&self.escaped).chain(&*spare) {
            let held = shard::read(caches.memory.backend(), handle);
            assert!(held.iter().all(|other| other == byte), "two owners");
            live_bytes += handle.requested_bytes;
            if handle.block.bytes() > 0 {
                let begin = handle.block.address.0;
                ranges.push((begin, begin + handle.block.bytes()));
            }
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:x?} overlap");
        }
        let stats = caches.memory_stats();
        assert_eq!(stats.live_blocks, ranges.len() as u64);
        assert_eq!(stats.live_bytes, live_bytes);
        let block_bytes: u64 = ranges.iter().map(|(begin, end)| end - begin).sum();
        assert!(block_bytes + stats.cached_bytes <= stats.allocated_bytes);
        assert!(stats.allocated_bytes <= stats.reserved_bytes);
        assert!(stats.peak_live_bytes >= live_bytes);
        for cache in caches.all() {
            let cache_stats = cache.stats();
            let idle_bytes = cache_stats.cached_bytes + cache_stats.detached_bytes;
            assert!(cache_stats.live_bytes + idle_bytes <= cache.owned_bytes());
            assert!(cache_stats.escaped_blocks <= cache_stats.live_blocks);
        }
        let entries = 8 + ranges.len() as u64;
        assert!(
            stats.reserved_bytes <= entries * entry_bytes + (8 << 20),
            "{stats:?}"
        );
        caches.check();
    }

    fn step(&mut self, caches: &CachesRef, step: &EntryStep, entered: &mut Vec<Entered>) {
        let at = |index: usize, live: &Vec<_>| index.checked_rem(live.len());
        match *step {
            EntryStep::Allocate(size) => {
                let one = fresh(
                    caches,
                    &self.written,
                    SIZES[size],
                    Some(StreamId::default()),
                );
                self.live.extend(one);
            }
            EntryStep::AllocateOnOther(size) => {
                let one = fresh(caches, &self.written, SIZES[size], Some(self.other));
                self.live.extend(one);
            }
            EntryStep::AllocateUncached(size) => {
                let one = fresh(caches, &self.written, SIZES[size], None);
                self.live.extend(one);
            }
            EntryStep::Drop(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.live.remove(index);
                }
            }
            EntryStep::DropElsewhere(index) => {
                if let Some(index) = at(index, &self.live) {
                    let one = self.live.remove(index);
                    std::thread::spawn(move || drop(one)).join().unwrap();
                }
            }
            EntryStep::Escape(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.escaped.push(self.live.remove(index));
                }
            }
            EntryStep::Spare(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.spare.lock().push(self.live.remove(index));
                }
            }
            EntryStep::DropEscaped => drop(self.escaped.pop()),
            EntryStep::EnterAgain if entered.len() < 5 => {
                entered.push(enter(caches, "entries", None));
            }
            EntryStep::EnterOther if entered.len() < 5 => {
                entered.push(enter(caches, "other", None));
            }
            EntryStep::EnterAgain | EntryStep::EnterOther => {}
            EntryStep::Leave => drop(entered.pop()),
            EntryStep::Invalidate => drop(caches.invalidate("entries")),
            EntryStep::Reclaim(bytes) => drop(caches.reclaim(bytes)),
            EntryStep::Configure(policy, record, max_bytes) => caches.configure(
                "entries",
                CacheConfig {
                    policy,
                    record,
                    max_bytes,
                    keep_entries: Some(3),
                    ..CacheConfig::default()
                },
            ),
            EntryStep::Limit(limit_bytes) => caches.set_limit(limit_bytes),
        }
    }
}

/// The index of an entry's body, and the steps that are inserted in it.
type Turn = (prop::sample::Index, Vec<(usize, EntryStep)>);

fn run(pool: PoolKind, config: CacheConfig, bodies: &[Vec<EntryStep>], turned: Vec<Turn>) {
    let caches = caches_over(pool, None, None);
    let mut entries = Entries {
        other: caches.memory.backend().new_stream().unwrap(),
        ..Entries::default()
    };
    let callback = entries.install(&caches);
    caches.configure("entries", config);
    let mut entry_bytes = bodies.iter().map(|body| sum_bytes(body)).sum();
    for (which, changes) in turned {
        let mut steps = which.get(bodies).clone();
        for (index, step) in changes {
            let index = index % (steps.len() + 1);
            steps.insert(index, step);
        }
        entry_bytes = sum_bytes(&steps).max(entry_bytes);
        let scope = enter(&caches, "entries", None);
        let mut entered = Vec::new();
        for step in &steps {
            entries.step(&caches, step, &mut entered);
            entries.check(&caches, entry_bytes);
        }
        entries.live.clear();
        while let Some(guard) = entered.pop() {
            drop(guard);
        }
        drop(scope);
        entries.check(&caches, entry_bytes);
    }
    caches.memory.callbacks().remove(callback);
    drop(entries);
    caches.invalidate_all();
    caches.trim(0);
    caches.check();
    let stats = caches.memory_stats();
    assert_eq!((stats.live_blocks, stats.reserved_bytes), (0, 0));
    let weak = caches.this.clone();
    drop(caches);
    assert!(weak.upgrade().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn entries_that_differ_a_little_never_share_a_block(
        pool in pools(),
        policy in policies(),
        keep_entries in prop::sample::select(vec![Some(3), Some(64), None]),
        bodies in bodies(),
        turned in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![
                    2 => Just(Vec::new()),
                    1 => prop::collection::vec((any::<usize>(), one_step()), 1..5),
                ],
            ),
            3..16,
        ),
    ) {
        let config = CacheConfig {
            policy,
            keep_entries,
            ..CacheConfig::default()
        };
        run(pool, config, &bodies, turned);
    }
}
