use super::*;

const UNIT: u64 = UNIT_BYTES;

fn take(pool: &mut BestFit, units: u64) -> Option<Span> {
    let taken = pool.take(units * UNIT, StreamId(0));
    taken.map(|(span, _)| span)
}

/// A pool of one segment whose free blocks are of `units` each, kept apart by blocks that are
/// out, and freed in the order given.
fn with_free(units: &[u64]) -> BestFit {
    let total: u64 = units.iter().map(|units| units + 1).sum();
    let mut pool = BestFit::new();
    pool.add_segment(SegmentId(0), total * UNIT, UNIT);
    let mut spans = Vec::new();
    for &units in units {
        spans.push(take(&mut pool, units).unwrap());
        take(&mut pool, 1).unwrap();
    }
    for span in spans {
        pool.give(span, Owner::NOBODY);
        pool.check();
    }
    pool
}

#[test]
fn the_smallest_of_the_blocks_that_fit_is_split() {
    let mut pool = with_free(&[64, 71, 67, 69, 100, 66]);
    let spans: Vec<_> = [66, 66, 66]
        .map(|units| take(&mut pool, units).unwrap())
        .into();
    pool.check();
    assert_eq!(spans[0].offset, (65 + 72 + 68 + 70 + 101) * UNIT);
    assert_eq!(spans[1].offset, (65 + 72) * UNIT);
    assert_eq!(spans[2].offset, (65 + 72 + 68) * UNIT);
}

#[test]
fn an_exact_block_beats_a_longer_one_of_its_bin() {
    let mut pool = with_free(&[70, 65, 71]);
    assert_eq!(take(&mut pool, 65).unwrap().offset, 71 * UNIT);
    pool.check();
}

#[test]
fn the_next_bin_that_has_any_serves_before_longer_ones() {
    let mut pool = with_free(&[1000, 80, 500, 90]);
    assert_eq!(take(&mut pool, 70).unwrap().offset, 1001 * UNIT);
    pool.check();
}

/// All of one class; the only one that fits was freed first, and so is the last of its bin.
#[test]
fn a_fit_at_the_end_of_a_long_bin_is_found() {
    let mut units = vec![71];
    units.extend([64; 100]);
    let mut pool = with_free(&units);
    assert_eq!(take(&mut pool, 70).unwrap().offset, 0);
    assert_eq!(take(&mut pool, 70), None);
    pool.check();
}

#[test]
fn segments_are_as_large_as_their_requests_want() {
    let pool = BestFit::new();
    const MIB: u64 = 1 << 20;
    let cases = [
        (UNIT, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + UNIT, 20 * MIB),
        (10 * MIB - UNIT, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + UNIT, 12 * MIB),
        (31 * MIB, 32 * MIB),
    ];
    for (request, segment) in cases {
        assert_eq!(pool.segment_bytes(request), segment, "{request}");
    }
}

/// What is held for small requests, and ranges, have no part in it.
#[test]
fn large_segments_grow_with_what_is_held() {
    const MIB: u64 = 1 << 20;
    let mut pool = BestFit::new();
    pool.add_segment(SegmentId(0), 2048 * MIB, MIB);
    pool.add_range(SegmentId(1), 2048 * MIB, 2 * MIB);
    assert_eq!(pool.segment_bytes(2 * MIB), 20 * MIB);
    for (held, shared, own) in [(160, 20, 30), (168, 22, 30), (800, 100, 100)] {
        pool.add_segment(SegmentId(2), held * MIB, 30 * MIB);
        assert_eq!(pool.segment_bytes(2 * MIB), shared * MIB, "{held} MiB");
        assert_eq!(pool.segment_bytes(30 * MIB), own * MIB, "{held} MiB");
        assert_eq!(pool.segment_bytes(MIB), 2 * MIB, "{held} MiB");
        pool.remove_segment(SegmentId(2)).unwrap();
    }
    pool.add_segment(SegmentId(2), 1 << 40, 1 << 40);
    assert_eq!(pool.segment_bytes(2 * MIB), 512 * MIB);
    assert_eq!(pool.segment_bytes(600 * MIB), 600 * MIB);
}

/// The nodes of blocks that merged serve the next splits: a loop that frees all it took does
/// not grow the slab.
#[test]
fn nodes_are_used_again() {
    let mut pool = BestFit::new();
    pool.add_segment(SegmentId(0), 100 * UNIT, UNIT);
    let mut highest = 0;
    for _ in 0..50 {
        let spans: Vec<_> = (0..100).map(|_| take(&mut pool, 1).unwrap()).collect();
        highest = spans
            .iter()
            .map(|span| span.node)
            .max()
            .unwrap()
            .max(highest);
        for span in spans {
            pool.give(span, Owner::NOBODY);
        }
    }
    pool.check();
    assert_eq!(highest, 99);
}

/// More holes than are compared: the shortest that is long enough is filled, and where none is the
/// one that is with its neighbours.
#[test]
fn one_of_many_holes_is_found() {
    const HOLES: usize = 300;
    let mut pool = BestFit::new();
    pool.add_range(SegmentId(0), 4 * HOLES as u64 * UNIT, UNIT);
    let mut spans = Vec::new();
    while let Some(pages) = pool.expansion(UNIT, UNIT) {
        pool.commit(pages);
        spans.push(take(&mut pool, 1).unwrap());
    }
    // Of each four units the first stays out; one to three more do not.
    let given = (0..HOLES).flat_map(|hole| 4 * hole + 1..4 * hole + 2 + hole % 3);
    for unit in given {
        pool.give(spans[unit], Owner::NOBODY);
    }
    for pages in pool.idle_pages(UNIT) {
        pool.decommit(pages);
    }
    pool.check();
    let place = |pool: &BestFit, units: u64| {
        let pages = pool.expansion(units * UNIT, UNIT);
        pages.map(|pages| (pages.offset / UNIT, pages.bytes / UNIT))
    };
    assert_eq!(place(&pool, 3), Some((4 * 2 + 1, 3)));
    assert_eq!(place(&pool, 1), Some((1, 1)));
    assert_eq!(place(&pool, 4), None);
    pool.give(spans[4 * 200], Owner::NOBODY);
    assert_eq!(place(&pool, 4), Some((4 * 200 + 1, 3)));
    pool.check();
}
