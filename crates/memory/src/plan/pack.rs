//! The planner's entry points.

use std::cmp::Reverse;
use std::time::Duration;

use super::components::{self, Component};
use super::deadline::Deadline;
use super::incumbent::{Incumbent, TimeLimits};
use super::ordering::{Orderings, SortKey};
use super::sections::{Problem, occupying};
use super::{BufferInterval, greedy};

/// The offsets of all buffers in one slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each buffer; 0 for a buffer without size or lifetime.
    pub offsets: Vec<u64>,
    /// The size of the slab: the highest end of a buffer.
    pub slab_bytes: u64,
    /// The maximum load: the largest total size of buffers that are live at one moment. No slab can
    /// be smaller.
    pub max_load_bytes: u64,
    /// The best known lower bound on the slab: the maximum load, or a higher bound of the search.
    pub lower_bound_bytes: u64,
}

/// Improves the incumbent of a component until its slab reaches the goal, or until the deadline.
/// Returns the best known lower bound on the slab.
pub type Improve = fn(incumbent: &mut Incumbent<'_>, goal: u64, deadline: &Deadline) -> u64;

/// Packs by heuristics alone, in about a microsecond for each buffer and pass: fast enough for use
/// at run time. The result depends on the buffers alone, not on time.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::plan::{BufferInterval, pack_quickly};
///
/// let buffer = |lower, upper, size_bytes| BufferInterval { lower, upper, size_bytes };
/// let plan = pack_quickly(&[buffer(0, 2, 512), buffer(1, 3, 512), buffer(2, 4, 512)]);
/// assert_eq!(plan.slab_bytes, 1024);
/// assert_eq!(plan.offsets[0], plan.offsets[2]); // They never live together.
/// ```
pub fn pack_quickly(buffers: &[BufferInterval]) -> Packing {
    let limits = TimeLimits {
        first_passes: Deadline::after(Duration::MAX),
        search: Deadline::after(Duration::ZERO),
    };
    let no_search: Improve = |incumbent, _, _| incumbent.problem.max_load();
    pack_within(buffers, None, limits, no_search)
}

/// Packs by heuristics around the first buffers, which keep the given `fixed` offsets. The fixed
/// buffers must not overlap.
pub(crate) fn pack_around(buffers: &[BufferInterval], fixed: Vec<u64>) -> Vec<u64> {
    let rest = &buffers[fixed.len()..];
    let begin = rest.first().map_or(u64::MAX, |buffer| buffer.lower);
    if buffers[..fixed.len()]
        .iter()
        .all(|buffer| buffer.upper <= begin)
    {
        let mut offsets = fixed;
        offsets.extend(pack_quickly(rest).offsets);
        return offsets;
    }
    let problem = Problem::of_all(buffers);
    let orderings = Orderings::new(&problem);
    let placed = [SortKey::Size, SortKey::Area].map(|key| {
        let offsets = greedy::first_fit_around(&problem, &orderings.by(key), &fixed);
        (problem.slab(&offsets), offsets)
    });
    let (_, placed) = placed.into_iter().min().unwrap_or_default();
    let mut offsets = vec![0; buffers.len()];
    problem.write_offsets(&placed, 0, &mut offsets);
    offsets
}

/// Packs by heuristics. Then `improve` improves each component that is larger than both
/// `capacity_bytes` and the maximum load.
pub fn pack_within(
    buffers: &[BufferInterval],
    capacity_bytes: Option<u64>,
    mut limits: TimeLimits,
    improve: Improve,
) -> Packing {
    let (components, mut offsets) = components::decompose(buffers);
    let max_load_bytes = max_load(buffers, &components, &offsets);
    let goal = capacity_bytes.unwrap_or(0).max(max_load_bytes);
    if capacity_bytes.is_some_and(|bytes| bytes < max_load_bytes) {
        limits.search = Deadline::after(Duration::ZERO);
    }
    let mut enter = |component: &Component, incumbent: &Incumbent<'_>| {
        let placed = incumbent.offsets();
        let Component { problem, base } = component;
        problem.write_offsets(placed, *base, &mut offsets);
    };
    let mut slab_bytes = goal;
    let mut lower_bound_bytes = max_load_bytes;
    let mut open = Vec::new();
    let mut first_fit_time = Duration::ZERO;
    for component in &components {
        let incumbent = Incumbent::new(&component.problem, slab_bytes - component.base, &limits);
        first_fit_time += incumbent.first_fit_time();
        if component.base + incumbent.slab() > slab_bytes {
            open.push((component, incumbent));
        } else {
            enter(component, &incumbent);
        }
    }
    // First fit runs before the search, because the search may use all of the time.
    let ends = open
        .iter()
        .map(|(component, incumbent)| component.base + incumbent.slab());
    let whole = ends
        .max()
        .filter(|_| limits.first_passes.allows(first_fit_time * 2))
        .and_then(|slab_bytes| place_whole(buffers, &components, slab_bytes));
    if whole
        .as_ref()
        .is_some_and(|(_, slab_bytes)| *slab_bytes <= goal)
    {
        limits.search = Deadline::after(Duration::ZERO);
    }
    // The component with the largest lower bound is first, because its slab is the goal of the
    // other components.
    open.sort_by_key(|(component, _)| Reverse(component.base + component.problem.max_load()));
    let count = open.len();
    for (number, (component, mut incumbent)) in open.into_iter().enumerate() {
        if component.base + incumbent.slab() > slab_bytes {
            let time = limits.search.share(count - number);
            let least = improve(&mut incumbent, slab_bytes - component.base, &time);
            lower_bound_bytes = lower_bound_bytes.max(component.base + least);
            slab_bytes = slab_bytes.max(component.base + incumbent.slab());
        }
        enter(component, &incumbent);
    }
    let mut slab_bytes = highest_end(buffers, &offsets);
    if let Some(whole) = whole.filter(|(_, whole_bytes)| *whole_bytes < slab_bytes) {
        (offsets, slab_bytes) = whole;
    }
    Packing {
        slab_bytes,
        offsets,
        max_load_bytes,
        lower_bound_bytes,
    }
}

