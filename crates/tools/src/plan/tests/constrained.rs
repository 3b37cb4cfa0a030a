//! Tests of plans with alignments and gaps against an exhaustive search.

use proptest::collection::vec;
use proptest::prelude::*;

use super::buffer;
use crate::plan::{
    Conflict, ConstrainedBuffer, Gap, Options, pack_constrained, validate_constrained,
};

const STEPS: u64 = 6;

/// Returns the bit mask of the slab bytes that a buffer at `offset` uses in a step.
fn used(own: &ConstrainedBuffer, step: u64, offset: u64) -> u64 {
    let interval = own.interval;
    if !(interval.lower..interval.upper).contains(&step) {
        return 0;
    }
    let gap = (own.gaps.iter()).find(|gap| (gap.lower..gap.upper).contains(&step));
    let bytes = gap.map_or(0..interval.size_bytes, |gap| gap.used.clone());
    bytes.fold(0, |bits, byte| bits | 1 << (offset + byte))
}

/// Returns whether the buffers fit below `slab`. `taken` is the bit mask of used bytes per step.
fn fits(buffers: &[ConstrainedBuffer], slab: u64, taken: [u64; STEPS as usize]) -> bool {
    let Some((own, rest)) = buffers.split_first() else {
        return true;
    };
    let size = own.interval.size_bytes;
    if !own.interval.occupies() {
        return fits(rest, slab, taken);
    }
    (0..=slab.saturating_sub(size))
        .step_by(own.alignment as usize)
        .filter(|offset| offset + size <= slab)
        .any(|offset| {
            let mut taken = taken;
            (0..STEPS).all(|step| {
                let bits = used(own, step, offset);
                let is_free = taken[step as usize] & bits == 0;
                taken[step as usize] |= bits;
                is_free
            }) && fits(rest, slab, taken)
        })
}

fn least_slab(buffers: &[ConstrainedBuffer]) -> u64 {
    let mut slabs = 0..64;
    slabs.find(|&slab| fits(buffers, slab, [0; 6])).unwrap()
}

fn is_plan(buffers: &[ConstrainedBuffer], offsets: &[u64]) -> bool {
    let mut taken = [0_u64; STEPS as usize];
    buffers.iter().zip(offsets).all(|(own, &offset)| {
        let placed = own.interval.occupies();
        (!placed || offset % own.alignment == 0)
            && (0..STEPS).all(|step| {
                let bits = used(own, step, if placed { offset } else { 0 });
                let is_free = taken[step as usize] & bits == 0;
                taken[step as usize] |= bits;
                is_free
            })
    })
}

fn buffers() -> impl Strategy<Value = Vec<ConstrainedBuffer>> {
    let lifetime = (0..STEPS, 0..STEPS).prop_map(|(a, b)| (a.min(b), a.max(b) + 1));
    let gap = (0..=STEPS, 0..=STEPS, 0..7_u64, 0..7_u64);
    let one = (lifetime, 0..7_u64, 1..5_u64, vec(gap, 0..3));
    let one = one.prop_map(|((lower, upper), size, alignment, gaps)| {
        let mut next = lower;
        let mut sorted = Vec::new();
        for (a, b, start, end) in gaps {
            let (from, to) = (a.min(b).clamp(next, upper), a.max(b).clamp(next, upper));
            let used = start.min(end).min(size)..start.max(end).min(size);
            sorted.push(Gap {
                lower: from,
                upper: to,
                used,
            });
            next = to;
        }
        ConstrainedBuffer {
            interval: buffer(lower, upper, size),
            alignment,
            gaps: sorted,
        }
    });
    vec(one, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_the_least_slab(buffers in buffers()) {
        let plan = pack_constrained(&buffers, &Options::default());
        prop_assert!(is_plan(&buffers, &plan.offsets), "{:?}", plan);
        prop_assert_eq!(validate_constrained(&buffers, &plan.offsets, plan.slab_bytes), Ok(()));
        let least = least_slab(&buffers);
        prop_assert_eq!(plan.slab_bytes, least);
        prop_assert!(plan.lower_bound_bytes <= least);
        // The planner must prove that the capacity `below` is infeasible.
        if let Some(below) = least.checked_sub(1) {
            let options = Options { capacity_bytes: Some(below), ..Options::default() };
            let plan = pack_constrained(&buffers, &options);
            prop_assert!(plan.lower_bound_bytes > below);
            let options = Options { capacity_bytes: Some(least), ..Options::default() };
            prop_assert_eq!(pack_constrained(&buffers, &options).slab_bytes, least);
        }
    }

    #[test]
    fn validates_like_an_oracle(buffers in buffers(), offsets in vec(0..12_u64, 5)) {
        let offsets = &offsets[..buffers.len()];
        let valid = validate_constrained(&buffers, offsets, 64).is_ok();
        prop_assert_eq!(valid, is_plan(&buffers, offsets));
    }
}

#[test]
fn differences_that_only_an_offset_above_zero_allows() {
    // The second buffer fits into the hole of the first only at difference 2, with the offsets 3
    // and 5.
    let gaps = vec![
        Gap {
            lower: 1,
            upper: 2,
            used: 0..2,
        },
        Gap {
            lower: 2,
            upper: 3,
            used: 6..8,
        },
    ];
    let outer = ConstrainedBuffer {
        interval: buffer(0, 4, 8),
        alignment: 3,
        gaps,
    };
    let inner = ConstrainedBuffer {
        interval: buffer(1, 3, 4),
        alignment: 5,
        gaps: vec![],
    };
    let plan = pack_constrained(&[outer, inner], &Options::default());
    assert_eq!((plan.slab_bytes, plan.offsets), (11, vec![3, 5]));
}

#[test]
fn aligned_sizes_are_planned_like_whole_buffers() {
    let own = |lower, upper, size, alignment| ConstrainedBuffer {
        interval: buffer(lower, upper, size),
        alignment,
        gaps: vec![],
    };
    let buffers = [own(0, 2, 512, 64), own(1, 3, 512, 128), own(2, 4, 512, 256)];
    let plan = pack_constrained(&buffers, &Options::default());
    assert_eq!((plan.slab_bytes, plan.lower_bound_bytes), (1024, 1024));
    assert_eq!(
        validate_constrained(&buffers, &[0, 512], 1024),
        Err(Conflict::Count)
    );
}

#[test]
fn many_buffers_end_within_the_time_limit() {
    let buffers: Vec<ConstrainedBuffer> = (0..3000_u64)
        .map(|index| {
            let (lower, length) = (index * 7 % 1000, index * 13 % 40 + 1);
            let size_bytes = index * 37 % 1000 + 1;
            let used = 0..size_bytes / 2;
            let gaps = vec![Gap {
                lower,
                upper: lower + length / 2,
                used,
            }];
            ConstrainedBuffer {
                interval: buffer(lower, lower + length, size_bytes),
                alignment: 1 << (index % 5),
                gaps,
            }
        })
        .collect();
    let time_limit = std::time::Duration::from_millis(500);
    let options = Options {
        capacity_bytes: None,
        time_limit,
    };
    let plan = pack_constrained(&buffers, &options);
    assert_eq!(
        validate_constrained(&buffers, &plan.offsets, plan.slab_bytes),
        Ok(())
    );
    assert!(plan.slab_bytes < plan.max_load_bytes * 3 / 2, "{plan:?}");
}
