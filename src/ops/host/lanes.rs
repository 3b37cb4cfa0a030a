//! The division of lanes among threads.

use std::ops::Range;

use super::blocked::RUN;
use super::launch::Work;
use crate::ops::descriptors::Lanes;

/// A job is one lane where its elements are contiguous, and up to [`RUN`] adjacent lanes otherwise.
impl Lanes {
    /// Returns the work of all jobs. Each element reads `bytes_read`, and makes an element of
    /// `bytes`. It takes `effort` times as long as to read and write the elements.
    pub(in crate::ops::host) fn work(
        &self,
        bytes_read: usize,
        bytes: usize,
        effort: usize,
    ) -> Work {
        if self.length == 0 {
            return Work::on_one_thread(0);
        }
        let elements = self.length * self.inner.min(RUN);
        let bytes_each = bytes + bytes_read;
        let job_bytes = elements.saturating_mul(bytes_each).saturating_mul(effort);
        Work::of_bytes(self.outer * self.inner.div_ceil(RUN), job_bytes)
    }

    /// Returns the lanes of a job of [`work`](Self::work).
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

/// Adjacent lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    start: usize,
    /// The number of lanes.
    pub(super) width: usize,
    lanes: Lanes,
}

impl Job {
    /// Returns the numbers of all elements of the lane, if they are contiguous.
    #[inline(always)]
    pub(super) fn whole(&self) -> Option<Range<usize>> {
        (self.lanes.inner == 1).then(|| self.start..self.start + self.lanes.length)
    }

    /// Returns the numbers of the elements at `index` of each lane.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.lanes.inner;
        start..start + self.width
    }
}
