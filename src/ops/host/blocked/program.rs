//! The blocked evaluator: a program of precompiled loops, run over blocks of elements that stay in the
//! first-level cache.
//!
//! A formula becomes a list of steps, one for each of its terms. An operand that stands in memory one element
//! after another is read where it stands, and every other one is gathered; a function reads the blocks of its
//! operands and writes its own to a register, which is a part of the room that each thread has. All of it is
//! compiled with the library, none for an expression.

mod loops;
mod room;
mod tile;
mod view;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use smallvec::SmallVec;

pub use loops::{Arguments, BlockLoop, Loops, block_loop};
pub(crate) use loops::{Table, table};
use room::{Plan, Room};
use tile::{Part, Rows, TILE};
pub(super) use view::coordinates;
use view::{Scratch, View};

use super::frame::Frame;
use super::launch::Work;
use super::source::{Outs, Source};
use crate::array::Element;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::formula::{Formula, Of, Term};
use crate::ops::tree::MOST_OPERANDS;

/// The elements of a block: 4 KiB of `f32`, so that the blocks of several terms fit the first-level cache together,
/// and so many that what a step takes beside its loop counts for little.
pub(crate) const BLOCK: usize = 1024;

/// The lines that are worked on side by side, at most.
pub(crate) const RUN: usize = 256;

/// How the elements of a formula over a frame are computed.
///
/// Invariants: a step's operands stand before it; what a step writes to in the room overlaps no other step's
/// place as long as that is read; the memory that `Memory` and `View` name is that of the formula's arrays, and
/// reaches over the frame.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    steps: SmallVec<[Step; 3]>,
    results: SmallVec<[Answer; 1]>,
    count: usize,
    room_bytes: usize,
    // Whether nothing is gathered, and at most one function is computed: then a block may be of any length.
    is_flat: bool,
    rows: Option<Rows>,
}

/// How one term's block is made. Places are in bytes from the beginning of the room.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It stands in memory, from `base` on.
    Memory {
        base: *const u8,
        element_bytes: usize,
    },
    /// It is gathered.
    View { view: View, at: usize },
    /// It is the same value everywhere, and made once.
    Value {
        bits: u64,
        element_bytes: usize,
        at: usize,
    },
    /// It is computed of the blocks of `operands`.
    Call {
        run: BlockLoop,
        operands: [u32; MOST_OPERANDS],
        at: usize,
    },
}

/// A result.
#[derive(Clone, Copy, Debug)]
struct Answer {
    step: usize,
    element_bytes: usize,
    // Whether the step can write to where the result is wanted.
    is_direct: bool,
    // Where a block that no step wrote is put before anything is overwritten.
    stage: Option<usize>,
}

