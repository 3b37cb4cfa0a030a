//! How a kernel is read: in runs, by number.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::launch::Work;
use super::tile::{Part, Rows, TILE};
use super::vector::{Loop, vectorised};
use super::view::Frame;
use crate::array::Element;
use crate::array::scalar::lane::{Careful, Fast, Lane};
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
pub trait Kernel: Copy + Send + Sync + 'static {
    /// The type of the values.
    type Item: Element;

    /// Where operands are gathered. It is handed about uninitialised, by address, because moving it
    /// would copy it.
    type Scratch;

    /// One run, ready to be read.
    type Run: Run<Item = Self::Item>;

    /// Whether nothing needs to be gathered, so that a run may be of any length.
    fn is_flat(&self) -> bool;

    /// Gathers what all runs share.
    ///
    /// # Safety
    ///
    /// `scratch` must be the caller's to write to; the memory of the operands must be alive, and
    /// nothing may write to it meanwhile.
    unsafe fn prepare(&self, scratch: *mut Self::Scratch);

    /// The rows of an operand that is best read in tiles, if there is one.
    fn crosswise(&self) -> Option<Rows>;

    /// Gathers what is best read in tiles of `part`, whose first element has number `start`; the next
    /// runs are to be its rows, from the first to the last.
    ///
    /// # Safety
    ///
    /// As for [`run`](Self::run), for each row of the part.
    unsafe fn open(&self, start: usize, part: Part, scratch: *mut Self::Scratch);

    /// The `count` elements from number `start` on, readable until `scratch` is used again.
    ///
    /// # Safety
    ///
    /// The kernel must have been [prepared](Self::prepare) with this `scratch`; the range must lie
    /// within the frame; `count` must be at most [`RUN`] unless the kernel is flat; the memory of the
    /// operands must be alive, and nothing may write to it meanwhile.
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut Self::Scratch) -> Self::Run;
}

/// The elements of one run.
pub trait Run: Copy + Send + Sync + 'static {
    /// The type of the values.
    type Item: Element;

    /// Whether an element may be noted as rare; see [`Lane`].
    const RARE: bool = false;

    /// The element at `index` of the run.
    ///
    /// # Safety
    ///
    /// `index` must be below the count that the run was made for, and what the kernel's contract
    /// asks of memory must still hold.
    unsafe fn at<L: Lane>(self, lane: &mut L, index: usize) -> Self::Item;

    /// The address of the run's elements, where they stand in memory one after another.
    fn in_memory(self) -> Option<*const Self::Item> {
        None
    }
}

/// The run of the expression `E`.
pub(crate) type RunOf<E> = <<E as Expr>::Kernel as Kernel>::Run;

/// A kernel that is bound to the operands of an expression, by their addresses.
#[derive(Debug)]
pub(crate) struct Bound<E: Expr> {
    kernel: E::Kernel,
    count: usize,
}

// Not derived: that would ask the expression to be so too.
impl<E: Expr> Clone for Bound<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Expr> Copy for Bound<E> {}

impl<E: Expr> Bound<E> {
    /// Binds `expr` over `frame`, to whose shape every operand must broadcast.
    #[inline(always)]
    pub(crate) fn new(expr: &E, frame: &Frame) -> Self {
        Self {
            kernel: expr.bind(frame),
            count: frame.count(),
        }
    }

    /// A reader that gathers in `room`; each thread of a launch has its own.
    ///
    /// # Safety
    ///
    /// As long as there is the reader, the memory of the operands must be alive, and nothing may
    /// write to it that the reader reads.
    #[inline(always)]
    pub(crate) unsafe fn reader<'a>(&'a self, room: &'a mut MaybeUninit<Room<E>>) -> Reader<'a, E> {
        let mut reader = Reader { bound: self, room };
        if self.count > 0 {
            // SAFETY: the room is borrowed exclusively, and the caller keeps the rest.
            unsafe { self.kernel.prepare(reader.scratch()) };
        }
        reader
    }

    /// What it takes to store the elements of `expr`, which this was bound to.
    #[inline]
    pub(super) fn work(&self, expr: &E) -> Work {
        let work = Work::of_elements(expr, self.count);
        match self.kernel.crosswise() {
            Some(rows) => work.in_units_of(rows.length * TILE.rows),
            None => work,
        }
    }
}

/// Compiled once, not for every kernel.
fn check_within(all: usize, start: usize, count: usize) {
    let within = start <= all && count <= all - start;
    assert!(within, "{count} elements from {start} of {all}");
}

/// Where a reader gathers, never initialised as a whole.
pub(crate) struct Room<E: Expr> {
    scratch: <E::Kernel as Kernel>::Scratch,
    stage: Stage<E::Item>,
}

/// Reads the elements of a bound kernel, whose operands are alive and not written to: the contract
/// of [`Bound::reader`].
pub(crate) struct Reader<'a, E: Expr> {
    bound: &'a Bound<E>,
    room: &'a mut MaybeUninit<Room<E>>,
}

