//! Tests of ranges: segments that grow in place.

use super::*;

const PAGE: u64 = 2 * MIB;

/// Creates a memory with ranges. Returns `None` if the platform has no virtual memory.
fn expanding(limit_bytes: Option<u64>) -> Option<DeviceMemory> {
    let memory = memory(limit_bytes, None);
    memory.expandable.is_some().then_some(memory)
}

fn sum(blocks: &[Block]) -> u64 {
    blocks.iter().map(Block::bytes).sum()
}

#[test]
fn a_segment_grows_in_place_by_the_pages_it_lacks() {
    let Some(memory) = expanding(None) else {
        return;
    };
    let blocks = [3, 3, 3, 7].map(|mib| memory.take_of(mib * MIB));
    for pair in blocks.windows(2) {
        let end = pair[0].address.offset(pair[0].bytes());
        assert_eq!(pair[1].address, end, "one grows where the other ends");
    }
    let stats = memory.stats();
    assert_eq!(stats.reserved_bytes, 16 * MIB);
    assert_eq!((stats.segments, stats.reserves), (1, 4));
    // Small blocks have pages of their own.
    let small = memory.take_of(UNIT);
    let stats = memory.stats();
    assert_eq!((stats.reserved_bytes, stats.segments), (18 * MIB, 2));
    memory.free(blocks);
    memory.free([small]);
    memory.trim(0, WaitMode::Wait);
    let stats = memory.stats();
    assert_eq!((stats.reserved_bytes, stats.segments), (0, 0));
    assert_eq!((stats.reserves, stats.releases), (5, 5));
}

#[test]
fn trim_releases_the_idle_pages_between_live_blocks() {
    let Some(memory) = expanding(None) else {
        return;
    };
    // The blocks are on the pages 0 and 1, 1 to 3, 4, and 5 to 8.
    let [first, second, third, fourth] = [3, 5, 2, 7].map(|mib| memory.take_of(mib * MIB));
    assert_eq!(memory.stats().reserved_bytes, 9 * PAGE);
    memory.free([second]);
    assert_eq!(memory.trim(0, WaitMode::Wait), 2 * PAGE, "page 1 is shared");
    memory.check();
    memory.free([fourth]);
    assert_eq!(memory.trim(0, WaitMode::Wait), 4 * PAGE);
    memory.check();
    // The gap is filled before the range grows at its end, because the gap needs one page less.
    let again = memory.take_of(5 * MIB);
    assert_eq!(again.address, first.address.offset(3 * MIB));
    assert_eq!(memory.stats().reserved_bytes, 5 * PAGE);
    memory.free([first, third, again]);
    memory.check();
}

#[test]
fn trim_keeps_the_requested_bytes_to_the_page() {
    let Some(memory) = expanding(None) else {
        return;
    };
    let blocks = [4, 6, 10, 20].map(|mib| memory.take_of(mib * MIB));
    memory.free(blocks);
    let mut reserved_bytes = 20 * PAGE;
    for (keep_bytes, kept_pages) in [
        (100 * PAGE, 20),
        (19 * PAGE + 1, 19),
        (19 * PAGE, 19),
        (7 * PAGE - 1, 6),
        (PAGE + UNIT, 1),
        (1, 0),
    ] {
        let released_bytes = memory.trim(keep_bytes, WaitMode::Wait);
        memory.check();
        reserved_bytes -= released_bytes;
        assert_eq!(memory.stats().reserved_bytes, reserved_bytes);
        assert_eq!(reserved_bytes, kept_pages * PAGE, "keep {keep_bytes}");
    }
}

#[test]
fn scattered_idle_pages_make_room_for_one_large_request() {
    let Some(memory) = expanding(Some(32 * MIB)) else {
        return;
    };
    let blocks: Vec<_> = (0..16).map(|_| memory.take_of(PAGE)).collect();
    assert_eq!(memory.stats().reserved_bytes, 32 * MIB);
    let (even, odd): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(at, _)| at % 2 == 0);
    let blocks = |numbered: Vec<(i32, Block)>| numbered.into_iter().map(|(_, block)| block);
    memory.free(blocks(even));
    let large = memory.take_of(16 * MIB);
    assert_eq!(memory.stats().reserved_bytes, 32 * MIB);
    memory.free(blocks(odd).chain([large]));
    memory.check();
}