// SAFETY: a program has addresses, which only unsafe functions follow; what they read is plain data that nothing
// writes to meanwhile, by their contracts.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// The program of `formula` over `frame`, to whose shape each of its terms broadcasts.
    pub(super) fn new(formula: &Formula<'_>, frame: &Frame) -> Self {
        let terms = formula.terms();
        let widest = terms
            .iter()
            .fold(1, |widest, term| widest.max(term.dtype.bytes()));
        let mut plan = Plan::new(terms.len(), BLOCK * widest);
        let mut steps: SmallVec<[Step; 3]> = SmallVec::with_capacity(terms.len());
        let mut calls = 0;
        let mut is_flat = true;
        for term in terms {
            let step = Step::of(term, frame, &mut plan);
            match step {
                Step::Call { .. } => {
                    calls += 1;
                    if calls == 1 {
                        plan.uses = formula.uses();
                    }
                    for &operand in term.operands() {
                        if let Step::Call { at, .. } = steps[operand as usize] {
                            plan.was_read(operand as usize, at);
                        }
                    }
                }
                Step::Memory { .. } => {}
                Step::View { .. } | Step::Value { .. } => is_flat = false,
            }
            steps.push(step);
        }
        let mut results: SmallVec<[Answer; 1]> = SmallVec::new();
        for (number, &step) in formula.results().iter().enumerate() {
            let is_call = matches!(steps[step], Step::Call { .. });
            results.push(Answer {
                step,
                element_bytes: terms[step].dtype.bytes(),
                is_direct: is_call && !formula.results()[..number].contains(&step),
                stage: (!is_call).then(|| plan.take()),
            });
        }
        let rows = if is_flat {
            None
        } else {
            steps.iter().find_map(Step::crosswise)
        };
        Self {
            steps,
            results,
            count: frame.count(),
            room_bytes: plan.room_bytes(),
            is_flat: is_flat && calls <= 1,
            rows,
        }
    }

    /// What it takes to store its elements, of which each reads and writes `bytes_each`.
    pub(super) fn work(&self, bytes_each: usize) -> Work {
        let work = Work::of_elements(self.count, bytes_each);
        match self.rows {
            Some(rows) => work.in_units_of(rows.length * TILE.rows),
            None => work,
        }
    }

    /// The address of the first result's first element, if all stand in memory one after another.
    #[inline]
    fn standing(&self) -> Option<*const u8> {
        match self.steps[self.results[0].step] {
            Step::Memory { base, .. } => Some(base),
            _ => None,
        }
    }

    /// Calls `read` with what reads the elements, in room of its own.
    ///
    /// # Safety
    ///
    /// As long as there is the reader, the memory of the operands must be alive, and nothing may write to what
    /// it is asked to read.
    unsafe fn with_reader(&self, read: &mut dyn FnMut(&mut Reader<'_>)) {
        Room::with(self.room_bytes, &mut |room| {
            let mut reader = Reader {
                program: self,
                room,
            };
            if self.count > 0 {
                // SAFETY: the room is as large as the program asks for, and the caller keeps the rest.
                unsafe { reader.prepare() };
            }
            read(&mut reader);
        });
    }
}

impl Step {
    /// What makes the block of `term`.
    fn of(term: &Term<'_>, frame: &Frame, plan: &mut Plan) -> Self {
        let element_bytes = term.dtype.bytes();
        match term.of {
            Of::Scalar(bits) => Self::Value {
                bits,
                element_bytes,
                at: plan.keep(BLOCK * element_bytes),
            },
            Of::Call(call, operands) => Self::Call {
                run: call.loops.get(),
                operands,
                at: plan.take(),
            },
            Of::Array(operand) => {
                let base: *const u8 = host_pointer(DevicePtr(operand.buffer.address()));
                let layout = operand.layout;
                let memory = |offset: usize| Self::Memory {
                    base: base.wrapping_add(offset * element_bytes),
                    element_bytes,
                };
                if frame.is_order_of(layout) {
                    return memory(layout.offset());
                }
                let layout = frame.place(layout);
                if layout.ndim() == 0 || (layout.ndim() == 1 && layout.strides()[0] == 1) {
                    return memory(layout.offset());
                }
                let view = View::new(base, element_bytes, layout);
                let at = plan.keep(view.room_bytes());
                Self::View { view, at }
            }
        }
    }

    fn crosswise(&self) -> Option<Rows> {
        match self {
            Self::View { view, .. } => view.crosswise(),
            _ => None,
        }
    }
}

/// Reads the elements of a program, whose operands are alive and not written to: the contract of
/// [`Program::with_reader`], which alone makes one.
struct Reader<'a> {
    program: &'a Program,
    // As large as the program asks for. It begins with the addresses of the steps' blocks.
    room: *mut u8,
}

