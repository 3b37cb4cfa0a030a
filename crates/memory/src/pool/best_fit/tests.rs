use super::*;

const UNIT: u64 = UNIT_BYTES;

fn take(pool: &mut BestFit, units: u64) -> Option<Span> {
    let taken = pool.take(units * UNIT, StreamId(0));
    taken.map(|(span, _)| span)
}

/// Returns a pool of one segment with one free block per length in `units`. Used blocks separate
/// the free blocks, which were freed in the given order.
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
        pool.give(span, StreamOwner::NONE);
        pool.check();
    }
    pool
}

/// Returns the length of the hole of [`with_free`] from which a span was cut.
fn hole_of(units: &[u64], span: Span) -> u64 {
    let mut end = 0;
    let mut holes = units.iter().copied();
    let hole = holes.find(|hole| {
        end += (hole + 1) * UNIT;
        span.offset < end
    });
    hole.unwrap()
}

/// Takes blocks in order. Returns the length of the hole from which each block was cut, or 0 if the
/// take failed.
fn holes(units: &[u64], requests: &[u64]) -> Vec<u64> {
    let mut pool = with_free(units);
    let mut holes = Vec::new();
    for &request in requests {
        let span = take(&mut pool, request);
        holes.push(span.map_or(0, |span| hole_of(units, span)));
        pool.check();
    }
    holes
}

#[test]
fn the_smallest_of_the_blocks_that_fit_is_split() {
    let units = [64, 71, 67, 69, 100, 66];
    assert_eq!(holes(&units, &[66, 66, 66]), [66, 67, 69]);
}

#[test]
fn an_exact_block_beats_a_longer_one_of_its_bin() {
    assert_eq!(holes(&[70, 65, 71], &[65]), [65]);
}

#[test]
fn the_next_bin_that_has_any_serves_before_longer_ones() {
    assert_eq!(holes(&[1000, 80, 500, 90], &[70]), [80]);
}

/// All blocks are of one class. The only block that fits was freed first and is the last of its
/// bin.
#[test]
fn a_fit_at_the_end_of_a_long_bin_is_found() {
    let mut units = vec![71];
    units.extend([64; 100]);
    assert_eq!(holes(&units, &[70, 70]), [71, 0]);
}

/// Returns a pool of one range with consecutive blocks of these lengths.
fn with_row(units: &[u64]) -> (BestFit, Vec<Span>) {
    let mut pool = BestFit::unified();
    pool.add_range(SegmentId(0), 1 << 40, UNIT);
    let row = units.iter().map(|&units| expand(&mut pool, units));
    let row = row.collect();
    (pool, row)
}

fn expand(pool: &mut BestFit, units: u64) -> Span {
    while let Some(pages) = pool.pages_to_commit(units * UNIT, UNIT) {
        if let Some(span) = take(pool, units) {
            return span;
        }
        pool.commit(pages);
    }
    panic!("the range is full");
}

/// Places a block of `units` in a hole of 100 units between two blocks. Returns the end of the
/// hole: 0 front, 1 back. `later` is the number of takes after each of the two blocks.
fn end_of_hole(neighbours: [u64; 2], later: [u32; 2], units: u64) -> u64 {
    let (mut pool, row) = with_row(&[1, 100, 1]);
    let nodes = [row[0].node, row[2].node];
    for (index, node) in nodes.into_iter().enumerate() {
        let block = pool.blocks.get_mut(node);
        block.bytes = neighbours[index] * UNIT;
        block.hand_out(pool.takes.wrapping_sub(later[index]));
    }
    pool.give(row[1], StreamOwner::NONE);
    let span = take(&mut pool, units).unwrap();
    (span.offset - row[1].offset) / ((100 - units) * UNIT)
}

