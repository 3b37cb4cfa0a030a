//! One suite for every pool, and a model test against an oracle of plain byte ranges.

mod oracle;
mod ranges;

use proptest::prelude::*;

use super::best_fit::BestFit;
use super::{PoolKind, Rounding, SegmentId, StreamOwner};
use crate::device::StreamId;
use oracle::{BlockShape, Tested, step};

const UNIT: u64 = 512;
const MIB: u64 = 1 << 20;

/// The suite. Each row has a pool, the shape of its blocks, and a function from a segment to its
/// group. The function gets the sizes of the segment and of its request (rounded). A pool need not
/// serve a request from a segment of another group.
macro_rules! conformance {
    ($($name:ident: $pool:expr, $cut:ident, $group:expr;)+) => { $(
        mod $name {
            use super::*;

            fn tested() -> Tested {
                Tested::new($pool, BlockShape::$cut, $group)
            }

            #[test]
            fn requests_round_up() { rounding(tested()); }
            #[test]
            fn segments_have_room_for_their_request() { segment_sizes(tested()); }
            #[test]
            fn used_and_free_add_up() { sums(tested()); }
            #[test]
            fn idle_segments_are_listed_and_removed() { idle_segments(tested()); }
            #[test]
            fn numbers_and_offsets_are_used_again() { numbers_reused(tested()); }
            #[test]
            fn prefers_a_ready_block_and_refuses_only_without_any() { owners(tested()); }

            conformance!(@$cut);

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(400))]
                #[test]
                fn behaves_as_the_oracle(steps in prop::collection::vec(step(), 1..300)) {
                    let mut tested = tested();
                    for step in steps {
                        tested.step(step);
                    }
                }
            }
        }
    )+ };
    (@Split) => {
        #[test]
        fn blocks_split_and_merge_in_both_orders() { split_and_merge(tested()); }
        #[test]
        fn a_fragmented_segment_serves_again() { fragmented(tested()); }
        #[test]
        fn every_order_of_frees_merges_wholly() { orders_of_frees(tested); }
        #[test]
        fn the_tail_of_an_odd_segment_is_never_lost() { odd_segments(tested()); }
        #[test]
        fn groups_are_kept_apart() { groups(tested()); }
        #[test]
        fn joined_blocks_are_owned_by_all_their_streams() { joined_owners(tested()); }
        #[test]
        fn a_range_grows_by_what_is_missing_and_shrinks() { ranges::grow_and_shrink(tested()); }
        #[test]
        fn holes_are_filled_where_that_takes_fewest_pages() { ranges::fill_holes(tested()); }
    };
    (@Whole) => {
        #[test]
        fn a_segment_is_one_block() { whole_segments(tested()); }
    };
}

conformance! {
    best_fit: PoolKind::BestFit.build(), Split, |_, request| u32::from(request > MIB);
    best_fit_unified: Box::new(BestFit::unified()), Split, |_, _| 0;
    binned: PoolKind::Binned.build(), Whole, |segment, _| segment.ilog2();
    direct: PoolKind::Direct.build(), Whole, |_, _| 0;
}

fn rounding(mut tested: Tested) {
    let rounding = tested.pool.rounding();
    // Each case is a request, its size rounded to units, and its size rounded to a power of two.
    let cases = [
        (1, 512, 512),
        (511, 512, 512),
        (512, 512, 512),
        (513, 1024, 1024),
        (1024, 1024, 1024),
        (1025, 1536, 2048),
        (5 * UNIT, 5 * UNIT, 8 * UNIT),
    ];
    for (bytes, units, power) in cases {
        let rounded = match rounding {
            Rounding::Units => units,
            Rounding::PowersOfTwo => power,
        };
        assert_eq!(rounding.round(bytes), Some(rounded), "{bytes}");
        tested.add(rounded, rounded);
        let span = tested.take(bytes);
        assert_eq!(span.bytes, rounded);
    }
    let most = match rounding {
        Rounding::Units => u64::MAX - 511,
        Rounding::PowersOfTwo => 1 << 63,
    };
    assert_eq!(rounding.round(most), Some(most));
    assert_eq!(rounding.round(most + 1), None);
    assert_eq!(rounding.round(u64::MAX), None);
    assert!(tested.pool.segment_bytes(most) >= most);
    assert_eq!(rounding.round(0), Some(0));
}