impl Reader<'_> {
    /// Makes what all blocks share.
    ///
    /// # Safety
    ///
    /// As for [`Program::with_reader`].
    unsafe fn prepare(&mut self) {
        let program = self.program;
        for (number, step) in program.steps.iter().enumerate() {
            let block = match *step {
                Step::Memory { base, .. } => base,
                Step::View { view, at } => {
                    // SAFETY: the plan kept the scratch's room; the caller keeps the rest.
                    unsafe { view.prepare(self.scratch(&view, at)) };
                    self.room
                }
                Step::Value {
                    bits,
                    element_bytes,
                    at,
                } => {
                    let to = self.room.wrapping_add(at);
                    // SAFETY: the plan kept the room of a block.
                    unsafe { repeat(bits, element_bytes, to, BLOCK.min(program.count)) };
                    to
                }
                Step::Call { at, .. } => self.room.wrapping_add(at),
            };
            self.set_address(number, block);
        }
    }

    fn scratch(&self, view: &View, at: usize) -> Scratch {
        view.scratch(self.room.wrapping_add(at))
    }

    /// Where the block of the step `number` stands, or is to be written to.
    #[inline]
    fn address(&self, number: usize) -> *const u8 {
        debug_assert!(number < self.program.steps.len());
        // SAFETY: the room begins with an address for each step, which `prepare` wrote.
        unsafe { self.room.cast::<*const u8>().add(number).read() }
    }

    #[inline]
    fn set_address(&mut self, number: usize, block: *const u8) {
        debug_assert!(number < self.program.steps.len());
        // SAFETY: the room begins with an address for each step.
        unsafe { self.room.cast::<*const u8>().add(number).write(block) };
    }

    /// Makes the blocks of the `count` elements from number `start` on, which stand at their
    /// [addresses](Self::address) until the next ones are made.
    ///
    /// # Safety
    ///
    /// The range must lie within the frame, and be of at most [`BLOCK`] elements unless the program is flat and
    /// its results are written elsewhere than to the room.
    #[inline]
    unsafe fn block(&mut self, start: usize, count: usize) {
        let program = self.program;
        for (number, step) in program.steps.iter().enumerate() {
            match step {
                Step::Memory {
                    base,
                    element_bytes,
                } => self.set_address(number, base.wrapping_add(start * element_bytes)),
                Step::View { view, at } => {
                    let scratch = self.scratch(view, *at);
                    // SAFETY: the range lies within the frame, and by the contract of `with_reader` the
                    // memory may be read; `prepare` prepared the scratch.
                    let block = unsafe { view.block(start, count, scratch) };
                    self.set_address(number, block);
                }
                Step::Value { .. } => {}
                Step::Call { run, operands, .. } => {
                    let from = operands.map(|operand| self.address(operand as usize));
                    // SAFETY: each operand's block has as many elements, aligned as blocks and arrays are; the
                    // step's own place overlaps none of them, by the invariant, and results that are written
                    // elsewhere are no part of what is read.
                    unsafe { run(&from, self.address(number).cast_mut(), count) };
                }
            }
        }
    }

    /// Writes the elements of `range` to those of `outs`.
    ///
    /// # Safety
    ///
    /// As for [`Source::write`].
    unsafe fn write(&mut self, range: Range<usize>, outs: &Outs) {
        // SAFETY: by this function's contract.
        unsafe {
            match self.program.rows {
                Some(rows) => self.write_by_tiles(rows, range, outs),
                None => self.write_blocks(range, outs),
            }
        }
    }

    /// The same block by block.
    ///
    /// # Safety
    ///
    /// As for [`Source::write`].
    unsafe fn write_blocks(&mut self, range: Range<usize>, outs: &Outs) {
        let most = if self.program.is_flat {
            range.len().max(1)
        } else {
            BLOCK
        };
        for start in range.clone().step_by(most) {
            let count = most.min(range.end - start);
            // SAFETY: by this function's contract; the results go to `outs`.
            unsafe { self.write_block(start, count, outs) };
        }
    }

    /// One block of it.
    ///
    /// # Safety
    ///
    /// As for [`Source::write`] and for [`block`](Self::block).
    #[inline]
    unsafe fn write_block(&mut self, start: usize, count: usize, outs: &Outs) {
        let program = self.program;
        let places = program.results.iter().zip(outs.all());
        for (answer, &out) in places.clone() {
            if answer.is_direct {
                let to = out.wrapping_add(start * answer.element_bytes);
                self.set_address(answer.step, to);
            }
        }
        // SAFETY: by this function's contract.
        unsafe { self.block(start, count) };
        for (answer, &out) in places {
            if !answer.is_direct {
                let to = out.wrapping_add(start * answer.element_bytes);
                let from = self.address(answer.step);
                // SAFETY: the block has as many elements, and there is room for them, which nobody reads.
                unsafe { to.copy_from_nonoverlapping(from, count * answer.element_bytes) };
            }
        }
    }

    /// The same in tiles of the rows that lie in the range as a whole.
    ///
    /// # Safety
    ///
    /// As for [`Source::write`].
    unsafe fn write_by_tiles(&mut self, rows: Rows, range: Range<usize>, outs: &Outs) {
        let first = range.start.next_multiple_of(rows.length).min(range.end);
        // SAFETY: by this function's contract, of parts of the range.
        unsafe { self.write_blocks(range.start..first, outs) };
        let mut first = first;
        while range.end - first >= rows.length {
            let row = first / rows.length % rows.count;
            let height = TILE
                .rows
                .min(rows.count - row)
                .min((range.end - first) / rows.length);
            // SAFETY: as above.
            unsafe { self.write_band(rows, first, height, outs) };
            first += height * rows.length;
        }
        // SAFETY: as above.
        unsafe { self.write_blocks(first..range.end, outs) };
    }

    /// The same for `height` whole rows, few enough for a tile, the first element of which has number `first`.
    ///
    /// # Safety
    ///
    /// As for [`Source::write`].
    unsafe fn write_band(&mut self, rows: Rows, first: usize, height: usize, outs: &Outs) {
        const { assert!(TILE.columns <= BLOCK) };
        for column in (0..rows.length).step_by(TILE.columns) {
            let width = TILE.columns.min(rows.length - column);
            let part = Part {
                rows,
                height,
                width,
            };
            for step in &self.program.steps {
                if let Step::View { view, at } = step {
                    // SAFETY: the rows lie in the range, and the caller keeps this contract.
                    unsafe { view.open(first + column, part, self.scratch(view, *at)) };
                }
            }
            for row in 0..height {
                let start = first + row * rows.length + column;
                // SAFETY: as above; a row of a tile is shorter than a block.
                unsafe { self.write_block(start, width, outs) };
            }
        }
    }
}

