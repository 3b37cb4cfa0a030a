//! Walks as parameters of kernels.

use std::fmt::Write;

use super::launch::{THREADS, grid_of};
use super::program::inverse;
use crate::array::{Layout, Walk};
use crate::device::cuda::{Arguments, Grid};

/// The ranks that kernels are compiled for. A walk of another rank uses the next larger rank.
const RANKS: [usize; 5] = [1, 2, 3, 5, 9];

/// The number of words that a thread of most kernels reads before its first write.
const UNROLLED: usize = 4;

/// The index arithmetic of a kernel: the number of axes, and whether indices need more than 31
/// bits. A kernel is compiled for each combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    rank: usize,
    wide: bool,
}

impl Numbering {
    /// Returns the numbering for walks of up to `rank` axes. All positions in a walk and all
    /// element indices are below `limit`.
    pub(super) fn new(rank: usize, limit: usize) -> Self {
        let rank = RANKS.into_iter().find(|&own| rank <= own);
        Self {
            rank: rank.expect("a walk has at most nine axes"),
            wide: limit > i32::MAX as usize,
        }
    }

    /// Returns the numbering for one walk. All element indices are below `limit`.
    pub(super) fn of<const K: usize>(walk: &Walk<K>, limit: usize) -> Self {
        Self::new(walk.axes().len(), limit.max(walk.count()))
    }

    pub(super) fn rank(self) -> usize {
        self.rank
    }

    /// Returns the lowest four bits of a kernel's form.
    pub(super) fn form(self) -> u32 {
        let rank = RANKS.iter().position(|&rank| rank == self.rank);
        rank.unwrap_or_default() as u32 | u32::from(self.wide) << 3
    }

    /// Returns the definitions at the beginning of a kernel's source.
    pub(super) fn text(self) -> String {
        let index = if self.wide { "u64" } else { "u32" };
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "typedef {index} index_t;\n#define RANK {}\n#define UNROLLED {UNROLLED}\n",
            self.rank
        );
        text + include_str!("walk.cuh")
    }

    /// Appends `walk` to the arguments of a kernel, as the kernel's `Walk`.
    pub(super) fn push<const K: usize>(self, arguments: &mut Arguments, walk: &Walk<K>) {
        let mut numbers: Vec<u64> = walk.first().map(|first| first as u64).into();
        for _ in walk.axes().len()..self.rank {
            numbers.extend(self.axis(1, [0; K]));
        }
        for (length, steps) in walk.axes() {
            numbers.extend(self.axis(length, steps));
        }
        self.push_numbers(arguments, &numbers);
    }

    /// Returns the members of the kernel's structure `Axis`.
    pub(super) fn axis<const K: usize>(self, length: usize, steps: [isize; K]) -> Vec<u64> {
        let (multiplier, shift) = inverse(length);
        let division = [length as u64, multiplier.into(), shift.into()];
        let steps = steps.map(|step| step as u64);
        division.into_iter().chain(steps).collect()
    }

    /// Appends `numbers` as a structure with members of type `index_t`.
    pub(super) fn push_numbers(self, arguments: &mut Arguments, numbers: &[u64]) {
        if self.wide {
            arguments.push_all(numbers.iter().copied());
        } else {
            // A stride may be negative. Index arithmetic is modulo 2^32, so the lower half of the
            // stride is sufficient.
            let bytes = numbers
                .iter()
                .flat_map(|&number| (number as u32).to_ne_bytes());
            arguments.push_bytes(&bytes.collect::<Vec<u8>>());
        }
    }
}

/// Returns one more than the highest index that a layout reaches.
pub(super) fn limit_of(layout: &Layout) -> usize {
    layout.bounds().map_or(0, |(_, highest)| highest + 1)
}

/// Returns the grid for `count` elements. Each thread processes [`UNROLLED`] elements.
pub(super) fn grid(count: usize) -> Grid {
    grid_of(count.div_ceil(UNROLLED))
}

pub(super) fn blocks_of(count: usize) -> Grid {
    grid_of(count.saturating_mul(THREADS as usize))
}
