//! Tests of the planner against naive oracles.

mod constrained;
mod graphs;

use std::time::Duration;

use cachescope_memory::internal::plan::{
    Deadline, Incumbent, KdTree, Orderings, Problem, REMOVED, SkylineFit, SortKey, TimeLimits,
    best_fit, decompose, first_fit,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::exact::{self, SearchOutcome};
use super::{BufferInterval, Options, Packing, pack, pack_quickly, validate};

fn buffer(lower: u64, upper: u64, size_bytes: u64) -> BufferInterval {
    BufferInterval {
        lower,
        upper,
        size_bytes,
    }
}

fn meet(one: &BufferInterval, other: &BufferInterval) -> bool {
    let alive = |b: &BufferInterval| b.occupies();
    alive(one) && alive(other) && one.lower < other.upper && other.lower < one.upper
}

/// Returns whether the offsets are a valid plan. Checks each pair of buffers.
fn is_plan(buffers: &[BufferInterval], offsets: &[u64], slab: u64) -> bool {
    let end = |i: usize| offsets[i] + buffers[i].size_bytes;
    let apart = |i: usize, j: usize| end(i) <= offsets[j] || end(j) <= offsets[i];
    let inside = |i: usize| end(i) <= slab || !buffers[i].occupies();
    let clear = |i: usize| (0..i).all(|j| !meet(&buffers[i], &buffers[j]) || apart(i, j));
    (0..buffers.len()).all(|i| inside(i) && clear(i))
}

/// Returns the maximum of the live bytes. The maximum occurs at the first step of some buffer.
fn load(buffers: &[BufferInterval]) -> u64 {
    let alive = |at: u64| {
        let alive = buffers.iter().filter(|b| b.lower <= at && at < b.upper);
        alive.map(|b| b.size_bytes).sum()
    };
    buffers.iter().map(|b| alive(b.lower)).max().unwrap_or(0)
}

/// Places each buffer at the lowest free offset, in the given order. Returns the slab.
fn lowest_free(buffers: &[BufferInterval], order: &[usize]) -> u64 {
    let mut placed: Vec<(usize, u64)> = Vec::new();
    for &index in order {
        let met = placed
            .iter()
            .filter(|(i, _)| meet(&buffers[*i], &buffers[index]));
        let mut taken: Vec<(u64, u64)> =
            met.map(|&(i, o)| (o, o + buffers[i].size_bytes)).collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (from, to) in taken {
            if from >= offset + buffers[index].size_bytes {
                break;
            }
            offset = offset.max(to);
        }
        if buffers[index].occupies() {
            placed.push((index, offset));
        }
    }
    let ends = placed.iter().map(|&(i, o)| o + buffers[i].size_bytes);
    ends.max().unwrap_or(0)
}

fn sorted_down<K: Ord>(
    buffers: &[BufferInterval],
    key: impl Fn(&BufferInterval) -> K,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(key(&buffers[i])));
    order
}

/// Returns the size of the smallest slab. First fit in some order reaches it.
fn least_slab(buffers: &[BufferInterval]) -> u64 {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    let mut least = u64::MAX;
    permute(&mut order, 0, &mut |order| {
        least = least.min(lowest_free(buffers, order));
    });
    least
}

fn permute(order: &mut Vec<usize>, from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        permute(order, from + 1, visit);
        order.swap(from, other);
    }
}

fn area(buffer: &BufferInterval) -> u64 {
    buffer.size_bytes * (buffer.upper - buffer.lower)
}

/// A pseudo-random generator with a fixed seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn seconds(seconds: f64) -> Options {
    Options {
        capacity_bytes: None,
        time_limit: Duration::from_secs_f64(seconds),
    }
}

#[track_caller]
fn check(buffers: &[BufferInterval], plan: &Packing) {
    assert!(is_plan(buffers, &plan.offsets, plan.slab_bytes));
    assert_eq!(validate(buffers, &plan.offsets, plan.slab_bytes), Ok(()));
    assert_eq!(plan.max_load_bytes, load(buffers));
    assert!(plan.max_load_bytes <= plan.lower_bound_bytes);
    assert!(plan.lower_bound_bytes <= plan.slab_bytes.max(1));
    // The slab has no unused bytes at its end.
    let ends = buffers.iter().zip(&plan.offsets);
    let end = ends
        .filter(|(b, _)| b.occupies())
        .map(|(b, o)| b.size_bytes + o);
    assert_eq!(plan.slab_bytes, end.max().unwrap_or(0));
}

