//! Turns of one scope that are alike but for a few steps, so that plans are followed, left and lost in
//! the middle, while a memory-pressure callback drops and allocates as well.

use proptest::prelude::*;

use super::*;
use crate::memory::CallbackId;

const SIZES: [u64; 6] = [0, 600, 1000, 5000, 40_000, 90_000];

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    AllocateUncached(usize),
    Drop(usize),
    DropElsewhere(usize),
    /// Outlives the turn.
    Keep(usize),
    /// Is what the callback may drop.
    Spare(usize),
    DropKept,
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

fn one_step() -> impl Strategy<Value = Step> {
    let limit = prop::option::of(100_000u64..2_000_000);
    prop_oneof![
        12 => (0..SIZES.len()).prop_map(Step::Allocate),
        1 => (0..SIZES.len()).prop_map(Step::AllocateUncached),
        8 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::DropElsewhere),
        1 => any::<usize>().prop_map(Step::Keep),
        1 => any::<usize>().prop_map(Step::Spare),
        1 => Just(Step::DropKept),
        1 => Just(Step::EnterAgain),
        1 => Just(Step::EnterOther),
        2 => Just(Step::Leave),
        2 => Just(Step::Invalidate),
        1 => (1u64..1_000_000).prop_map(Step::Reclaim),
        1 => (policies(), any::<bool>(), prop::option::of(10_000u64..400_000))
            .prop_map(|(policy, record, max_bytes)| Step::Configure(policy, record, max_bytes)),
        2 => limit.prop_map(Step::Limit),
    ]
}

/// Steps that rarely change anything but blocks.
fn base() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (1..SIZES.len()).prop_map(Step::Allocate),
        9 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Keep),
        1 => Just(Step::EnterAgain),
        1 => Just(Step::Leave),
    ];
    prop::collection::vec(step, 1..25)
}

type Held = Arc<Mutex<Vec<(BlockHandle, u8)>>>;

/// What is alive, by who holds it.
#[derive(Default)]
struct Turns {
    live: Vec<(BlockHandle, u8)>,
    kept: Vec<(BlockHandle, u8)>,
    spare: Held,
    written: Arc<std::sync::atomic::AtomicU8>,
}

fn fresh(
    caches: &Caches,
    written: &std::sync::atomic::AtomicU8,
    bytes: u64,
    uncached: bool,
) -> Option<(BlockHandle, u8)> {
    let result = if uncached {
        caches.allocate_uncached(bytes, StreamId::default(), Location::caller())
    } else {
        caches.allocate(bytes, StreamId::default())
    };
    let handle = result
        .map_err(|error| assert!(error.is_out_of_memory()))
        .ok()?;
    let byte = written.fetch_add(1, Ordering::Relaxed);
    shard::fill(caches.memory.backend(), &handle, byte).unwrap();
    Some((handle, byte))
}

impl Turns {
    /// Lets pressure drop what is spare, and allocate what was asked for, before it is served.
    fn install(&self, caches: &CachesRef) -> CallbackId {
        let weak = caches.downgrade();
        let (spare, written) = (Arc::clone(&self.spare), Arc::clone(&self.written));
        caches.memory.on_pressure(move |wanted| {
            let given = std::mem::take(&mut *spare.lock());
            let bytes: u64 = given.iter().map(|(handle, _)| handle.block.bytes()).sum();
            drop(given);
            if let Some(caches) = weak.upgrade().filter(|_| bytes > 0) {
                for bytes in [wanted, 600] {
                    let one = fresh(&caches, &written, bytes, false);
                    spare.lock().extend(one);
                }
            }
            bytes
        })
    }

    fn check(&self, caches: &Caches) {
        let spare = self.spare.lock();
        let mut distinct = BTreeMap::new();
        for (handle, byte) in self.live.iter().chain(&self.kept).chain(&*spare) {
            let held = shard::read(caches.memory.backend(), handle);
            assert!(held.iter().all(|other| other == byte), "two owners");
            if handle.block.bytes() > 0 {
                let before = distinct.insert(handle.block.address.0, handle.requested_bytes);
                assert_eq!(before, None);
            }
        }
        let stats = caches.memory_stats();
        assert_eq!(stats.live_blocks, distinct.len() as u64);
        assert_eq!(stats.live_bytes, distinct.values().sum::<u64>());
        caches.check();
    }

    fn step(&mut self, caches: &CachesRef, step: &Step, entered: &mut Vec<Entered>) {
        let at = |index: usize, live: &Vec<_>| index.checked_rem(live.len());
        match *step {
            Step::Allocate(size) => {
                let one = fresh(caches, &self.written, SIZES[size], false);
                self.live.extend(one);
            }
            Step::AllocateUncached(size) => {
                let one = fresh(caches, &self.written, SIZES[size], true);
                self.live.extend(one);
            }
            Step::Drop(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.live.remove(index);
                }
            }
            Step::DropElsewhere(index) => {
                if let Some(index) = at(index, &self.live) {
                    let one = self.live.remove(index);
                    std::thread::spawn(move || drop(one)).join().unwrap();
                }
            }
            Step::Keep(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.kept.push(self.live.remove(index));
                }
            }
            Step::Spare(index) => {
                if let Some(index) = at(index, &self.live) {
                    self.spare.lock().push(self.live.remove(index));
                }
            }
            Step::DropKept => drop(self.kept.pop()),
            Step::EnterAgain if entered.len() < 5 => entered.push(enter(caches, "turns", None)),
            Step::EnterOther if entered.len() < 5 => entered.push(enter(caches, "other", None)),
            Step::EnterAgain | Step::EnterOther => {}
            Step::Leave => drop(entered.pop()),
            Step::Invalidate => drop(caches.invalidate("turns")),
            Step::Reclaim(bytes) => drop(caches.reclaim(bytes)),
            Step::Configure(policy, record, max_bytes) => caches.configure(
                "turns",
                CacheConfig {
                    policy,
                    record,
                    max_bytes,
                    keep_entries: Some(3),
                    ..CacheConfig::default()
                },
            ),
            Step::Limit(limit_bytes) => caches.set_limit(limit_bytes),
        }
    }
}

fn run(pool: PoolKind, policy: Policy, base: &[Step], changes: Vec<Vec<(usize, Step)>>) {
    let caches = caches_over(pool, None, None);
    let mut turns = Turns::default();
    let callback = turns.install(&caches);
    let config = CacheConfig {
        policy,
        keep_entries: Some(3),
        ..CacheConfig::default()
    };
    caches.configure("turns", config);
    for changes in changes {
        let mut steps = base.to_vec();
        for (index, step) in changes {
            let index = index % (steps.len() + 1);
            steps.insert(index, step);
        }
        let scope = enter(&caches, "turns", None);
        let mut entered = Vec::new();
        for step in &steps {
            turns.step(&caches, step, &mut entered);
            turns.check(&caches);
        }
        turns.live.clear();
        while let Some(guard) = entered.pop() {
            drop(guard);
        }
        drop(scope);
        turns.check(&caches);
    }
    caches.memory.remove_callback(callback);
    drop(turns);
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
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn turns_that_differ_a_little_never_share_a_block(
        pool in pools(),
        policy in policies(),
        base in base(),
        changes in prop::collection::vec(
            prop_oneof![
                Just(Vec::new()),
                prop::collection::vec((any::<usize>(), one_step()), 1..5),
            ],
            3..10,
        ),
    ) {
        run(pool, policy, &base, changes);
    }
}