fn segment_sizes(mut tested: Tested) {
    for request in [
        1,
        512,
        MIB,
        MIB + 1,
        10 * MIB - 512,
        10 * MIB,
        33 * MIB + 512,
        1 << 40,
    ] {
        let bytes = tested.round(request);
        let segment_bytes = tested.pool.segment_bytes(bytes);
        assert!(segment_bytes >= bytes);
        tested.add(segment_bytes, bytes);
        tested.take(request);
    }
}

fn split_and_merge(mut tested: Tested) {
    for front_first in [true, false] {
        let id = tested.add(8 * UNIT, UNIT);
        let spans = [tested.take(3 * UNIT), tested.take(5 * UNIT)];
        assert_eq!(spans[0].segment, spans[1].segment);
        assert!(tested.try_take(UNIT).is_none());
        for half in if front_first { [0, 1] } else { [1, 0] } {
            tested.give(spans[half]);
        }
        let whole = tested.take(8 * UNIT);
        assert_eq!(whole.offset, 0);
        tested.give(whole);
        assert!(tested.remove(id));
    }
}

fn fragmented(mut tested: Tested) {
    tested.add(6 * UNIT, UNIT);
    let spans: Vec<_> = (0..5).map(|_| tested.take(UNIT)).collect();
    assert!(tested.try_take(2 * UNIT).is_none());
    for span in [spans[1], spans[3], spans[0], spans[4], spans[2]] {
        tested.give(span);
    }
    tested.take(6 * UNIT);
}

/// Frees five neighbours in all 120 orders.
fn orders_of_frees(tested: fn() -> Tested) {
    let mut pending: Vec<Vec<usize>> = vec![Vec::new()];
    let mut orders = 0;
    while let Some(order) = pending.pop() {
        if order.len() < 5 {
            let longer = (0..5).filter(|index| !order.contains(index));
            pending.extend(longer.map(|index| [order.as_slice(), &[index]].concat()));
            continue;
        }
        orders += 1;
        let mut tested = tested();
        tested.add(15 * UNIT, UNIT);
        let spans: Vec<_> = (1..=5).map(|units| tested.take(units * UNIT)).collect();
        assert!(tested.try_take(UNIT).is_none());
        for index in order {
            tested.give(spans[index]);
        }
        tested.take(15 * UNIT);
    }
    assert_eq!(orders, 120);
}

/// Compares explicit totals. Every test also asserts after each call that the totals add up.
fn sums(mut tested: Tested) {
    assert_eq!(tested.pool.free_bytes(), 0);
    assert_eq!(tested.pool.largest_free_block_bytes(), 0);
    assert!(tested.try_take(UNIT).is_none());
    tested.add(4 * UNIT, UNIT);
    tested.add(8 * UNIT, UNIT);
    assert_eq!(tested.pool.free_bytes(), 12 * UNIT);
    assert_eq!(tested.pool.largest_free_block_bytes(), 8 * UNIT);
    let span = tested.take(8 * UNIT);
    assert_eq!(tested.pool.free_bytes(), 4 * UNIT);
    assert_eq!(tested.pool.largest_free_block_bytes(), 4 * UNIT);
    tested.give(span);
    assert_eq!(tested.pool.free_bytes(), 12 * UNIT);
}

