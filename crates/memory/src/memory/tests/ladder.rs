//! Tests of the ladder, rung by rung.

use super::*;

/// An imitation of the named caches: a layer above that holds blocks of its own.
struct FakeCaches {
    memory: Weak<DeviceMemory>,
    blocks: Mutex<Vec<Block>>,
}

impl Reclaim for FakeCaches {
    fn reclaim(&self, need_bytes: u64) -> u64 {
        let memory = self.memory.upgrade().unwrap();
        let mut freed_bytes = 0;
        while freed_bytes < need_bytes {
            let Some(block) = self.blocks.lock().pop() else {
                break;
            };
            freed_bytes += block.bytes();
            memory.free([block]);
        }
        freed_bytes
    }

    fn census(&self) -> Census {
        self.memory.upgrade().unwrap().census(|_| ())
    }

    fn describe(&self, report: &mut OutOfMemoryReport) {
        self.census().write_to(report);
        let bytes = self.blocks.lock().iter().map(Block::bytes).sum();
        report.caches.push(crate::error::CacheUse {
            name: "caches".into(),
            cached_bytes: bytes,
            ..crate::error::CacheUse::default()
        });
    }
}

#[test]
fn sizes_round_up_to_units() {
    let memory = memory(None, None);
    for (requested, allocated) in [(1, 512), (511, 512), (512, 512), (513, 1024)] {
        let block = memory.allocate(&request(requested)).unwrap();
        assert_eq!(block.bytes(), allocated);
        assert_eq!(block.address.0 % UNIT, 0);
        memory.free([block]);
        memory.check();
    }
}

#[test]
fn a_fragmented_pool_under_a_limit_serves_what_fits() {
    let memory = memory(Some(6 * UNIT), None);
    let block = memory.allocate(&request(5 * UNIT)).unwrap();
    memory.free([block]);
    let block = memory.allocate(&request(6 * UNIT)).unwrap();
    assert_eq!(
        memory.stats().retries,
        1,
        "the first segment was too small and had to go"
    );
    memory.free([block]);
    memory.check();
}

#[test]
fn segments_shrink_to_fit_a_small_limit() {
    let memory = memory(Some(3 * UNIT), None);
    let blocks: Vec<_> = (0..3)
        .map(|_| memory.allocate(&request(UNIT)).unwrap())
        .collect();
    let error = memory.allocate(&request(UNIT)).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(memory.stats().out_of_memory, 1);
    memory.free(blocks);
    memory.check();
    assert_eq!(memory.trim(0, WaitMode::Wait), 3 * UNIT);
}

#[test]
fn idle_segments_of_another_size_make_room() {
    let memory = memory(Some(48 * MIB), None);
    let small = memory.allocate(&request(UNIT)).unwrap();
    memory.free([small]);
    assert_eq!(memory.stats().reserved_bytes, 2 * MIB);
    let large = memory.allocate(&request(48 * MIB)).unwrap();
    assert_eq!(memory.stats().segments, 1);
    memory.free([large]);
    memory.check();
}

#[test]
fn a_full_limit_mixes_sizes_before_it_fails() {
    for memory in [memory(None, None), without_ranges(None, None)] {
        // A segment for a large request is longer than the request.
        let nine = memory.allocate(&request(9 * MIB)).unwrap();
        let reserved_bytes = memory.stats().reserved_bytes;
        assert!(reserved_bytes >= 10 * MIB);
        memory.set_limit(Some(reserved_bytes));
        let small = memory.allocate(&request(UNIT)).unwrap();
        memory.check();
        memory.free([nine, small]);
        memory.check();

        // In the reverse case, a segment of 2 MiB for small requests has space for a larger
        // request.
        memory.trim(0, WaitMode::Wait);
        memory.set_limit(Some(2 * MIB));
        let small = memory.allocate(&request(UNIT)).unwrap();
        let larger = memory.allocate(&request(MIB + UNIT)).unwrap();
        memory.check();
        memory.free([small, larger]);
        memory.check();
    }
}