impl<E: Expr> Reader<'_, E> {
    #[inline(always)]
    fn scratch(&mut self) -> *mut <E::Kernel as Kernel>::Scratch {
        // SAFETY: this only computes the address of a part of the room.
        unsafe { &raw mut (*self.room.as_mut_ptr()).scratch }
    }

    /// Writes the elements from number `start` on to `out`, all of it.
    #[inline]
    pub(crate) fn write(&mut self, start: usize, out: &mut [MaybeUninit<E::Item>]) {
        check_within(self.bound.count, start, out.len());
        match self.bound.kernel.crosswise() {
            Some(rows) => self.write_by_tiles(rows, start, out),
            None => self.write_runs(start, out),
        }
    }

    /// The same run by run; the range must have been checked.
    #[inline]
    fn write_runs(&mut self, start: usize, out: &mut [MaybeUninit<E::Item>]) {
        let (bound, scratch) = (self.bound, self.scratch());
        let kernel = &bound.kernel;
        let length = if kernel.is_flat() { out.len() } else { RUN };
        for (index, part) in out.chunks_mut(length.max(1)).enumerate() {
            // SAFETY: `reader` prepared the scratch, the range lies in the frame (checked), the length
            // is `RUN` unless the kernel is flat, and the operands are alive and not written to, by
            // the contract of `Bound::reader`. `out` is borrowed exclusively, so it is not theirs.
            // The run is made for as many elements as `part` has.
            unsafe {
                let run = kernel.run(start + index * length, part.len(), scratch);
                fill(run, 0, part);
            }
        }
    }

    /// The same in tiles of the rows that lie in the range as a whole.
    fn write_by_tiles(&mut self, rows: Rows, start: usize, out: &mut [MaybeUninit<E::Item>]) {
        let lead = (start.next_multiple_of(rows.length) - start).min(out.len());
        let (head, body) = out.split_at_mut(lead);
        self.write_runs(start, head);
        let mut first = start + lead;
        let mut body = body;
        while body.len() >= rows.length {
            let row = first / rows.length % rows.count;
            let height = TILE
                .rows
                .min(rows.count - row)
                .min(body.len() / rows.length);
            let (band, rest) = body.split_at_mut(height * rows.length);
            self.write_band(rows, first, band);
            (body, first) = (rest, first + height * rows.length);
        }
        self.write_runs(first, body);
    }

    /// The same for whole rows, few enough for a tile.
    fn write_band(&mut self, rows: Rows, first: usize, band: &mut [MaybeUninit<E::Item>]) {
        let (bound, scratch) = (self.bound, self.scratch());
        let height = band.len() / rows.length;
        for column in (0..rows.length).step_by(TILE.columns) {
            let width = TILE.columns.min(rows.length - column);
            let part = Part {
                rows,
                height,
                width,
            };
            // SAFETY: as in `write_runs`; the caller saw that the rows lie in the frame.
            unsafe { bound.kernel.open(first + column, part, scratch) };
            for (row, line) in band.chunks_exact_mut(rows.length).enumerate() {
                let line = &mut line[column..column + width];
                let start = first + row * rows.length + column;
                // SAFETY: as above; the run is made for as many elements as `line` has.
                unsafe {
                    let run = bound.kernel.run(start, width, scratch);
                    fill(run, 0, line);
                }
            }
        }
    }

    /// Whether all elements stand in memory one after another, so that any number of them can be read
    /// at once.
    #[inline(always)]
    pub(crate) fn stands(&mut self) -> bool {
        let (bound, scratch) = (self.bound, self.scratch());
        // SAFETY: as in `write`; there is a first element.
        bound.count > 0
            && bound.kernel.is_flat()
            && unsafe { bound.kernel.run(0, 1, scratch) }
                .in_memory()
                .is_some()
    }

    /// The elements of `range`, of at most [`RUN`] unless all [stand in memory](Self::stands).
    #[inline]
    pub(crate) fn values(&mut self, range: Range<usize>) -> &[E::Item] {
        let bound = self.bound;
        // Both addresses come of one borrow: another one of the whole room would end the first, though
        // the run still reads there as the stage is filled.
        let room = self.room.as_mut_ptr();
        // SAFETY: this only computes the addresses of two parts of the room.
        let (scratch, stage) = unsafe { (&raw mut (*room).scratch, &raw mut (*room).stage) };
        let count = range.len();
        check_within(bound.count, range.start, count);
        let fits = count <= RUN || bound.kernel.is_flat();
        assert!(fits, "read {count} elements at once");
        if count == 0 {
            return &[];
        }
        // SAFETY: as in `write`.
        let run = unsafe { bound.kernel.run(range.start, count, scratch) };
        if let Some(pointer) = run.in_memory() {
            // SAFETY: the run's `count` elements stand at `pointer`: in the scratch, which `self` is
            // borrowed with as long as the slice, or with the operands, which are alive and not
            // written to as long as there is a reader.
            return unsafe { std::slice::from_raw_parts(pointer, count) };
        }
        // SAFETY: a stage needs no initial value, and nothing else refers to it.
        let stage = unsafe { &mut *stage };
        let part = &mut stage[..count];
        // SAFETY: the run was made for as many elements, and `fill` writes all of `part`.
        unsafe {
            fill(run, 0, part);
            &*(std::ptr::from_ref(part) as *const [E::Item])
        }
    }
}

