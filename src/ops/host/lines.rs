//! Lines as jobs of threads.

use std::ops::Range;

use super::blocked::RUN;
use super::launch::Work;
use crate::ops::formula::Formula;
use crate::ops::lines::Lines;

/// A job is one line, where its elements stand together, or else up to [`RUN`] lines side by side.
impl Lines {
    /// All jobs that make one element of `bytes` for each of `formula`, `effort` times as long as it
    /// takes to read and write them.
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
            lines: *self,
        }
    }
}

/// Lines side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    start: usize,
    /// How many lines.
    pub(super) width: usize,
    lines: Lines,
}

impl Job {
    /// The numbers of all elements of the line, where they stand together.
    #[inline(always)]
    pub(super) fn whole(&self) -> Option<Range<usize>> {
        (self.lines.inner == 1).then(|| self.start..self.start + self.lines.length)
    }

    /// The numbers of the elements at `index` of each line.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.lines.inner;
        start..start + self.width
    }
}
