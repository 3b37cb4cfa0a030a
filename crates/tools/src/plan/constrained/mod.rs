//! Plans of buffers with alignments and gaps.
//!
//! A buffer is a set of *pieces*: a range of bytes that the buffer uses from one step to another.
//! Two buffers conflict only if pieces of them are live at the same step. The difference of their
//! offsets must be outside of the forbidden intervals ([`Conflicts`]). [`first_fit`] places pieces
//! with the segment tree of the other planners. [`exact`] branches on the allowed intervals of a
//! difference.

mod exact;
mod first_fit;
mod pairs;

use std::time::Duration;

use super::{BufferInterval, Options, Packing, pack};
use super::{Conflict, validate};
use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::Problem;
use exact::Proof;
use pairs::Conflicts;

/// A buffer with an alignment, and with gaps in which it uses only a part of its bytes.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::plan::{BufferInterval, ConstrainedBuffer, Gap, Options, pack_constrained};
///
/// let interval = |lower, upper, size_bytes| BufferInterval { lower, upper, size_bytes };
/// let gaps = vec![Gap { lower: 2, upper: 4, used: 0..0 }];
/// let buffers = [
///     ConstrainedBuffer { interval: interval(0, 6, 8), alignment: 1, gaps },
///     // It lives in the gap only.
///     ConstrainedBuffer { interval: interval(2, 4, 8), alignment: 8, gaps: vec![] },
/// ];
/// assert_eq!(pack_constrained(&buffers, &Options::default()).slab_bytes, 8);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstrainedBuffer {
    /// The size and the lifetime of the buffer.
    pub interval: BufferInterval,
    /// The alignment: at least 1, and a divisor of the buffer's offset. The sizes and the
    /// alignments of all buffers sum to less than 2⁶³.
    pub alignment: u64,
    /// The gaps of the buffer: in ascending order, disjoint, and within its lifetime.
    pub gaps: Vec<Gap>,
}

/// A range of steps in which a buffer uses only a part of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first step.
    pub lower: u64,
    /// The step after the last step; not below `lower`.
    pub upper: u64,
    /// The range of the buffer's bytes that stay in use. If it is empty, all bytes are free.
    pub used: std::ops::Range<u64>,
}

/// A range of a buffer's bytes, in use from one step to another.
#[derive(Clone, Copy, Debug)]
struct LivePiece {
    buffer: u32,
    /// The offset of the first byte within the buffer.
    start: u64,
    /// The steps and the number of bytes.
    interval: BufferInterval,
}

/// Returns the pieces of a buffer, ordered by time.
fn pieces_of(index: usize, buffer: &ConstrainedBuffer) -> Vec<LivePiece> {
    let BufferInterval {
        mut lower,
        upper,
        size_bytes,
    } = buffer.interval;
    let mut pieces = Vec::new();
    let mut add = |lower, upper, used: std::ops::Range<u64>| {
        let interval = BufferInterval {
            lower,
            upper,
            size_bytes: used.end.saturating_sub(used.start),
        };
        if interval.occupies() {
            pieces.push(LivePiece {
                buffer: index as u32,
                start: used.start,
                interval,
            });
        }
    };
    for gap in &buffer.gaps {
        add(lower, gap.lower, 0..size_bytes);
        add(gap.lower, gap.upper, gap.used.clone());
        lower = gap.upper;
    }
    add(lower, upper, 0..size_bytes);
    pieces
}

/// Returns the lowest multiple of `alignment` that is at least `offset`.
fn aligned(offset: u64, alignment: u64) -> u64 {
    offset.next_multiple_of(alignment.max(1))
}

/// The divisor of the time limit for the first exact search, which runs before [`packed_whole`].
const FIRST_SHARE: u32 = 4;

/// Plans like [`pack`], for buffers with alignments and gaps. Searches small inputs completely.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::plan::{BufferInterval, ConstrainedBuffer, Options, pack_constrained};
///
/// let buffer = |alignment| ConstrainedBuffer {
///     interval: BufferInterval { lower: 0, upper: 1, size_bytes: 5 },
///     alignment,
///     gaps: vec![],
/// };
/// let plan = pack_constrained(&[buffer(8), buffer(8)], &Options::default());
/// assert_eq!(plan.slab_bytes, 13);
/// ```
pub fn pack_constrained(buffers: &[ConstrainedBuffer], options: &Options) -> Packing {
    let whole: Vec<BufferInterval> = buffers.iter().map(|buffer| buffer.interval).collect();
    let common = common_alignment(buffers);
    let has_gaps = buffers.iter().any(|buffer| !buffer.gaps.is_empty());
    // Offsets are sums of sizes. So if all sizes are aligned, all offsets are aligned.
    let is_plain = |of: u64| whole.iter().all(|own| own.size_bytes.is_multiple_of(of));
    if !has_gaps && common.is_some_and(is_plain) {
        return pack(&whole, options);
    }
    let begin = Deadline::after(options.time_limit);
    let pieces: Vec<LivePiece> = buffers
        .iter()
        .enumerate()
        .flat_map(|(index, buffer)| pieces_of(index, buffer))
        .collect();
    let intervals: Vec<BufferInterval> = pieces.iter().map(|piece| piece.interval).collect();
    let problem = Problem::of_all(&intervals);
    let max_load_bytes = problem.max_load();
    let largest = whole.iter().filter(|own| own.occupies());
    let largest = largest.map(|own| own.size_bytes).max().unwrap_or(0);
    let mut lower_bound_bytes = max_load_bytes.max(largest);
    let goal = options.capacity_bytes.unwrap_or(0).max(lower_bound_bytes);

    let mut best = first_fit::best_of(buffers, (&pieces, &problem), goal, &begin);
    let mut improve = |best: &mut Vec<u64>, deadline: &Deadline, conflicts: &Conflicts| {
        if slab(buffers, best) <= goal {
            return true;
        }
        let proof = exact::search(buffers, conflicts, best, goal, deadline);
        if let Proof::AtLeast(bytes) = proof {
            lower_bound_bytes = lower_bound_bytes.max(bytes);
        }
        proof != Proof::None || slab(buffers, best) <= goal
    };
    let conflicts = Conflicts::new(buffers, &pieces, &begin);
    let first = begin.share(FIRST_SHARE as usize);
    let is_done = match &conflicts {
        Some(conflicts) => improve(&mut best, &first, conflicts),
        None => slab(buffers, &best) <= goal,
    };
    if !is_done {
        let time_limit = options.time_limit / 2;
        if let Some(other) = packed_whole(&whole, common, (options.capacity_bytes, time_limit))
            && slab(buffers, &other) < slab(buffers, &best)
        {
            best = other;
        }
        if let Some(conflicts) = &conflicts {
            improve(&mut best, &begin, conflicts);
        }
    }
    Packing {
        slab_bytes: slab(buffers, &best),
        offsets: best,
        max_load_bytes,
        lower_bound_bytes,
    }
}