/// Elements that are read by their numbers, of an expression that the reader knows nothing of: what does
/// so is compiled once for a type of elements, not for every expression.
pub(in crate::ops::host) trait Blocks<T> {
    /// As [`Reader::stands`].
    fn stands(&mut self) -> bool;

    /// As [`Reader::values`].
    fn values(&mut self, range: Range<usize>) -> &[T];
}

impl<E: Expr> Blocks<E::Item> for Reader<'_, E> {
    fn stands(&mut self) -> bool {
        Reader::stands(self)
    }

    fn values(&mut self, range: Range<usize>) -> &[E::Item] {
        Reader::values(self, range)
    }
}

/// A bound kernel that may be read, of an expression of any type.
///
/// Invariant: as long as there is one, the memory of the operands is alive, and nothing writes to what
/// the kernel reads.
pub(in crate::ops::host) struct Readable<'a, T>(&'a dyn Source<T>);

impl<T> Clone for Readable<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Readable<'_, T> {}

impl<'a, T> Readable<'a, T> {
    /// # Safety
    ///
    /// The invariant must hold for as long as the answer lives.
    pub(in crate::ops::host) unsafe fn new(source: &'a dyn Source<T>) -> Self {
        Self(source)
    }

    /// Calls `read` with what reads the elements; each thread has its own.
    pub(in crate::ops::host) fn read<R>(self, read: impl FnOnce(&mut dyn Blocks<T>) -> R) -> R {
        let (mut read, mut result) = (Some(read), None);
        // SAFETY: by the invariant.
        unsafe {
            self.0.with_blocks(&mut |blocks| {
                result = read.take().map(|read| read(blocks));
            });
        }
        result.expect("`with_blocks` calls once")
    }
}

/// What there are [`Blocks`] of: plain data, as what a launch reads must be.
pub(in crate::ops::host) trait Source<T>: Send + Sync {
    /// Calls `read` once with blocks that gather in room of their own.
    ///
    /// # Safety
    ///
    /// As for [`Bound::reader`], until this returns.
    unsafe fn with_blocks(&self, read: &mut dyn FnMut(&mut dyn Blocks<T>));

    /// A copy, for who reads later.
    fn boxed(&self) -> Box<dyn Source<T>>;
}

impl<E: Expr> Source<E::Item> for Bound<E> {
    unsafe fn with_blocks(&self, read: &mut dyn FnMut(&mut dyn Blocks<E::Item>)) {
        let mut room = MaybeUninit::uninit();
        // SAFETY: by this function's contract.
        read(&mut unsafe { self.reader(&mut room) });
    }

    fn boxed(&self) -> Box<dyn Source<E::Item>> {
        Box::new(*self)
    }
}

/// Writes the elements of `run` from `start` on to `out`.
///
/// # Safety
///
/// The run must have as many, and what the kernel's contract asks of memory must hold.
#[inline(always)]
pub(super) unsafe fn fill<R: Run>(run: R, start: usize, out: &mut [MaybeUninit<R::Item>]) {
    vectorised(Fill { run, start }, out);
}

/// See [`fill`], which alone makes one.
struct Fill<R> {
    run: R,
    start: usize,
}

/// As many elements as are computed again where one of them is rare.
const BLOCK: usize = 1024;

impl<R: Run> Loop<[MaybeUninit<R::Item>]> for Fill<R> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<R::Item>]) {
        let length = if R::RARE { BLOCK } else { out.len().max(1) };
        for (number, block) in out.chunks_mut(length).enumerate() {
            let start = self.start + number * length;
            let mut lane = Fast::<FMA>::default();
            // SAFETY: the run has as many elements as `out` from its start on, by the contract of
            // `fill`; these are part of them.
            unsafe { fill_block(self.run, start, &mut lane, block) };
            if R::RARE && lane.met_rare() {
                // SAFETY: as above.
                unsafe { fill_block_carefully::<R, FMA>(self.run, start, block) };
            }
        }
    }
}

/// Writes the elements of `run` from `start` on to `out`.
///
/// # Safety
///
/// The run must have that many.
#[inline(always)]
unsafe fn fill_block<R: Run, L: Lane>(
    run: R,
    start: usize,
    lane: &mut L,
    out: &mut [MaybeUninit<R::Item>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        slot.write(unsafe { run.at(lane, start + index) });
    }
}

/// The same out of the way. The lanes are told what the processor has, so that every element but the
/// rare ones comes out as before.
///
/// # Safety
///
/// As for [`fill_block`].
#[cold]
#[inline(never)]
unsafe fn fill_block_carefully<R: Run, const FMA: bool>(
    run: R,
    start: usize,
    out: &mut [MaybeUninit<R::Item>],
) {
    // SAFETY: by this function's contract.
    unsafe { fill_block(run, start, &mut Careful::<FMA>, out) };
}
