//! Tests of the model of CUDA's pool. Small traces test its rules, and random traces its
//! invariants.

use super::*;
use crate::simulation::DriverCall;

const MIB: u64 = 1 << 20;

fn pool(limit_bytes: Option<u64>) -> CudaPool {
    let costs = DriverCosts::named("h100").unwrap();
    let ledger = Some(DriverLedger::new(&costs));
    CudaPool::new(limit_bytes, Driver { ledger })
}

fn calls(pool: &mut CudaPool, call: DriverCall) -> u64 {
    pool.driver().ledger.as_ref().unwrap().calls_of(call)
}

fn take(pool: &mut CudaPool, mib: u64) -> ModelBlock {
    let block = pool.allocate(mib * MIB).unwrap();
    pool.check();
    block
}

#[test]
fn the_pool_grows_by_steps_and_serves_what_was_freed() {
    let mut pool = pool(None);
    let first = take(&mut pool, 20);
    assert_eq!(pool.reserved_bytes(), 32 * MIB);
    let second = take(&mut pool, 10);
    assert_eq!((pool.reserved_bytes(), second.start), (32 * MIB, 20 * MIB));
    let third = take(&mut pool, 33);
    assert_eq!(pool.reserved_bytes(), 64 * MIB, "2 MiB were left");
    let start = first.start;
    pool.free(first);
    assert_eq!(take(&mut pool, 20).start, start);
    assert_eq!(pool.reserved_bytes(), 64 * MIB);
    assert_eq!(calls(&mut pool, DriverCall::MemCreate), 2);
    assert_eq!(calls(&mut pool, DriverCall::MemSetAccess), 2);
    assert_eq!(calls(&mut pool, DriverCall::MemAllocAsync), 4);
    assert_eq!(calls(&mut pool, DriverCall::MemFreeAsync), 1);
    assert_eq!(calls(&mut pool, DriverCall::MemUnmap), 0);
    pool.free(second);
    pool.free(third);
    pool.check();
}

#[test]
fn scattered_free_memory_is_remapped_before_the_pool_grows() {
    let mut pool = pool(None);
    let mut blocks: Vec<_> = (0..8).map(|_| take(&mut pool, 8)).collect();
    assert_eq!(pool.reserved_bytes(), 64 * MIB);
    for index in [5, 3, 1] {
        pool.free(blocks.remove(index));
    }
    // Free pieces of 8 MiB exist, but no contiguous 20 MiB.
    let large = take(&mut pool, 20);
    assert_eq!(pool.reserved_bytes(), 64 * MIB);
    assert_eq!(calls(&mut pool, DriverCall::MemUnmap), 10);
    assert_eq!(calls(&mut pool, DriverCall::MemMap), 2 + 10);
    let more = take(&mut pool, 12);
    assert_eq!(
        pool.reserved_bytes(),
        96 * MIB,
        "4 MiB are reused, 8 are new"
    );
    for block in blocks.into_iter().chain([large, more]) {
        pool.free(block);
        pool.check();
    }
}

#[test]
fn random_programs_keep_the_invariants_and_the_limit() {
    for limit_bytes in [None, Some(12 * MIB)] {
        let (mut state, mut failures) = (3u64, 0);
        let mut next = || {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            state >> 33
        };
        let mut pool = pool(limit_bytes);
        let mut live: Vec<(ModelBlock, u64)> = Vec::new();
        for _ in 0..3000 {
            if live.len() < 20 && next() % 2 == 0 {
                let bytes = 1 + next() % (1 << (next() % 25));
                match pool.allocate(bytes) {
                    Some(block) => live.push((block, bytes)),
                    None => failures += 1,
                }
            } else if !live.is_empty() {
                let (block, _) = live.swap_remove(next() as usize % live.len());
                pool.free(block);
            }
            let used = pool.check();
            assert_eq!(used.len(), live.len());
            for (block, bytes) in &live {
                let index = used.binary_search_by_key(&block.start, |&(start, _)| start);
                assert_eq!(used[index.unwrap()].1, bytes.next_multiple_of(UNIT_BYTES));
            }
            assert!(pool.reserved_bytes() <= limit_bytes.unwrap_or(u64::MAX));
        }
        assert_eq!(failures > 0, limit_bytes.is_some());
    }
}

#[test]
fn giants_end_in_a_failure_and_in_no_overflow() {
    for kind in ModelKind::ALL {
        let mut model = kind.build(None, Driver::default());
        for bytes in [u64::MAX, u64::MAX - 511, (1 << 63) + 1] {
            assert!(model.allocate(bytes).is_none());
            model.check();
        }
    }
}