/// Writes `count` times the value whose lowest bytes are those of `bits`.
///
/// # Safety
///
/// There must be room for them at `to`, which is aligned.
unsafe fn repeat(bits: u64, element_bytes: usize, to: *mut u8, count: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        match element_bytes {
            1 => std::slice::from_raw_parts_mut(to, count).fill(bits as u8),
            2 => std::slice::from_raw_parts_mut(to.cast(), count).fill(bits as u16),
            4 => std::slice::from_raw_parts_mut(to.cast(), count).fill(bits as u32),
            _ => std::slice::from_raw_parts_mut(to.cast(), count).fill(bits),
        }
    }
}

impl Source for Program {
    unsafe fn write(&self, range: Range<usize>, outs: &Outs) {
        // SAFETY: by this function's contract.
        unsafe { self.with_reader(&mut |reader| reader.write(range.clone(), outs)) };
    }

    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    ) {
        let mut each = |reader: &mut Reader<'_>| {
            for start in range.clone().step_by(BLOCK) {
                let count = BLOCK.min(range.end - start);
                // SAFETY: by this function's contract.
                unsafe { reader.block(start, count) };
                let mut blocks: SmallVec<[*const u8; 1]> = SmallVec::new();
                for answer in &self.results {
                    let mut from = reader.address(answer.step);
                    if let Some(stage) = answer.stage {
                        let to = reader.room.wrapping_add(stage);
                        // SAFETY: the block has as many elements, and the plan kept room for a block.
                        unsafe { to.copy_from_nonoverlapping(from, count * answer.element_bytes) };
                        from = to;
                    }
                    blocks.push(from);
                }
                see(start..start + count, &blocks);
            }
        };
        // SAFETY: by this function's contract; what `see` writes to is not read any more.
        unsafe { self.with_reader(&mut each) };
    }

    fn boxed(&self) -> Box<dyn Source> {
        Box::new(self.clone())
    }
}

/// A program with one result, of elements of `T`, that may be read.
///
/// Invariant: as long as there is one, the memory of the operands is alive, and nothing writes to what the
/// program reads.
#[derive(Clone, Copy)]
pub(super) struct Readable<'a, T> {
    program: &'a Program,
    element: PhantomData<fn() -> T>,
}

impl<'a, T: Element> Readable<'a, T> {
    /// # Safety
    ///
    /// The invariant must hold for as long as the answer lives, and the program's result be of elements of `T`.
    pub(super) unsafe fn new(program: &'a Program) -> Self {
        assert_eq!(program.results[0].element_bytes, size_of::<T>());
        Self {
            program,
            element: PhantomData,
        }
    }

