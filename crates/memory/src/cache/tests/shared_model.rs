//! Random programs with requests of a shared handle, inside and between entries.

use super::*;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;

const POLICIES: [Policy; 4] = [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan];

#[derive(Clone, Debug)]
enum Step {
    Enter,
    Exit,
    Allocate(u64),
    Free(usize),
    Resize(usize, u64),
    Invalidate,
    Configure(Policy),
    Observe(bool),
}

fn step() -> impl Strategy<Value = Step> {
    // The number of sizes is small, so that entries repeat and are planned.
    let bytes = || prop::sample::select(vec![600_u64, 4096, 10_000, 70_000]);
    prop_oneof![
        4 => Just(Step::Enter),
        4 => Just(Step::Exit),
        8 => bytes().prop_map(Step::Allocate),
        8 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), bytes()).prop_map(|(index, bytes)| Step::Resize(index, bytes)),
        1 => Just(Step::Invalidate),
        1 => prop::sample::select(POLICIES.to_vec()).prop_map(Step::Configure),
        1 => any::<bool>().prop_map(Step::Observe),
    ]
}

/// A shared handle, and its live blocks. Each block is stored with its length and its written byte.
struct Program {
    caches: CachesRef,
    cache: SharedCache,
    live: Vec<(SharedBlock, u64, u8)>,
    written: u8,
    depth: usize,
}

impl Program {
    fn new(policy: Policy) -> Self {
        let caches = caches(None, None);
        configure(&caches, policy);
        let cache = SharedCache::open(&caches, "a");
        Self {
            caches,
            cache,
            live: Vec::new(),
            written: 0,
            depth: 0,
        }
    }

    fn allocate(&mut self, bytes: u64) {
        let block = shared::allocate(&self.cache, bytes);
        self.written = self.written.wrapping_add(1);
        // SAFETY: the block is new, and has `bytes` bytes.
        unsafe { first_byte(&block).write_bytes(self.written, bytes as usize) };
        self.live.push((block, bytes, self.written));
    }

    fn free(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.live.len()) {
            shared::free(self.live.swap_remove(index).0);
        }
    }

    fn enter(&mut self) {
        self.depth += 1;
        assert!(self.cache.enter());
    }

    fn exit(&mut self) {
        assert_eq!(self.cache.exit(), self.depth > 0);
        self.depth = self.depth.saturating_sub(1);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Enter if self.depth < 3 => self.enter(),
            Step::Enter => {}
            Step::Exit => self.exit(),
            Step::Allocate(bytes) => self.allocate(bytes),
            Step::Free(index) => self.free(index),
            Step::Resize(index, bytes) => {
                self.allocate(bytes);
                self.free(index);
            }
            Step::Invalidate => drop(self.caches.invalidate("a")),
            Step::Configure(policy) => configure(&self.caches, policy),
            Step::Observe(observed) => self.caches.all()[0].settings.observe(observed),
        }
        self.check();
    }

    fn check(&self) {
        for (block, bytes, written) in &self.live {
            // SAFETY: the block is live, and `allocate` has written its `bytes` bytes.
            let found = unsafe { std::slice::from_raw_parts(first_byte(block), *bytes as usize) };
            assert!(
                found.iter().all(|byte| byte == written),
                "a live block was handed out again"
            );
        }
        self.caches.check();
        let stats = self.caches.cache_stats("a").unwrap();
        assert_eq!(stats.live_blocks, self.live.len() as u64);
    }

    /// Ends all entries and frees all blocks. Asserts that an invalidation then releases all
    /// memory.
    fn end(mut self) {
        while self.depth > 0 {
            self.exit();
        }
        self.live
            .drain(..)
            .for_each(|(block, ..)| shared::free(block));
        self.check();
        self.caches.invalidate("a");
        let stats = self.caches.cache_stats("a").unwrap();
        assert_eq!((stats.cached_blocks, stats.cached_bytes), (0, 0));
        assert_eq!(self.caches.memory_stats().allocated_bytes, 0);
    }
}

fn configure(caches: &CachesRef, policy: Policy) {
    let config = CacheConfig {
        policy,
        ..CacheConfig::default()
    };
    caches.configure("a", config);
}

fn first_byte(block: &SharedBlock) -> *mut u8 {
    host_pointer(DevicePtr(block.address()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_handle_serves_requests_anywhere(
        policy in prop::sample::select(POLICIES.to_vec()),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut program = Program::new(policy);
        for step in steps {
            program.run(step);
        }
        program.end();
    }
}

#[test]
fn a_block_of_between_two_entries_is_its_holders_alone() {
    for policy in POLICIES {
        for observed in [false, true] {
            let mut program = Program::new(policy);
            program.caches.all()[0].settings.observe(observed);
            for _ in 0..5 {
                program.enter();
                program.allocate(70_000);
                program.free(0);
                program.exit();
            }
            for _ in 0..3 {
                program.allocate(70_000); // This block outlives its scope.
                program.enter();
                program.allocate(70_000);
                program.check();
                program.exit();
            }
            program.run(Step::Resize(0, 100_000));
            program.end();
        }
    }
}

#[test]
fn a_change_of_policy_leaves_no_arena_behind() {
    for (before, after) in [
        (Policy::Bump, Policy::Recycle),
        (Policy::Plan, Policy::Recycle),
        (Policy::Bump, Policy::Plan),
    ] {
        let mut program = Program::new(before);
        for _ in 0..3 {
            program.enter();
            program.allocate(70_000);
            program.free(0);
            program.exit();
        }
        program.allocate(70_000);
        configure(&program.caches, after);
        program.enter();
        program.exit();
        program.end();
    }
}
