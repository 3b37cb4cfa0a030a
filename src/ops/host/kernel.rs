//! How a kernel is read: in runs, by number.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::view::Frame;
use crate::array::Element;
use crate::error::Result;
use crate::ops::Expr;

/// The most elements that are gathered at once: 1 KiB of `f32`, so that the buffers of many
/// operands fit the first-level cache together.
pub(crate) const RUN: usize = 256;

/// Room for the elements of one run.
pub(crate) type Stage<T> = [MaybeUninit<T>; RUN];

pub(crate) const fn stage<T>() -> Stage<T> {
    [const { MaybeUninit::uninit() }; RUN]
}

/// A function from the numbers of a frame's elements to their values, and what it reads.
pub trait Kernel: Copy + Send + Sync {
    /// The type of the values.
    type Item: Element;

    /// Where operands are gathered.
    type Scratch;

    /// One run, ready to be read.
    type Run: Run<Item = Self::Item>;

    /// Room for one run.
    fn scratch() -> Self::Scratch;

    /// Whether nothing needs to be gathered, so that a run may be of any length.
    fn is_flat(&self) -> bool;

    /// The `count` elements from number `start` on, readable until `scratch` is used again.
    ///
    /// # Safety
    ///
    /// The range must lie within the frame; `count` must be at most [`RUN`] unless the kernel is
    /// flat; the memory of the operands must be alive, and nothing may write to it meanwhile.
    unsafe fn run(&self, start: usize, count: usize, scratch: &mut Self::Scratch) -> Self::Run;
}

/// The elements of one run.
pub trait Run: Copy {
    /// The type of the values.
    type Item: Element;

    /// The element at `index` of the run.
    ///
    /// # Safety
    ///
    /// `index` must be below the count that the run was made for, and what the kernel's contract
    /// asks of memory must still hold.
    unsafe fn at(self, index: usize) -> Self::Item;

    /// The address of the run's elements, where they stand in memory one after another.
    fn in_memory(self) -> Option<*const Self::Item> {
        None
    }
}

/// A kernel that is bound to an expression, which keeps the memory of its operands alive.
#[derive(Debug)]
pub(crate) struct Bound<'a, E: Expr> {
    kernel: E::Kernel,
    count: usize,
    expr: PhantomData<&'a E>,
}

impl<'a, E: Expr> Bound<'a, E> {
    /// Binds `expr` over `frame`.
    ///
    /// # Errors
    ///
    /// Where an operand does not broadcast to the frame.
    pub(crate) fn new(expr: &'a E, frame: &Frame) -> Result<Self> {
        Ok(Self {
            kernel: expr.bind(frame)?,
            count: frame.count()?,
            expr: PhantomData,
        })
    }

    /// A reader with its own scratch; one thread of a launch uses one.
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_, E> {
        Reader {
            bound: self,
            scratch: E::Kernel::scratch(),
            stage: stage(),
        }
    }
}

/// Reads the elements of a bound kernel.
pub(crate) struct Reader<'a, E: Expr> {
    bound: &'a Bound<'a, E>,
    scratch: <E::Kernel as Kernel>::Scratch,
    stage: Stage<E::Item>,
}

impl<E: Expr> Reader<'_, E> {
    /// Writes the elements from number `start` on to `out`, all of it.
    #[inline]
    pub(crate) fn write(&mut self, start: usize, out: &mut [MaybeUninit<E::Item>]) {
        let kernel = &self.bound.kernel;
        self.bound.check(start, out.len());
        let length = if kernel.is_flat() { out.len() } else { RUN };
        for (index, part) in out.chunks_mut(length.max(1)).enumerate() {
            // SAFETY: `check` saw that the range lies in the frame, the length is `RUN` unless the
            // kernel is flat, and the bound expression keeps its operands alive. `out` is borrowed
            // exclusively, so it is not their memory.
            let run = unsafe { kernel.run(start + index * length, part.len(), &mut self.scratch) };
            fill(run, part);
        }
    }

    /// The elements of `range`, of at most [`RUN`].
    #[inline]
    pub(crate) fn values(&mut self, range: Range<usize>) -> &[E::Item] {
        let count = range.len();
        self.bound.check(range.start, count);
        assert!(count <= RUN, "read {count} elements at once");
        if count == 0 {
            return &[];
        }
        let kernel = &self.bound.kernel;
        // SAFETY: as in `write`.
        let run = unsafe { kernel.run(range.start, count, &mut self.scratch) };
        if let Some(pointer) = run.in_memory() {
            // SAFETY: the run's `count` elements stand at `pointer`; `self`, which is borrowed as
            // long as the slice, keeps alive both the scratch and the operands, and an array's
            // memory is not written to while the expression holds a handle of it.
            return unsafe { std::slice::from_raw_parts(pointer, count) };
        }
        let part = &mut self.stage[..count];
        fill(run, part);
        // SAFETY: `fill` wrote every element of `part`.
        unsafe { &*(std::ptr::from_ref(part) as *const [E::Item]) }
    }
}

impl<E: Expr> Bound<'_, E> {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn check(&self, start: usize, count: usize) {
        let within = start <= self.count && count <= self.count - start;
        assert!(within, "{count} elements from {start} of {}", self.count);
    }
}

/// Writes the elements of `run` to `out`, for whose length the run was made.
#[inline]
fn fill<R: Run>(run: R, out: &mut [MaybeUninit<R::Item>]) {
    for (index, slot) in out.iter_mut().enumerate() {
        // SAFETY: the run was made for `out.len()` elements.
        slot.write(unsafe { run.at(index) });
    }
}
