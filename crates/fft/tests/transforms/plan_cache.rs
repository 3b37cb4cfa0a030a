//! Tests of the plan cache: caching, dropping and refusing plans.

use std::sync::Arc;

use cachescope_fft::internal::{MOST, MOST_NUMBERS, PlanCache};
use cachescope_fft::{Direction, OutOfMemory};

#[test]
fn those_used_last_are_kept() {
    let cache: PlanCache<usize> = PlanCache::new();
    let get = |length: usize, made: usize| {
        let key = (length, Direction::Forward);
        *cache.get::<f32>(key, || Arc::new(made)).unwrap()
    };
    for length in 1..=MOST {
        assert_eq!(get(length, length), length);
    }
    assert_eq!(get(1, 0), 1, "the first is still there");
    assert_eq!(get(MOST + 1, 7), 7);
    assert_eq!(get(1, 0), 1, "and has been used after the second,");
    assert_eq!(get(2, 0), 0, "which made room");
    for length in 4..=MOST {
        assert_eq!(
            get(length, 0),
            length,
            "and only the third made room for it"
        );
    }
    assert_eq!(get(MOST + 1, 0), 7);
    assert_eq!(get(3, 0), 0);
}

#[test]
fn both_directions_of_a_length_are_plans_of_their_own() {
    let cache: PlanCache<usize> = PlanCache::new();
    for (number, direction) in [Direction::Forward, Direction::Inverse]
        .into_iter()
        .enumerate()
    {
        let plan = cache.get::<f64>((8, direction), || Arc::new(number));
        assert_eq!(*plan.unwrap(), number);
    }
}

/// Returns the number of plans that a cache drops while plans of `lengths` are made. The directions
/// alternate, so that two plans may have one length.
fn dropped(lengths: impl IntoIterator<Item = usize>) -> usize {
    let cache: PlanCache<()> = PlanCache::new();
    let directions = [Direction::Forward, Direction::Inverse];
    let keys = lengths.into_iter().zip(directions.into_iter().cycle());
    // A number with parts of type `()` takes no memory, so the cache's check for memory accepts any
    // length.
    let plan = |key| cache.get::<()>(key, || Arc::new(())).unwrap();
    let plans: Vec<Arc<()>> = keys.map(plan).collect();
    let is_kept = |plan: &Arc<()>| Arc::strong_count(plan) > 1;
    assert!(plans.is_sorted_by_key(is_kept), "the first are dropped");
    plans.partition_point(|plan| !is_kept(plan))
}

#[test]
fn long_plans_make_way_for_each_other_but_for_a_pair() {
    const LONGEST: usize = usize::MAX / 2;
    assert_eq!(dropped([]), 0);
    assert_eq!(dropped([LONGEST, LONGEST]), 0);
    assert_eq!(dropped([3, LONGEST, LONGEST]), 1, "the sum does not wrap");
    assert_eq!(dropped([1, MOST_NUMBERS, 2]), 1);
    assert_eq!(dropped([1, MOST_NUMBERS - 2, 2]), 1);
    assert_eq!(dropped([1, MOST_NUMBERS - 3, 2]), 0);
    assert_eq!(dropped([1, 1, 2, MOST_NUMBERS, MOST_NUMBERS]), 3);
    assert_eq!(dropped(1..=MOST + 5), 5);
}

#[test]
fn a_plan_that_no_memory_holds_is_refused() {
    let cache: PlanCache<usize> = PlanCache::new();
    for length in [usize::MAX, usize::MAX / 4] {
        let plan = cache.get::<f32>((length, Direction::Forward), || unreachable!());
        assert_eq!(plan, Err(OutOfMemory));
    }
}