#[test]
fn idle_blocks_of_the_layer_above_are_reclaimed() {
    let memory = Arc::new(memory(Some(8 * MIB), None));
    let blocks = (0..4)
        .map(|_| memory.allocate(&request(2 * MIB)).unwrap())
        .collect();
    let caches = Arc::new(FakeCaches {
        memory: Arc::downgrade(&memory),
        blocks: Mutex::new(blocks),
    });
    let above: Weak<dyn Reclaim> = Arc::<FakeCaches>::downgrade(&caches);
    memory.set_reclaim(above);

    let block = memory.allocate(&request(6 * MIB)).unwrap();
    memory.check();
    let error = memory.allocate(&request(4 * MIB)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("requested 4 MiB"), "{text}");
    assert!(text.contains("limit"), "{text}");
    assert!(
        caches.blocks.lock().is_empty(),
        "the caches was asked until it had nothing"
    );
    memory.free([block]);
    memory.check();
}

#[test]
fn every_failed_reservation_leaves_the_memory_whole() {
    // The loop fails the first reservation, then the second, and so on, until the program makes
    // fewer reservations.
    for expandable in [true, false] {
        let survived = (1..).take_while(|&nth| {
            let config = MemoryConfig {
                limit_bytes: Some(64 * MIB),
                fault: Some(FaultPlan::Nth(nth)),
                expandable,
                ..MemoryConfig::default()
            };
            let memory = memory_with(&config);
            let mut blocks = Vec::new();
            for bytes in [UNIT, 3 * MIB, 12 * MIB, MIB, 30 * MIB] {
                blocks.push(memory.allocate(&request(bytes)).unwrap());
                memory.check();
            }
            let has_failed = memory.stats().reserves >= nth;
            memory.free(blocks);
            memory.check();
            assert_eq!(memory.stats().allocated_bytes, 0);
            memory.trim(0, WaitMode::Wait);
            memory.check();
            assert_eq!(memory.stats().reserved_bytes, 0);
            has_failed
        });
        assert!(survived.count() >= 3, "the program reserves several times");
    }
}

#[test]
fn what_a_callback_frees_serves_the_request() {
    let memory = Arc::new(memory(Some(4 * MIB), None));
    let held = Mutex::new(vec![memory.allocate(&request(4 * MIB)).unwrap()]);
    let weak = Arc::downgrade(&memory);
    memory.callbacks().add(move |_| {
        let blocks = std::mem::take(&mut *held.lock());
        let freed_bytes = blocks.iter().map(Block::bytes).sum();
        weak.upgrade().unwrap().free(blocks);
        freed_bytes
    });
    let block = memory.allocate(&request(3 * MIB)).unwrap();
    memory.free([block]);
    memory.check();
}

#[test]
fn a_reclaimed_block_that_fits_is_not_released_first() {
    for memory in [memory(None, None), without_ranges(None, None)] {
        let memory = Arc::new(memory);
        let [live, idle] = [4, 4].map(|mib| memory.allocate(&request(mib * MIB)).unwrap());
        memory.set_limit(Some(memory.stats().allocated_bytes));
        let caches = Arc::new(FakeCaches {
            memory: Arc::downgrade(&memory),
            blocks: Mutex::new(vec![idle]),
        });
        let above: Weak<dyn Reclaim> = Arc::<FakeCaches>::downgrade(&caches);
        memory.set_reclaim(above);
        let before = memory.stats();
        let again = memory.allocate(&request(4 * MIB)).unwrap();
        let stats = memory.stats();
        assert_eq!(
            (stats.reserves, stats.releases),
            (before.reserves, before.releases)
        );
        memory.free([live, again]);
        memory.free(caches.blocks.lock().drain(..));
        memory.check();
    }
}