#[test]
fn under_a_limit_releases_only_what_the_request_lacks() {
    let Some(memory) = expanding(Some(32 * MIB)) else {
        return;
    };
    let blocks = [(); 8].map(|()| memory.take_of(4 * MIB));
    let mut live: Vec<_> = blocks.into_iter().collect();
    memory.free([live.remove(5), live.remove(3), live.remove(1)]);
    // The request needs six MiB of new pages at the end. Twelve MiB are idle.
    let large = memory.take_of(6 * MIB);
    let stats = memory.stats();
    assert_eq!(stats.reserved_bytes, 32 * MIB);
    assert_eq!(stats.retries, 1);
    assert_eq!(memory.idle_bytes(), 6 * MIB);
    // A request that fits into the remaining idle memory releases nothing.
    let four = memory.take_of(4 * MIB);
    assert_eq!(memory.stats().reserves, stats.reserves);
    assert_eq!(sum(&live) + large.bytes() + four.bytes(), 30 * MIB);
    memory.free(live.into_iter().chain([large, four]));
    memory.check();
}

#[test]
fn a_limit_below_a_page_has_segments_of_the_requested_size() {
    for limit_bytes in [6 * UNIT, MIB, PAGE - UNIT] {
        let memory = memory(Some(limit_bytes), None);
        let block = memory.take_of(5 * UNIT);
        assert_eq!(memory.stats().reserved_bytes, 5 * UNIT);
        memory.free([block]);
        let whole = memory.take_of(limit_bytes);
        assert_eq!(memory.stats().reserved_bytes, limit_bytes);
        memory.free([whole]);
        memory.check();
    }
}

#[test]
fn the_rest_of_a_limit_below_a_page_is_used_too() {
    let Some(memory) = expanding(Some(2 * PAGE + 3 * UNIT)) else {
        return;
    };
    let large = memory.take_of(2 * PAGE);
    let small = [(); 3].map(|()| memory.take_of(UNIT));
    assert_eq!(memory.stats().reserved_bytes, 2 * PAGE + 3 * UNIT);
    assert!(memory.allocate(&request(1)).unwrap_err().is_out_of_memory());
    memory.free([large]);
    memory.free(small);
    // The trim releases all segments first, then as many pages as needed.
    assert_eq!(memory.trim(PAGE + UNIT, WaitMode::Wait), PAGE + 3 * UNIT);
    memory.check();
}

#[test]
fn newly_idle_pages_are_released_and_older_ones_stay() {
    let Some(memory) = expanding(None) else {
        return;
    };
    let [idle, first, second, third] = [4, 3, 1, 4].map(|mib| memory.take_of(mib * MIB));
    let small = memory.take_of(UNIT);
    memory.free([idle]);
    // The first block has one page to itself, and shares its other page with the second block.
    memory.free_and_release([first]);
    memory.check();
    assert_eq!(memory.stats().reserved_bytes, 6 * PAGE);
    memory.free_and_release([second, third, small]);
    memory.check();
    assert_eq!(memory.stats().reserved_bytes, 2 * PAGE);
    assert_eq!(memory.idle_bytes(), 2 * PAGE);
}

/// A range has twice as many addresses as the device has bytes. If all its free parts are too short
/// for a block, another range is added.
#[test]
fn a_range_that_is_used_up_is_followed_by_another() {
    let host = HostBackend::of(8 * PAGE);
    let memory = DeviceMemory::new(Arc::new(host), &MemoryConfig::default()).unwrap();
    if memory.expandable.is_none() {
        return;
    }
    // One page in five is live.
    let mut live = Vec::new();
    for _ in 0..3 {
        let five = memory.take_of(5 * PAGE);
        memory.free([five]);
        let four = memory.take_of(4 * PAGE);
        live.push(memory.take_of(PAGE));
        memory.free([four]);
        memory.trim(0, WaitMode::Wait);
    }
    assert_eq!(memory.stats().reserved_bytes, 3 * PAGE);
    let five = memory.take_of(5 * PAGE);
    let stats = memory.stats();
    assert_eq!((stats.segments, stats.reserved_bytes), (2, 8 * PAGE));
    assert!(
        memory
            .allocate(&request(PAGE))
            .unwrap_err()
            .is_out_of_memory()
    );
    memory.free(live.into_iter().chain([five]));
    memory.trim(0, WaitMode::Wait);
    memory.check();
    assert_eq!(memory.stats().reserved_bytes, 0);
}

