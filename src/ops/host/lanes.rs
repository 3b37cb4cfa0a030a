//! How lanes are divided among threads.

use std::ops::Range;

use super::blocked::RUN;
use super::launch::Work;
use crate::ops::formula::Formula;
use crate::ops::lanes::Lanes;

/// A job is one lane where its elements are contiguous, and up to [`RUN`] adjacent lanes otherwise.
impl Lanes {
    /// All jobs that make one element of `bytes` for each of `formula`, `effort` times as long as
    /// it takes to read and write them.
    pub(in crate::ops::host) fn work(
        &self,
        formula: &Formula<'_>,
        bytes: usize,
        effort: usize,
    ) -> Work {
        if self.length == 0 {
            return Work::on_one_thread(0);
        }
        let elements = self.length * self.inner.min(RUN);
        let bytes_each = bytes + formula.bytes_read();
        let job_bytes = elements.saturating_mul(bytes_each).saturating_mul(effort);
        Work::of_bytes(self.outer * self.inner.div_ceil(RUN), job_bytes)
    }

    /// What a job of [`work`](Self::work) is about.
    #[inline(always)]
    pub(in crate::ops::host) fn job(&self, number: usize) -> Job {
        let blocks = self.inner.div_ceil(RUN);
        let (outer, block) = (number / blocks, number % blocks);
        Job {
            start: outer * self.length * self.inner + block * RUN,
            width: RUN.min(self.inner - block * RUN),
            lanes: *self,
        }
    }
}

/// Lanes side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    start: usize,
    /// How many lanes.
    pub(super) width: usize,
    lanes: Lanes,
}

impl Job {
    /// The numbers of all elements of the lane, where they stand together.
    #[inline(always)]
    pub(super) fn whole(&self) -> Option<Range<usize>> {
        (self.lanes.inner == 1).then(|| self.start..self.start + self.lanes.length)
    }

    /// The numbers of the elements at `index` of each lane.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.lanes.inner;
        start..start + self.width
    }
}
