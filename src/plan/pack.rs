//! A whole plan.

use std::cmp::Reverse;
use std::time::Duration;

use super::clock::Clock;
use super::draft::Draft;
use super::order::{Key, Orders};
use super::parts::{self, Part};
use super::sections::Problem;
use super::{greedy, improve};

/// A buffer, as far as a plan depends on it.
///
/// Where offsets must be multiples of some unit, sizes that are such multiples are enough: every offset
/// of a plan is a sum of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first step that it lives in.
    pub lower: u64,
    /// The first step that it no longer lives in; not below `lower`.
    pub upper: u64,
    /// Its length. Those of all buffers add up to less than 2⁶³.
    pub size_bytes: u64,
}

impl Buffer {
    /// Whether it takes any place at any time.
    pub(crate) fn occupies(&self) -> bool {
        self.lower < self.upper && self.size_bytes > 0
    }
}

/// What a plan is to achieve, and how long that may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The first plan inside that many bytes will do. Without it the slab is to be as small as it can.
    pub capacity: Option<u64>,
    /// When to end with the best plan found. A few passes over the buffers are made in any case.
    pub time_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: None,
            time_limit: Duration::from_secs(10),
        }
    }
}

/// Where each buffer lies in one slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each buffer; 0 for one that takes no place.
    pub offsets: Vec<u64>,
    /// The highest end of a buffer.
    pub slab_bytes: u64,
    /// The most that is alive at one moment: no slab can be smaller.
    pub max_load_bytes: u64,
    /// No slab can be smaller than this, as far as is known: the load, or more where a search proved it.
    pub least_bytes: u64,
}

/// Plans with a few passes over the buffers, about a microsecond for each buffer and pass: what there
/// is time for while a program runs.
pub fn pack_quickly(buffers: &[Buffer]) -> Packing {
    pack(
        buffers,
        &Options {
            capacity: None,
            time_limit: Duration::ZERO,
        },
    )
}

/// The offsets of a plan likewise made, in which the first buffers lie at the given offsets already, where
/// they are not in each other's way.
pub(crate) fn pack_around(buffers: &[Buffer], fixed: Vec<u64>) -> Vec<u64> {
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
    let occupying = (0..).zip(buffers).filter(|(_, buffer)| buffer.occupies());
    let problem = Problem::new(buffers, occupying.map(|(index, _)| index).collect());
    let orders = Orders::new(&problem);
    let placed = [Key::Size, Key::Area].map(|key| {
        let offsets = greedy::place_around(&problem, &orders.by(key), &fixed);
        (problem.slab(&offsets), offsets)
    });
    let (_, placed) = placed.into_iter().min().unwrap_or_default();
    let mut offsets = vec![0; buffers.len()];
    for (&source, offset) in problem.sources.iter().zip(placed) {
        offsets[source as usize] = offset;
    }
    offsets
}

/// Plans: looks for offsets at which no two buffers that live at the same time overlap.
///
/// First come heuristics, then, until the time is up, a search that finds a plan inside a capacity
/// wherever there is one, given the time. The slab is never larger than that of placing the buffers by
/// falling size or by falling size times lifetime, each at the lowest offset that is free.
///
/// # Examples
///
/// ```
/// use cachescope::plan::{Buffer, Options, pack, validate};
///
/// let buffer = |lower, upper, size_bytes| Buffer { lower, upper, size_bytes };
/// let buffers = [buffer(0, 2, 512), buffer(1, 3, 512), buffer(2, 4, 512)];
/// let plan = pack(&buffers, &Options::default());
/// assert_eq!((plan.slab_bytes, plan.max_load_bytes), (1024, 1024));
/// assert!(validate(&buffers, &plan.offsets, plan.slab_bytes).is_ok());
/// ```
pub fn pack(buffers: &[Buffer], options: &Options) -> Packing {
    let clock = Clock::starting(options.time_limit);
    let (parts, mut offsets) = parts::split(buffers);
    let max_load_bytes = max_load(buffers, &parts, &offsets);
    let goal = options.capacity.unwrap_or(0).max(max_load_bytes);
    let possible = options.capacity.is_none_or(|bytes| bytes >= max_load_bytes);
    let clock = if possible {
        clock
    } else {
        Clock::starting(Duration::ZERO)
    };
    let mut slab_bytes = goal;
    let mut least_bytes = max_load_bytes;
    let mut open = Vec::new();
    for part in &parts {
        let draft = Draft::new(&part.problem, slab_bytes - part.base, &clock);
        if part.base + draft.slab() > slab_bytes {
            open.push((part, draft));
        } else {
            enter(part, &draft, &mut offsets);
        }
    }
    // The part that needs the most room says what the others may take.
    open.sort_by_key(|(part, _)| Reverse(part.base + part.problem.max_load()));
    let improve = match options.capacity {
        Some(_) => improve::fit,
        None => improve::shrink,
    };
    let count = open.len();
    for (number, (part, mut draft)) in open.into_iter().enumerate() {
        if part.base + draft.slab() > slab_bytes {
            let time = clock.share(count - number);
            let least = improve(&mut draft, slab_bytes - part.base, &time);
            least_bytes = least_bytes.max(part.base + least);
            slab_bytes = slab_bytes.max(part.base + draft.slab());
        }
        enter(part, &draft, &mut offsets);
    }
    if highest_end(buffers, &offsets) > goal {
        place_undivided(buffers, &parts, &mut offsets);
    }
    Packing {
        slab_bytes: highest_end(buffers, &offsets),
        offsets,
        max_load_bytes,
        least_bytes,
    }
}

/// Places the whole input by greed, in case that is tighter than the plans of its parts together: what
/// lives through all of a part stands at its bottom there, which is not always the best place.
fn place_undivided(buffers: &[Buffer], parts: &[Part], offsets: &mut [u64]) {
    let occupying = (0..).zip(buffers).filter(|(_, buffer)| buffer.occupies());
    let sources: Vec<u32> = occupying.map(|(index, _)| index).collect();
    if parts
        .iter()
        .any(|part| part.problem.sources.len() == sources.len())
    {
        return;
    }
    let problem = Problem::new(buffers, sources);
    let orders = Orders::new(&problem);
    for key in [Key::Size, Key::Area] {
        let bound = highest_end(buffers, offsets) - 1;
        if let Some(placed) = greedy::place(&problem, &orders.by(key), bound) {
            for (&source, offset) in problem.sources.iter().zip(placed) {
                offsets[source as usize] = offset;
            }
        }
    }
}

/// Enters the plan of a part into that of the whole.
fn enter(part: &Part, draft: &Draft<'_>, offsets: &mut [u64]) {
    for (&source, offset) in part.problem.sources.iter().zip(draft.offsets()) {
        offsets[source as usize] = part.base + offset;
    }
}

/// The load of the whole input: what its heaviest part and what was taken out of it come to.
fn max_load(buffers: &[Buffer], parts: &[Part], offsets: &[u64]) -> u64 {
    let loads = parts.iter().map(|part| part.base + part.problem.max_load());
    loads.fold(highest_end(buffers, offsets), u64::max)
}

fn highest_end(buffers: &[Buffer], offsets: &[u64]) -> u64 {
    let placed = buffers
        .iter()
        .zip(offsets)
        .filter(|(buffer, _)| buffer.occupies());
    let ends = placed.map(|(buffer, offset)| offset + buffer.size_bytes);
    ends.max().unwrap_or(0)
}