fn idle_segments(mut tested: Tested) {
    let large = tested.add(16 * UNIT, UNIT);
    let small = tested.add(4 * UNIT, UNIT);
    let middle = tested.add(8 * UNIT, UNIT);
    assert_eq!(tested.pool.idle_segments(), [small, middle, large]);
    let span = tested.take(8 * UNIT);
    assert_eq!(span.segment, middle);
    assert_eq!(tested.pool.idle_segments(), [small, large]);
    assert!(!tested.remove(middle), "a busy segment was removed");
    assert!(
        !tested.remove(SegmentId(7)),
        "an unknown segment was removed"
    );
    assert!(tested.remove(large));
    assert!(!tested.remove(large), "a segment was removed twice");
    assert!(tested.try_take(16 * UNIT).is_none());
    tested.give(span);
    assert!(tested.remove(middle));
    assert!(tested.remove(small));
    assert_eq!(tested.pool.free_bytes(), 0);
}

/// Takes eight units from a block of nine units. The ninth unit is not available meanwhile.
fn whole_segments(mut tested: Tested) {
    let id = tested.add(9 * UNIT, 8 * UNIT);
    for _ in 0..2 {
        let span = tested.take(8 * UNIT);
        assert_eq!((span.offset, span.bytes), (0, 9 * UNIT));
        assert!(tested.try_take_from_any(UNIT).is_none());
        tested.give(span);
    }
    assert!(tested.remove(id));
}

fn numbers_reused(mut tested: Tested) {
    let first = tested.add(4 * UNIT, UNIT);
    let second = tested.add(8 * UNIT, UNIT);
    assert!(tested.remove(first));
    assert_eq!(tested.add(16 * UNIT, UNIT), first);
    let long = tested.take(16 * UNIT);
    assert_eq!((long.segment, long.offset), (first, 0));
    let short = tested.take(8 * UNIT);
    assert_eq!((short.segment, short.offset), (second, 0));
    tested.give(long);
    let again = tested.take(16 * UNIT);
    assert_eq!((again.segment, again.offset), (first, 0));
}

/// Checks the choice of blocks. The oracle checks each owner.
fn owners(mut tested: Tested) {
    for _ in 0..3 {
        tested.add(4 * UNIT, 4 * UNIT);
    }
    let spans = [7, 8, 9].map(|stream| tested.on(stream).take(4 * UNIT));
    for (stream, span) in [7, 8, 9].into_iter().zip(spans) {
        tested.on(stream).give(span);
    }
    for at in [1, 0, 2] {
        let again = tested.on(7 + at as u16).take(4 * UNIT);
        assert_eq!(again.segment, spans[at].segment);
    }
    assert!(tested.try_take(4 * UNIT).is_none());
    tested.on(8).give(spans[1]);
    assert_eq!(tested.on(9).take(4 * UNIT).segment, spans[1].segment);
}

fn joined_owners(mut tested: Tested) {
    let id = tested.add(8 * UNIT, UNIT);
    let spans = [2, 2, 4].map(|units| tested.take(units * UNIT));
    tested.on(1).give(spans[0]);
    tested.on(2).give(spans[1]);
    let front = tested.on(2).take(4 * UNIT);
    tested.give(front);
    let again = tested.take(3 * UNIT);
    tested.give(again);
    tested.on(2).give(spans[2]);
    assert_eq!(
        tested.pool.remove_segment(id),
        Some(StreamOwner::of(StreamId(2)))
    );
}

fn odd_segments(mut tested: Tested) {
    for tail in [1, 511] {
        let id = tested.add(4 * UNIT + tail, UNIT);
        let front = tested.take(2 * UNIT);
        let back = tested.take(2 * UNIT);
        assert_eq!(back.bytes, 2 * UNIT + tail);
        tested.give(front);
        tested.give(back);
        assert!(tested.remove(id));
        let id = tested.add(tail, UNIT);
        assert!(tested.try_take(UNIT).is_none());
        assert!(tested.remove(id));
    }
}

/// Fills the segments of each group while the segments of the other group are empty.
fn groups(mut tested: Tested) {
    for request in [UNIT, 2 * MIB] {
        tested.add(8 * MIB, request);
    }
    for request in [UNIT * 64, 2 * MIB] {
        let filling = std::iter::from_fn(|| tested.try_take(request));
        let spans: Vec<_> = filling.collect();
        assert!(spans.len() as u64 >= 8 * MIB / request);
        for span in spans {
            tested.give(span);
        }
    }
}