    /// Calls `read` with what reads the elements; each thread has its own.
    pub(super) fn read<R>(self, read: impl FnOnce(&mut Blocks<'_, '_, T>) -> R) -> R {
        let program = self.program;
        let count = program.count;
        // Elements that stand in memory need no room.
        if let (Some(base), true) = (program.standing(), count > 0) {
            let standing = Standing::InMemory(base.cast());
            return read(&mut Blocks { count, standing });
        }
        let (mut read, mut result) = (Some(read), None);
        let mut once = |reader: &mut Reader<'_>| {
            let standing = Standing::Made(reader);
            result = read
                .take()
                .map(|read| read(&mut Blocks { count, standing }));
        };
        // SAFETY: by the invariant.
        unsafe { program.with_reader(&mut once) };
        result.expect("`with_reader` calls once")
    }
}

/// Elements that are read by their numbers.
pub(super) struct Blocks<'a, 'b, T> {
    count: usize,
    standing: Standing<'a, 'b, T>,
}

/// Where elements are.
enum Standing<'a, 'b, T> {
    /// One after another from an address on.
    InMemory(*const T),
    /// Nowhere, until a block of them is made.
    Made(&'a mut Reader<'b>),
}

impl<T: Element> Blocks<'_, '_, T> {
    /// Whether all elements stand in memory one after another, so that any number of them can be read at once.
    #[inline(always)]
    pub(super) fn stands(&self) -> bool {
        matches!(self.standing, Standing::InMemory(_))
    }

    /// The elements of `range`, of at most [`BLOCK`] unless all [stand in memory](Self::stands).
    #[inline(always)]
    pub(super) fn values(&mut self, range: Range<usize>) -> &[T] {
        let (start, count) = (range.start, range.len());
        check_within(start, count, self.count);
        let first = match &mut self.standing {
            Standing::InMemory(base) => base.wrapping_add(start),
            Standing::Made(reader) => reader.first_block(start, count).cast(),
        };
        // SAFETY: there are `count` elements from `first` on, of `T` by the contract of `Readable::new`. They stand in
        // the room, which is not written to as long as the reader is borrowed, or with the operands, which are alive
        // and not written to, by the invariant of `Readable`; the range lies in the frame, as just checked.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    /// Writes the elements from number `start` on to all of `out`, however many.
    #[inline]
    pub(super) fn write(&mut self, start: usize, out: &mut [MaybeUninit<T>]) {
        let count = out.len();
        check_within(start, count, self.count);
        match &mut self.standing {
            // SAFETY: as in `values`; `out` is borrowed exclusively, so it is not the operand's.
            Standing::InMemory(base) => unsafe {
                let from = base.wrapping_add(start).cast();
                out.as_mut_ptr().copy_from_nonoverlapping(from, count);
            },
            Standing::Made(reader) => {
                let base = out.as_mut_ptr().wrapping_sub(start).cast();
                // SAFETY: the range lies in the frame, as just checked, and the operands may be read, by the
                // invariant of `Readable`. `out` is borrowed exclusively, so it is not theirs; counted from its
                // beginning as the element number `start`, it has room for the range.
                unsafe { reader.write(start..start + count, &Outs::new([base])) };
            }
        }
    }
}

impl Reader<'_> {
    /// Where the block of the first result for the `count` elements from number `start` on is, which lie in the frame.
    fn first_block(&mut self, start: usize, count: usize) -> *const u8 {
        assert!(count <= BLOCK, "read {count} elements at once");
        if count > 0 {
            // SAFETY: the range lies in the frame, and by the contract of `with_reader` it may be read.
            unsafe { self.block(start, count) };
            return self.address(self.program.results[0].step);
        }
        // An aligned address, for no elements.
        self.room
    }
}

#[inline(always)]
fn check_within(start: usize, count: usize, all: usize) {
    if start > all || count > all - start {
        outside(start, count, all);
    }
}

#[cold]
fn outside(start: usize, count: usize, all: usize) -> ! {
    panic!("{count} elements from {start} of {all}")
}