/// Returns the size of the slab: the highest end of a buffer.
fn slab(buffers: &[ConstrainedBuffer], offsets: &[u64]) -> u64 {
    let placed = buffers.iter().zip(offsets);
    let placed = placed.filter(|(buffer, _)| buffer.interval.occupies());
    let ends = placed.map(|(buffer, offset)| offset + buffer.interval.size_bytes);
    ends.max().unwrap_or(0)
}

/// Returns the least common multiple of the alignments, or `None` if it exceeds 2⁴⁰.
fn common_alignment(buffers: &[ConstrainedBuffer]) -> Option<u64> {
    let occupying = buffers.iter().filter(|buffer| buffer.interval.occupies());
    occupying
        .map(|buffer| buffer.alignment.max(1))
        .try_fold(1, |common: u64, own| {
            let (mut a, mut b) = (common, own);
            while b > 0 {
                (a, b) = (b, a % b);
            }
            common
                .checked_mul(own / a)
                .filter(|&common| common <= 1 << 40)
        })
}

/// Returns the offsets of a plan that ignores gaps. Sizes are rounded up to the common alignment.
fn packed_whole(
    whole: &[BufferInterval],
    common: Option<u64>,
    (capacity_bytes, time_limit): (Option<u64>, Duration),
) -> Option<Vec<u64>> {
    let common = common?;
    let mut total = 0_u64;
    let mut rounded = whole.to_vec();
    for own in &mut rounded {
        own.size_bytes = own.size_bytes.checked_next_multiple_of(common)?;
        total = total.checked_add(own.size_bytes)?;
    }
    let options = Options {
        capacity_bytes,
        time_limit,
    };
    let fits = i64::try_from(total).is_ok();
    fits.then(|| pack(&rounded, &options).offsets)
}

/// Validates a plan like [`validate`], for buffers with alignments and gaps.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::plan::{BufferInterval, Conflict, ConstrainedBuffer, validate_constrained};
///
/// let interval = BufferInterval { lower: 0, upper: 1, size_bytes: 5 };
/// let buffers = [ConstrainedBuffer { interval, alignment: 8, gaps: vec![] }];
/// assert_eq!(validate_constrained(&buffers, &[8], 13), Ok(()));
/// assert_eq!(validate_constrained(&buffers, &[5], 13), Err(Conflict::Unaligned(0)));
/// ```
///
/// # Errors
///
/// Returns a [`Conflict`] if the plan is invalid.
pub fn validate_constrained(
    buffers: &[ConstrainedBuffer],
    offsets: &[u64],
    slab_bytes: u64,
) -> Result<(), Conflict> {
    if buffers.len() != offsets.len() {
        return Err(Conflict::Count);
    }
    let mut pieces = Vec::new();
    for (index, (buffer, &offset)) in buffers.iter().zip(offsets).enumerate() {
        if !buffer.interval.occupies() {
            continue;
        }
        if !offset.is_multiple_of(buffer.alignment.max(1)) {
            return Err(Conflict::Unaligned(index));
        }
        let end = offset.checked_add(buffer.interval.size_bytes);
        if end.is_none_or(|end| end > slab_bytes) {
            return Err(Conflict::Outside(index));
        }
        pieces.extend(pieces_of(index, buffer));
    }
    let buffer_of = |piece: usize| pieces[piece].buffer as usize;
    let intervals: Vec<BufferInterval> = pieces.iter().map(|piece| piece.interval).collect();
    let starts: Vec<u64> = pieces
        .iter()
        .map(|piece| offsets[piece.buffer as usize].saturating_add(piece.start))
        .collect();
    validate(&intervals, &starts, slab_bytes).map_err(|conflict| match conflict {
        Conflict::Outside(piece) => Conflict::Outside(buffer_of(piece)),
        Conflict::Overlap(one, other) => Conflict::Overlap(buffer_of(one), buffer_of(other)),
        other => other,
    })
}