#[test]
fn a_block_lies_beside_one_as_long_then_beside_a_recent_one_else_in_front() {
    let (old, new) = (1000, 3);
    assert_eq!(end_of_hole([10, 20], [new, old], 20), 1, "as long");
    assert_eq!(end_of_hole([20, 10], [old, new], 20), 0, "as long");
    assert_eq!(end_of_hole([10, 30], [new, old], 20), 0, "recent");
    assert_eq!(end_of_hole([10, 30], [old, new], 20), 1, "recent");
    assert_eq!(
        end_of_hole([20, 20], [old, new], 20),
        1,
        "both as long, one recent"
    );
    assert_eq!(end_of_hole([10, 10], [old, old], 20), 0, "no difference");
    assert_eq!(end_of_hole([20, 20], [new, new], 20), 0, "no difference");
    // With 119 later takes, a neighbour is just outside the window. With 118, it is inside.
    assert_eq!(end_of_hole([10, 10], [119, 118], 20), 1);
    assert_eq!(end_of_hole([10, 10], [118, 118], 20), 0);
}

/// Segment ends and uncommitted memory do not count as neighbours.
#[test]
fn a_block_without_neighbours_lies_in_front() {
    let mut pool = BestFit::new();
    pool.add_segment(SegmentId(0), 8 * UNIT, UNIT);
    assert_eq!(take(&mut pool, 3).unwrap().offset, 0);
    let (mut pool, row) = with_row(&[4, 20]);
    pool.give(row[1], StreamOwner::NONE);
    assert_eq!(take(&mut pool, 3).unwrap().offset, 4 * UNIT);
    pool.check();
}

#[test]
fn the_wilderness_is_taken_last() {
    let (mut pool, row) = with_row(&[50, 1, 20]);
    pool.give(row[0], StreamOwner::NONE);
    pool.give(row[2], StreamOwner::NONE);
    assert_eq!(take(&mut pool, 20).unwrap().offset, 30 * UNIT);
    assert_eq!(take(&mut pool, 30).unwrap().offset, 0);
    assert_eq!(take(&mut pool, 5).unwrap().offset, 51 * UNIT);
    pool.check();
    assert_eq!(expand(&mut pool, 40).offset, 56 * UNIT);
    assert_eq!(pool.free_bytes(), 0);
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

/// Segments for small requests, and ranges, do not count as large segments.
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

/// Nodes of coalesced blocks are reused. So the table does not grow in a loop that frees every
/// block.
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
            pool.give(span, StreamOwner::NONE);
        }
    }
    pool.check();
    assert_eq!(highest, 99);
}

/// There are more holes than the pool compares. The shortest hole that is long enough is filled. If
/// no hole is long enough, a hole that is long enough together with its free neighbours is filled.
#[test]
fn one_of_many_holes_is_found() {
    const HOLES: usize = 300;
    let mut pool = BestFit::new();
    pool.add_range(SegmentId(0), 4 * HOLES as u64 * UNIT, UNIT);
    let mut spans = Vec::new();
    while let Some(pages) = pool.pages_to_commit(UNIT, UNIT) {
        pool.commit(pages);
        spans.push(take(&mut pool, 1).unwrap());
    }
    // The first of each four units stays used, and up to three more are freed.
    let given = (0..HOLES).flat_map(|hole| 4 * hole + 1..4 * hole + 2 + hole % 3);
    for unit in given {
        pool.give(spans[unit], StreamOwner::NONE);
    }
    for pages in pool.idle_pages(UNIT) {
        pool.decommit(pages);
    }
    pool.check();
    let place = |pool: &BestFit, units: u64| {
        let pages = pool.pages_to_commit(units * UNIT, UNIT);
        pages.map(|pages| (pages.offset / UNIT, pages.bytes / UNIT))
    };
    assert_eq!(place(&pool, 3), Some((4 * 2 + 1, 3)));
    assert_eq!(place(&pool, 1), Some((1, 1)));
    assert_eq!(place(&pool, 4), None);
    pool.give(spans[4 * 200], StreamOwner::NONE);
    assert_eq!(place(&pool, 4), Some((4 * 200 + 1, 3)));
    pool.check();
}
