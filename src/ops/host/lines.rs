//! Lines of elements along one axis, in row-major order of an array.

use std::ops::Range;

use super::kernel::RUN;
use super::launch::Work;
use crate::array::Shape;
use crate::ops::Expr;

/// All lines along one axis of a shape. A job is one line, where its elements stand together, or else
/// up to [`RUN`] lines side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    outer: usize,
    length: usize,
    /// How far apart the elements of a line are.
    inner: usize,
}

impl Lines {
    pub(super) fn along(axis: usize, shape: &Shape) -> Self {
        let dims = shape.dims();
        Self {
            outer: dims[..axis].iter().product(),
            length: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        }
    }

    /// The elements of a line.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// All jobs that make one element of `bytes` for each of `expr`, `effort` times as long as it
    /// takes to read and write them.
    pub(super) fn work<E: Expr>(&self, expr: &E, bytes: usize, effort: usize) -> Work {
        if self.length == 0 {
            return Work::on_one_thread(0);
        }
        let elements = self.length * self.inner.min(RUN);
        let mut bytes_each = bytes;
        expr.operands(&mut |operand| bytes_each += operand.element_bytes);
        let job_bytes = elements.saturating_mul(bytes_each).saturating_mul(effort);
        Work::of_bytes(self.outer * self.inner.div_ceil(RUN), job_bytes)
    }

    /// What a job of [`work`](Self::work) is about.
    #[inline(always)]
    pub(super) fn job(&self, number: usize) -> Job {
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