#[test]
fn an_exhausted_device_gives_pages_for_pages() {
    let host = HostBackend::of(8 * PAGE);
    let memory = DeviceMemory::new(Arc::new(host), &MemoryConfig::default()).unwrap();
    if memory.expandable.is_none() {
        return;
    }
    let blocks = [(); 4].map(|()| memory.take_of(2 * PAGE));
    let [first, second, third, fourth] = blocks;
    memory.free([first, third]);
    let large = memory.take_of(4 * PAGE);
    assert_eq!(memory.stats().reserved_bytes, 8 * PAGE);
    memory.free([second, fourth, large]);
    memory.check();
}

#[test]
fn an_exhausted_device_gives_idle_pages_before_it_mixes_sizes() {
    let host = HostBackend::of(8 * PAGE);
    let memory = DeviceMemory::new(Arc::new(host), &MemoryConfig::default()).unwrap();
    if memory.expandable.is_none() {
        return;
    }
    let [live, idle] = [(); 2].map(|()| memory.take_of(4 * PAGE));
    let large = live.address.0..idle.address.0 + idle.bytes();
    memory.free([idle]);
    let small = memory.take_of(UNIT);
    assert!(!large.contains(&small.address.0));
    memory.free([live, small]);
    memory.check();
}

#[test]
fn without_ranges_every_segment_is_a_reservation() {
    let memory = without_ranges(None, None);
    let blocks = [30, 40].map(|mib| memory.take_of(mib * MIB));
    assert_eq!(memory.stats().segments, 2);
    memory.free(blocks);
    assert_eq!(memory.trim(50 * MIB, WaitMode::Wait), 30 * MIB);
    memory.check();
}

#[test]
fn pools_that_do_not_split_have_no_ranges() {
    for pool in [PoolKind::Binned, PoolKind::Direct] {
        let memory = memory_of(pool, None, None);
        assert!(memory.expandable.is_none());
        let block = memory.take_of(MIB);
        assert_eq!(memory.stats().reserved_bytes, MIB);
        memory.free([block]);
    }
}

#[test]
fn threads_grow_and_shrink_one_memory_together() {
    let memory = memory(Some(24 * MIB), None);
    let live: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
    let start = std::sync::Barrier::new(4);
    let work = &|worker: u64| {
        let mut blocks = Vec::new();
        start.wait();
        for step in 0..2000 {
            let bytes = 1 + (worker * 7919 + step * 104_729) % (3 * MIB);
            if let Ok(block) = memory.allocate(&request(bytes)) {
                let (begin, end) = (block.address.0, block.address.0 + block.bytes());
                let mut live = live.lock();
                let overlap = live.iter().find(|&&(from, to)| begin < to && from < end);
                assert_eq!(overlap, None, "{block:?} to {end}, step {step} of {worker}");
                live.push((begin, end));
                blocks.push(block);
            }
            if blocks.len() > 2 || step % 5 == 0 && !blocks.is_empty() {
                let block = blocks.remove(step as usize % blocks.len());
                // The address is removed before the block can be handed out again.
                live.lock().retain(|&(begin, _)| begin != block.address.0);
                memory.free_and_release([block]);
            }
            if step % 16 == worker {
                memory.trim(step % 3 * PAGE, WaitMode::Wait);
            }
            assert!(memory.stats().peak_reserved_bytes <= 24 * MIB);
        }
        blocks
    };
    let left: Vec<Block> = std::thread::scope(|scope| {
        let workers = [0, 1, 2, 3].map(|worker| scope.spawn(move || work(worker)));
        let left = workers.map(|worker| worker.join().unwrap());
        left.into_iter().flatten().collect()
    });
    memory.check();
    memory.free(left);
    memory.trim(0, WaitMode::Wait);
    memory.check();
    let stats = memory.stats();
    assert_eq!((stats.reserved_bytes, stats.allocated_bytes), (0, 0));
}