#[test]
fn every_pool_reclaims_from_the_layer_above() {
    for pool in PoolKind::ON_HOST {
        let memory = Arc::new(memory_of(pool, Some(8 * MIB), None));
        let blocks = [1, 4, 2, 1].map(|mib| memory.allocate(&request(mib * MIB)).unwrap());
        let caches = Arc::new(FakeCaches {
            memory: Arc::downgrade(&memory),
            blocks: Mutex::new(blocks.into()),
        });
        let above: Weak<dyn Reclaim> = Arc::<FakeCaches>::downgrade(&caches);
        memory.set_reclaim(above);

        // The last block of the layer above is reclaimed first, and is shorter than the request.
        let live = memory.allocate(&request(2 * MIB)).unwrap();
        memory.check();
        let more = memory.allocate(&request(4 * MIB)).unwrap();
        memory.check();
        assert!(memory.stats().reserved_bytes <= 8 * MIB, "{pool}");
        memory.free([live, more]);
        memory.free(caches.blocks.lock().drain(..));
        memory.check();
        assert_eq!(memory.stats().allocated_bytes, 0, "{pool}");
    }
}

#[test]
fn a_longer_reclaimed_block_is_released_and_not_used_up() {
    // The block of 4 MiB fills the limit, so it is released for the request of 1 MiB.
    let memory = Arc::new(memory_of(PoolKind::Binned, Some(4 * MIB), None));
    let four = memory.allocate(&request(4 * MIB)).unwrap();
    let caches = Arc::new(FakeCaches {
        memory: Arc::downgrade(&memory),
        blocks: Mutex::new(vec![four]),
    });
    let above: Weak<dyn Reclaim> = Arc::<FakeCaches>::downgrade(&caches);
    memory.set_reclaim(above);
    let one = memory.allocate(&request(MIB)).unwrap();
    assert_eq!((one.bytes(), memory.stats().reserved_bytes), (MIB, MIB));
    memory.free([one]);
    memory.check();
}

#[test]
fn a_direct_pool_keeps_nothing_idle() {
    let memory = memory_of(PoolKind::Direct, None, None);
    let blocks = [700, 5 * UNIT, MIB + 1].map(|bytes| memory.allocate(&request(bytes)).unwrap());
    assert_eq!(
        memory.stats().reserved_bytes,
        2 * UNIT + 5 * UNIT + MIB + UNIT
    );
    let [first, second, third] = blocks;
    memory.free([second]);
    assert_eq!(memory.stats().reserved_bytes, 2 * UNIT + MIB + UNIT);
    memory.free([first, third]);
    let stats = memory.stats();
    assert_eq!((stats.reserved_bytes, stats.segments), (0, 0));
    assert_eq!((stats.reserves, stats.releases), (3, 3));
    memory.check();
}

#[test]
fn a_device_that_fails_for_good_ends_in_a_report() {
    let memory = memory(None, Some(FaultPlan::From(2)));
    let first = memory.allocate(&request(2 * MIB)).unwrap();
    let error = memory.allocate(&request(1 << 30)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    memory.free([first]);
    memory.check();
}

#[test]
fn a_size_beyond_all_addresses_is_refused() {
    let memory = memory(None, None);
    for bytes in [u64::MAX, u64::MAX - 511, i64::MAX as u64] {
        let error = memory.allocate(&request(bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidShape, "{bytes}");
    }
    let error = memory.allocate(&request(1 << 50)).unwrap_err();
    assert!(
        error.is_out_of_memory(),
        "addressable, but more than any machine has"
    );
    assert!(error.to_string().contains("remedy"));
}

#[test]
fn a_lower_limit_trims_at_once() {
    for (memory, left_bytes) in [
        // The trim releases the excess pages, or the one idle segment.
        (memory(None, None), 30 * MIB),
        (without_ranges(None, None), 20 * MIB),
    ] {
        let keep = memory.allocate(&request(20 * MIB)).unwrap();
        let idle = memory.allocate(&request(40 * MIB)).unwrap();
        memory.free([idle]);
        memory.set_limit(Some(30 * MIB));
        assert_eq!(memory.stats().reserved_bytes, left_bytes);
        memory.free([keep]);
        memory.check();
    }
}
