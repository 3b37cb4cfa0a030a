//! The search for the smallest slab.

use std::time::Duration;

use cachescope_memory::internal::plan::{Deadline, TimeLimits, pack_within};

use super::{BufferInterval, Packing, improve};

/// The options of [`pack`](pack()): the capacity of the slab, and the time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The capacity. If it is set, the search stops at the first plan within it. Otherwise, the
    /// slab is minimised.
    pub capacity_bytes: Option<u64>,
    /// The time after which the search returns the best plan found. The first heuristic passes may
    /// exceed it: they have at least half a second, and one pass always completes.
    pub time_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity_bytes: None,
            time_limit: Duration::from_secs(10),
        }
    }
}

/// The minimum time limit of the first heuristic passes.
const FIRST_PASSES_TIME: Duration = Duration::from_millis(500);

/// Packs buffers so that no two buffers overlap while both are live.
///
/// Heuristics run first. Then branch and bound runs until the time limit. Branch and bound is
/// complete: given enough time, it finds a plan within a capacity, or proves that none exists. The
/// heuristics include first fit by descending size, and by descending product of size and lifetime.
/// If the time limit suffices for these two heuristics, the slab is at most the smaller of their
/// slabs.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::plan::{BufferInterval, Options, pack, validate};
///
/// let buffer = |lower, upper, size_bytes| BufferInterval { lower, upper, size_bytes };
/// let buffers = [buffer(0, 2, 512), buffer(1, 3, 512), buffer(2, 4, 512)];
/// let plan = pack(&buffers, &Options::default());
/// assert_eq!((plan.slab_bytes, plan.max_load_bytes), (1024, 1024));
/// assert!(validate(&buffers, &plan.offsets, plan.slab_bytes).is_ok());
/// ```
pub fn pack(buffers: &[BufferInterval], options: &Options) -> Packing {
    let limits = TimeLimits {
        first_passes: Deadline::after(options.time_limit.max(FIRST_PASSES_TIME)),
        search: Deadline::after(options.time_limit),
    };
    let improve = match options.capacity_bytes {
        Some(_) => improve::fit_capacity,
        None => improve::minimize,
    };
    pack_within(buffers, options.capacity_bytes, limits, improve)
}