/// Runs first fit over the whole input, for a slab smaller than `slab_bytes`. First fit can beat
/// the decomposition. The decomposition places an item that lives through all of a component at the
/// component's bottom. Returns the offsets and the slab.
fn place_whole(
    buffers: &[BufferInterval],
    components: &[Component],
    mut slab_bytes: u64,
) -> Option<(Vec<u64>, u64)> {
    let indices = occupying(buffers);
    if components
        .iter()
        .any(|component| component.problem.indices.len() == indices.len())
    {
        return None;
    }
    let problem = Problem::new(buffers, indices);
    let orderings = Orderings::new(&problem);
    let mut best = None;
    for key in [SortKey::Size, SortKey::Area] {
        if let Some(placed) = greedy::first_fit(&problem, &orderings.by(key), slab_bytes - 1) {
            slab_bytes = problem.slab(&placed);
            best = Some(placed);
        }
    }
    let mut offsets = vec![0; buffers.len()];
    problem.write_offsets(&best?, 0, &mut offsets);
    Some((offsets, slab_bytes))
}

/// Returns the load of the input: the largest load of a component, including the items removed from
/// the component.
fn max_load(buffers: &[BufferInterval], components: &[Component], offsets: &[u64]) -> u64 {
    let loads = components
        .iter()
        .map(|component| component.base + component.problem.max_load());
    loads.fold(highest_end(buffers, offsets), u64::max)
}

fn highest_end(buffers: &[BufferInterval], offsets: &[u64]) -> u64 {
    let placed = buffers
        .iter()
        .zip(offsets)
        .filter(|(buffer, _)| buffer.occupies());
    let ends = placed.map(|(buffer, offset)| offset + buffer.size_bytes);
    ends.max().unwrap_or(0)
}