/// Returns random lifetimes: short, arbitrary and empty lifetimes, and lifetimes that span all
/// steps.
fn some_buffers(steps: u64, most: usize) -> impl Strategy<Value = Vec<BufferInterval>> {
    let short = (0..steps, 0..4u64, 0..40u64).prop_map(|(l, t, s)| buffer(l, l + t, s));
    let any = (0..steps, 0..steps, 0..40u64).prop_map(|(a, b, s)| buffer(a.min(b), a.max(b), s));
    let through = (0..40u64).prop_map(move |s| buffer(0, steps + 4, s));
    vec(prop_oneof![4 => short, 4 => any, 1 => through], 0..most)
}

proptest! {
    #[test]
    fn plans_hold_and_are_no_looser_than_greed(buffers in some_buffers(30, 60)) {
        let plan = pack_quickly(&buffers);
        check(&buffers, &plan);
        let by_size = lowest_free(&buffers, &sorted_down(&buffers, |b| b.size_bytes));
        let by_area = lowest_free(&buffers, &sorted_down(&buffers, area));
        prop_assert!(plan.slab_bytes <= by_size.min(by_area));
    }

    #[test]
    fn what_little_there_is_is_packed_as_well_as_can_be(buffers in some_buffers(8, 8)) {
        let plan = pack(&buffers, &seconds(60.0));
        check(&buffers, &plan);
        let least = least_slab(&buffers);
        prop_assert_eq!((plan.slab_bytes, plan.lower_bound_bytes), (least, least));
    }

    #[test]
    fn a_capacity_is_met_exactly_where_it_can_be(buffers in some_buffers(8, 8), less in 0..3u64) {
        let least = least_slab(&buffers);
        let capacity = least.saturating_sub(less);
        let options = Options { capacity_bytes: Some(capacity), ..seconds(60.0) };
        let plan = pack(&buffers, &options);
        check(&buffers, &plan);
        prop_assert_eq!(plan.slab_bytes <= capacity, least <= capacity);
        prop_assert_eq!(plan.lower_bound_bytes > capacity, least > capacity);
    }

    #[test]
    fn the_validator_agrees_with_looking_at_each_pair(
        placed in vec((0..8u64, 0..4u64, 0..4u64, 0..12u64), 0..8)
    ) {
        let buffers: Vec<_> = placed.iter().map(|&(l, t, s, _)| buffer(l, l + t, s)).collect();
        let offsets: Vec<_> = placed.iter().map(|&(.., offset)| offset).collect();
        let valid = validate(&buffers, &offsets, 12).is_ok();
        prop_assert_eq!(valid, is_plan(&buffers, &offsets, 12));
    }

    #[test]
    fn sections_overlap_exactly_where_buffers_do(buffers in some_buffers(12, 30)) {
        let living = (0..buffers.len() as u32).filter(|&i| buffers[i as usize].occupies());
        let problem = Problem::new(&buffers, living.collect());
        prop_assert_eq!(problem.max_load(), load(&buffers));
        for (one, i) in problem.items.iter().zip(&problem.indices) {
            for (other, j) in problem.items.iter().zip(&problem.indices) {
                let together = meet(&buffers[*i as usize], &buffers[*j as usize]);
                prop_assert_eq!(one.meets(other), together);
            }
        }
    }

    #[test]
    fn what_lies_inside_is_found(
        buffers in some_buffers(20, 60),
        questions in vec((0..30u32, 0..30u32, any::<bool>()), 0..40)
    ) {
        let living = (0..buffers.len() as u32).filter(|&i| buffers[i as usize].occupies());
        let problem = Problem::new(&buffers, living.collect());
        let order = Orderings::new(&problem).by(SortKey::Size);
        let mut tree = KdTree::new(&problem.items, &order);
        let mut ranks: Vec<u32> = (0..order.len() as u32).collect();
        for (first, end, removes) in questions {
            let found = tree.lowest_rank(first, end);
            let item = |rank: u32| &problem.items[order[rank as usize] as usize];
            let expected = ranks.iter().find(|&&r| item(r).first >= first && item(r).end <= end);
            prop_assert_eq!(found, expected.copied().unwrap_or(REMOVED));
            if removes && found != REMOVED {
                tree.remove(found);
                ranks.retain(|&rank| rank != found);
            }
        }
    }

    #[test]
    fn descents_hold_their_contracts(buffers in some_buffers(30, 60), more in 0..20u64) {
        for component in decompose(&buffers).0 {
            let problem = &component.problem;
            let target = problem.max_load() + more;
            let order = Orderings::new(problem).by(SortKey::Area);
            let SkylineFit { plan, overflow } = best_fit(problem, &order, target, u64::MAX);
            let slab = problem.slab(&plan.unwrap());
            // The bytes above the target are attributed to sections exactly.
            prop_assert_eq!(overflow.iter().sum::<u64>(), slab.saturating_sub(target));
            if slab > target {
                prop_assert!(best_fit(problem, &order, target, slab - 1).plan.is_none());
            }
        }
    }

    #[test]
    fn greed_finds_the_lowest_free_offset(buffers in some_buffers(20, 50)) {
        for component in decompose(&buffers).0 {
            let problem = &component.problem;
            let order = Orderings::new(problem).by(SortKey::Size);
            let plan = first_fit(problem, &order, u64::MAX).unwrap();
            let part_buffers: Vec<_> = problem.indices.iter().map(|&i| buffers[i as usize]).collect();
            let order: Vec<_> = order.iter().map(|&i| i as usize).collect();
            prop_assert_eq!(problem.slab(&plan), lowest_free(&part_buffers, &order));
        }
    }
}

