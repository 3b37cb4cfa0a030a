//! The elements of a program as slices, for reductions, scans and softmax.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::program::BlockProgram;
use super::reader::BlockReader;
use crate::array::AnyElement;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::expression::tree::Operand;
use crate::ops::host::element_source::Outputs;

/// The elements that a loop reads, of any type.
#[derive(Clone, Copy)]
pub(in crate::ops) enum BlockSource<'a> {
    /// Consecutive elements in memory.
    InMemory(Consecutive),
    /// The elements of a program with one result.
    Computed(&'a BlockProgram),
}

impl<'a> From<&'a BlockProgram> for BlockSource<'a> {
    #[inline]
    fn from(program: &'a BlockProgram) -> Self {
        match program.in_memory() {
            Some(base) => Self::InMemory(Consecutive {
                base,
                count: program.count,
            }),
            None => Self::Computed(program),
        }
    }
}

/// The elements of an array that are consecutive in memory, in their order.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Consecutive {
    base: *const u8,
    count: usize,
}

// SAFETY: an address, which only `Readable` reads from. By its contract, the elements exist and
// are not written to.
unsafe impl Send for Consecutive {}
// SAFETY: as above.
unsafe impl Sync for Consecutive {}

impl Consecutive {
    /// # Panics
    ///
    /// If the elements of `operand` are not consecutive.
    pub(in crate::ops::host) fn new(operand: &Operand<'_>) -> Self {
        let layout = operand.layout;
        assert!(layout.is_contiguous(), "elements with gaps");
        let base: *const u8 = host_pointer(DevicePtr(operand.buffer.address()));
        Self {
            base: base.wrapping_add(layout.offset() * operand.dtype.size_bytes()),
            count: layout.len(),
        }
    }
}

impl From<&Consecutive> for BlockSource<'_> {
    #[inline]
    fn from(elements: &Consecutive) -> Self {
        Self::InMemory(*elements)
    }
}

/// Elements of `T` that may be read.
///
/// Invariant: while a value of this type exists, the memory of the operands is alive, and nothing
/// writes to the elements that are read.
#[derive(Clone, Copy)]
pub(in crate::ops::host) struct Readable<'a, T> {
    source: BlockSource<'a>,
    element: PhantomData<fn() -> T>,
}

impl<'a, T: AnyElement> Readable<'a, T> {
    /// # Safety
    ///
    /// The invariant must hold for as long as the returned value lives, and the source must have
    /// elements of `T`.
    pub(in crate::ops::host) unsafe fn new(source: BlockSource<'a>) -> Self {
        if let BlockSource::Computed(program) = source {
            assert_eq!(program.results[0].element_bytes, size_of::<T>());
        }
        Self {
            source,
            element: PhantomData,
        }
    }

    /// Calls `read` with a reader of the elements; each thread has its own.
    pub(in crate::ops::host) fn read<R>(self, read: impl FnOnce(&mut Blocks<'_, '_, T>) -> R) -> R {
        let program = match self.source {
            // Consecutive elements in memory need no scratch memory.
            BlockSource::InMemory(Consecutive { base, count }) => {
                let location = Location::InMemory(base.cast());
                return read(&mut Blocks { count, location });
            }
            BlockSource::Computed(program) => program,
        };
        let count = program.count;
        let (mut read, mut result) = (Some(read), None);
        let mut once = |reader: &mut BlockReader<'_>| {
            let location = Location::Computed(reader);
            result = read
                .take()
                .map(|read| read(&mut Blocks { count, location }));
        };
        // SAFETY: by the invariant.
        unsafe { program.with_reader(&mut once) };
        result.expect("`with_reader` calls once")
    }
}

/// A reader of elements by their numbers.
pub(in crate::ops::host) struct Blocks<'a, 'b, T> {
    count: usize,
    location: Location<'a, 'b, T>,
}

/// The location of elements.
enum Location<'a, 'b, T> {
    /// Consecutive elements from an address on.
    InMemory(*const T),
    /// Elements that are computed block by block when they are read.
    Computed(&'a mut BlockReader<'b>),
}

impl<T: AnyElement> Blocks<'_, '_, T> {
    /// Returns whether all elements are consecutive in memory, so that any number of them can be
    /// read at once.
    #[inline(always)]
    pub(in crate::ops::host) fn is_in_memory(&self) -> bool {
        matches!(self.location, Location::InMemory(_))
    }

    /// Returns the elements of `range`, which has at most [`BLOCK`](super::BLOCK) elements unless
    /// all elements are consecutive in memory.
    #[inline(always)]
    pub(in crate::ops::host) fn values(&mut self, range: Range<usize>) -> &[T] {
        let (start, count) = (range.start, range.len());
        check_within(start, count, self.count);
        let first = match &mut self.location {
            Location::InMemory(base) => base.wrapping_add(start),
            Location::Computed(reader) => reader.first_block(start, count).cast(),
        };
        // SAFETY: there are `count` elements from `first` on, of `T` by the contract of
        // `Readable::new`. They are in the reader's scratch memory, which is not written to while
        // the reader is borrowed; or they are in an operand, which is alive and not written to, by
        // the invariant of `Readable`. The range lies in the index space, as just checked.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    /// Writes the elements from number `start` on to all of `out`, which may be longer than a
    /// block.
    #[inline]
    pub(in crate::ops::host) fn write(&mut self, start: usize, out: &mut [MaybeUninit<T>]) {
        let count = out.len();
        check_within(start, count, self.count);
        match &mut self.location {
            // SAFETY: as in `values`; `out` is borrowed exclusively, so it is not the operand's.
            Location::InMemory(base) => unsafe {
                let from = base.wrapping_add(start).cast();
                out.as_mut_ptr().copy_from_nonoverlapping(from, count);
            },
            Location::Computed(reader) => {
                let base = out.as_mut_ptr().wrapping_sub(start).cast();
                // SAFETY: the range lies in the index space, as just checked, and the operands may
                // be read, by the invariant of `Readable`. `out` is borrowed exclusively, so it is
                // not part of an operand. `base` is the address of element 0, and `out`, which
                // begins at element `start`, is as long as the range.
                unsafe { reader.write(start..start + count, &Outputs::new([base])) };
            }
        }
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
