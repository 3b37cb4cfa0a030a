//! Tests random programs of allocations, frees, trims, limits and faults against a naive model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum ModelStep {
    Allocate(u64),
    Free(usize),
    /// Frees this many blocks, and releases the memory that becomes idle.
    Release(usize),
    Trim(u64),
    Limit(Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let step = prop_oneof![
        4 => (1u64..64 * 1024).prop_map(ModelStep::Allocate),
        1 => (64 * 1024..2 * MIB).prop_map(ModelStep::Allocate),
        3 => (1u64..16 * MIB).prop_map(ModelStep::Allocate),
        5 => any::<usize>().prop_map(ModelStep::Free),
        1 => (1..6usize).prop_map(ModelStep::Release),
        1 => (0u64..64 * MIB).prop_map(ModelStep::Trim),
        1 => prop::option::of(0u64..64 * MIB).prop_map(ModelStep::Limit),
    ];
    prop::collection::vec(step, 1..120)
}

/// A memory, and the model of its blocks.
struct Program {
    memory: DeviceMemory,
    faulty: bool,
    limit_bytes: Option<u64>,
    live: Vec<Block>,
    /// The lengths of the blocks handed out, by address.
    account: BTreeMap<u64, u64>,
}

impl Program {
    fn new(config: &MemoryConfig) -> Self {
        Self {
            memory: memory_with(config),
            faulty: config.fault.is_some(),
            limit_bytes: config.limit_bytes,
            live: Vec::new(),
            account: BTreeMap::new(),
        }
    }

    fn reserved_bytes(&self) -> u64 {
        self.memory.stats().reserved_bytes
    }

    fn run(&mut self, step: &ModelStep) {
        match *step {
            ModelStep::Allocate(bytes) => self.allocate(bytes),
            ModelStep::Free(index) if !self.live.is_empty() => {
                let block = self.forget(index);
                self.memory.free([block]);
            }
            ModelStep::Free(_) => {}
            ModelStep::Release(count) => self.release(count),
            ModelStep::Trim(keep_bytes) => {
                let before = self.reserved_bytes();
                let released_bytes = self.memory.trim(keep_bytes, WaitMode::Wait);
                assert_eq!(before - released_bytes, self.reserved_bytes());
                self.assert_trimmed(keep_bytes);
            }
            ModelStep::Limit(limit_bytes) => {
                self.limit_bytes = limit_bytes;
                self.memory.set_limit(limit_bytes);
                self.assert_trimmed(limit_bytes.unwrap_or(u64::MAX));
            }
        }
    }

    fn allocate(&mut self, bytes: u64) {
        match self.memory.allocate(&request(bytes)) {
            Ok(block) => self.hand_out(block, bytes),
            Err(error) => {
                assert!(error.is_out_of_memory());
                self.assert_exhausted(bytes);
            }
        }
    }

    fn hand_out(&mut self, block: Block, bytes: u64) {
        assert!(block.bytes() >= bytes);
        let (begin, end) = (block.address.0, block.address.0 + block.bytes());
        let before = self.account.range(..end).next_back();
        assert!(
            before.is_none_or(|(at, bytes)| at + bytes <= begin),
            "blocks overlap"
        );
        self.account.insert(begin, block.bytes());
        self.live.push(block);
    }

    fn forget(&mut self, index: usize) -> Block {
        let block = self.live.swap_remove(index % self.live.len());
        self.account.remove(&block.address.0);
        block
    }

    /// Frees `count` blocks. Asserts that the memory that becomes idle is released, and that
    /// earlier idle memory stays.
    fn release(&mut self, count: usize) {
        let idle_bytes = self.memory.idle_bytes();
        let count = count.min(self.live.len());
        let blocks: Vec<_> = (0..count).map(|_| self.forget(0)).collect();
        self.memory.free_and_release(blocks);
        assert_eq!(self.memory.idle_bytes(), idle_bytes);
    }

    /// Asserts that a failed request left no idle memory. Without an injected fault, the request
    /// must exceed the limit.
    fn assert_exhausted(&self, bytes: u64) {
        assert_eq!(self.memory.idle_bytes(), 0);
        let limit_bytes = self.limit_bytes.unwrap_or(u64::MAX);
        let block_bytes = self.memory.round(bytes).unwrap();
        assert!(self.faulty || self.reserved_bytes() + block_bytes > limit_bytes);
    }

    fn assert_trimmed(&self, keep_bytes: u64) {
        assert!(self.reserved_bytes() <= keep_bytes || self.memory.idle_bytes() == 0);
    }

    fn check(&self) {
        self.memory.check();
        let stats = self.memory.stats();
        assert_eq!(stats.allocated_bytes, self.account.values().sum::<u64>());
        assert!(stats.allocated_bytes <= stats.reserved_bytes);
        assert!(stats.reserved_bytes <= stats.peak_reserved_bytes);
        assert!((0.0..=1.0).contains(&stats.fragmentation()));
    }

    fn end(mut self) {
        self.memory.free(self.live.drain(..));
        self.memory.check();
        assert_eq!(self.memory.stats().allocated_bytes, 0);
        self.memory.trim(0, WaitMode::Wait);
        self.memory.check();
        let stats = self.memory.stats();
        assert_eq!((stats.reserved_bytes, stats.segments), (0, 0));
        assert_eq!(stats.reserves, stats.releases);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_agree_with_a_naive_account(
        pool in prop::sample::select(&PoolKind::ON_HOST[..]),
        steps in steps(),
        seed: u64,
        faulty: bool,
        expandable: bool,
    ) {
        let mut program = Program::new(&MemoryConfig {
            pool,
            limit_bytes: Some(48 * MIB),
            expandable,
            fault: faulty.then_some(FaultPlan::Random { probability: 0.2, seed }),
            ..MemoryConfig::default()
        });
        for step in &steps {
            program.run(step);
            program.check();
        }
        program.end();
    }
}