#[test]
fn nothing_takes_nothing() {
    let plan = pack(&[], &Options::default());
    assert_eq!((plan.slab_bytes, plan.max_load_bytes), (0, 0));
    let empty = [buffer(3, 3, 100), buffer(0, 9, 0)];
    let plan = pack(&empty, &Options::default());
    check(&empty, &plan);
    assert_eq!(plan.slab_bytes, 0);
}

#[test]
fn a_capacity_below_the_load_is_known_to_be_too_small_at_once() {
    let buffers: Vec<_> = (0..100).map(|i| buffer(i, i + 7, 10 + i)).collect();
    let options = Options {
        capacity_bytes: Some(100),
        time_limit: Duration::from_secs(1000),
    };
    let plan = pack(&buffers, &options);
    check(&buffers, &plan);
    assert!(plan.lower_bound_bytes > 100);
}

#[test]
fn sizes_near_the_limit_do_not_overflow() {
    let half = (i64::MAX / 2) as u64;
    let buffers = [buffer(0, u64::MAX, half), buffer(7, u64::MAX, half)];
    let plan = pack(&buffers, &Options::default());
    check(&buffers, &plan);
    assert_eq!(plan.slab_bytes, half * 2);
}

/// Cuts a rectangle into buffers, so that a plan without gaps exists.
fn cut_rectangles(cuts: usize, numbers: &mut Numbers) -> Vec<BufferInterval> {
    let mut pieces = vec![(0u64, 1 << 20, 0u64, 1u64 << 20)];
    for _ in 0..cuts {
        let chosen = (0..3).map(|_| numbers.below(pieces.len() as u64) as usize);
        let large =
            chosen.max_by_key(|&i| (pieces[i].1 - pieces[i].0) * (pieces[i].3 - pieces[i].2));
        let (l, u, from, to) = pieces.swap_remove(large.unwrap());
        if u - l > to - from {
            let at = l + 1 + numbers.below(u - l - 1);
            pieces.extend([(l, at, from, to), (at, u, from, to)]);
        } else {
            let at = from + 1 + numbers.below(to - from - 1);
            pieces.extend([(l, u, from, at), (l, u, at, to)]);
        }
    }
    let pieces = pieces.into_iter();
    pieces
        .map(|(l, u, from, to)| buffer(l, u, to - from))
        .collect()
}

#[test]
fn plans_without_any_gap_are_found() {
    let mut numbers = Numbers(1);
    for _ in 0..20 {
        let buffers = cut_rectangles(60, &mut numbers);
        let plan = pack(&buffers, &seconds(60.0));
        check(&buffers, &plan);
        assert_eq!(plan.slab_bytes, plan.max_load_bytes);
    }
}

#[test]
fn the_first_passes_end_with_their_time() {
    let mut numbers = Numbers(11);
    let (late, never) = (Duration::ZERO, Duration::MAX);
    let mut better = 0;
    for _ in 0..20 {
        let buffers = cut_rectangles(60, &mut numbers);
        let problem = Problem::new(&buffers, (0..buffers.len() as u32).collect());
        let load = problem.max_load();
        let [one, all] = [late, never].map(|first_passes| {
            let limits = TimeLimits {
                first_passes: Deadline::after(first_passes),
                search: Deadline::after(late),
            };
            let incumbent = Incumbent::new(&problem, load, &limits);
            assert!(is_plan(&buffers, incumbent.offsets(), incumbent.slab()));
            incumbent.slab()
        });
        assert!(one >= all);
        better += u32::from(one > all);
    }
    assert!(better > 0, "more passes find smaller slabs");
}

#[test]
fn a_search_ends_with_its_nodes_or_its_time() {
    let mut numbers = Numbers(7);
    let buffers = cut_rectangles(400, &mut numbers);
    let problem = Problem::new(&buffers, (0..buffers.len() as u32).collect());
    let orderings = Orderings::new(&problem);
    let late = Deadline::after(Duration::ZERO);
    let never = Deadline::after(Duration::MAX);
    let capacity = problem.max_load();
    assert_eq!(
        exact::search(&orderings, &problem, capacity, u64::MAX, &late),
        SearchOutcome::BudgetExhausted
    );
    assert_eq!(
        exact::search(&orderings, &problem, capacity, 300, &never),
        SearchOutcome::BudgetExhausted
    );
}
