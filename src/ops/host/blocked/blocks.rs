//! The elements of a program as slices, for reductions, scans and softmax.

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

impl BlockSource<'_> {
    /// Returns the size of an element.
    #[inline(always)]
    pub(in crate::ops::host) fn element_bytes(&self) -> usize {
        match self {
            Self::InMemory(elements) => elements.element_bytes,
            Self::Computed(program) => program.results[0].element_bytes,
        }
    }
}

impl<'a> From<&'a BlockProgram> for BlockSource<'a> {
    #[inline]
    fn from(program: &'a BlockProgram) -> Self {
        match program.in_memory() {
            Some(base) => Self::InMemory(Consecutive {
                base,
                count: program.count,
                element_bytes: program.results[0].element_bytes,
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
    element_bytes: usize,
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
        let element_bytes = operand.dtype.size_bytes();
        Self {
            base: base.wrapping_add(layout.offset() * element_bytes),
            count: layout.len(),
            element_bytes,
        }
    }
}

impl From<&Consecutive> for BlockSource<'_> {
    #[inline]
    fn from(elements: &Consecutive) -> Self {
        Self::InMemory(*elements)
    }
}

/// Elements that may be read.
///
/// Invariant: while a value of this type exists, the memory of the operands is alive, and nothing
/// writes to the elements that are read.
#[derive(Clone, Copy)]
pub(in crate::ops::host) struct Readable<'a>(BlockSource<'a>);

impl<'a> Readable<'a> {
    /// # Safety
    ///
    /// The invariant must hold for as long as the returned value lives.
    #[inline(always)]
    pub(in crate::ops::host) unsafe fn new(source: BlockSource<'a>) -> Self {
        Self(source)
    }

    /// Calls `read` with a reader of the elements; each thread has its own.
    #[inline(always)]
    pub(in crate::ops::host) fn read(self, read: &mut dyn FnMut(&mut Blocks<'_, '_>)) {
        let element_bytes = self.0.element_bytes();
        match self.0 {
            // Consecutive elements in memory need no scratch memory.
            BlockSource::InMemory(Consecutive { base, count, .. }) => read(&mut Blocks {
                count,
                element_bytes,
                location: Location::InMemory(base),
            }),
            BlockSource::Computed(program) => {
                let mut computed = |reader: &mut BlockReader<'_>| {
                    read(&mut Blocks {
                        count: program.count,
                        element_bytes,
                        location: Location::Computed(reader),
                    });
                };
                // SAFETY: by the invariant.
                unsafe { program.with_reader(&mut computed) };
            }
        }
    }
}

/// A reader of elements by their numbers.
pub(in crate::ops::host) struct Blocks<'a, 'b> {
    count: usize,
    element_bytes: usize,
    location: Location<'a, 'b>,
}

/// The location of elements.
enum Location<'a, 'b> {
    /// Consecutive elements from an address on.
    InMemory(*const u8),
    /// Elements that are computed block by block when they are read.
    Computed(&'a mut BlockReader<'b>),
}

impl Blocks<'_, '_> {
    /// Returns whether all elements are consecutive in memory, so that any number of them can be
    /// read at once.
    #[inline(always)]
    pub(in crate::ops::host) fn is_in_memory(&self) -> bool {
        matches!(self.location, Location::InMemory(_))
    }

    /// Asserts that the elements have `element_bytes`, once before a loop for their type.
    pub(in crate::ops::host) fn check_size(&self, element_bytes: usize) {
        assert_eq!(self.element_bytes, element_bytes);
    }

    /// Returns the address of the elements of `range`, which has at most [`BLOCK`](super::BLOCK)
    /// elements unless all elements are consecutive in memory. They may be read until the reader is
    /// used again.
    #[inline(always)]
    pub(in crate::ops::host) fn address(&mut self, range: Range<usize>) -> *const u8 {
        self.address_of(range, self.element_bytes)
    }

    #[inline(always)]
    fn address_of(&mut self, range: Range<usize>, element_bytes: usize) -> *const u8 {
        let (start, count) = (range.start, range.len());
        check_within(start, count, self.count);
        match &mut self.location {
            Location::InMemory(base) => base.wrapping_add(start * element_bytes),
            Location::Computed(reader) => reader.first_block(start, count),
        }
    }

    /// Like [`address`](Self::address), as a slice.
    ///
    /// # Safety
    ///
    /// The elements must be of `T`.
    #[inline(always)]
    pub(in crate::ops::host) unsafe fn values<T: AnyElement>(
        &mut self,
        range: Range<usize>,
    ) -> &[T] {
        let count = range.len();
        debug_assert_eq!(self.element_bytes, size_of::<T>());
        let first = self.address_of(range, size_of::<T>()).cast();
        // SAFETY: there are `count` elements from `first` on, of `T` by this function's contract.
        // They are in the reader's scratch memory, which is not written to while the reader is
        // borrowed; or they are in an operand, which is alive and not written to, by the invariant
        // of `Readable`. `address_of` has checked that the range lies in the index space.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    /// Writes the elements from number `start` on to all of `out`, which may be longer than a
    /// block.
    ///
    /// # Safety
    ///
    /// The elements must be of `T`.
    #[inline]
    pub(in crate::ops::host) unsafe fn write<T: AnyElement>(
        &mut self,
        start: usize,
        out: &mut [MaybeUninit<T>],
    ) {
        let count = out.len();
        debug_assert_eq!(self.element_bytes, size_of::<T>());
        check_within(start, count, self.count);
        match &mut self.location {
            // SAFETY: as in `values`; `out` is borrowed exclusively, so it is not the operand's.
            Location::InMemory(base) => unsafe {
                let from = base.cast::<MaybeUninit<T>>().wrapping_add(start);
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
