//! The elements of a program as slices, for reductions, scans and softmax.

use std::ops::Range;

use super::program::BlockProgram;
use super::reader::BlockReader;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::expression::tree::Operand;
use crate::ops::host::element_source::Outputs;
use cachescope_kernels::lanes::Elements;

/// The elements that a loop reads, of any type.
#[derive(Clone, Copy)]
pub(in crate::ops) enum BlockSource<'a> {
    /// Consecutive elements in memory.
    InMemory(Consecutive),
    /// The elements of a program with one result.
    Computed(&'a BlockProgram),
}

impl BlockSource<'_> {
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

/// The elements of an array that are consecutive in memory, in row-major order.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Consecutive {
    base: *const u8,
    count: usize,
    element_bytes: usize,
}

// SAFETY: only `Readable` reads from the address. By the contract of `Readable`, the elements exist
// and are not written to.
unsafe impl Send for Consecutive {}
// SAFETY: only `Readable` reads from the address, under its contract.
unsafe impl Sync for Consecutive {}

impl Consecutive {
    /// Returns the elements of `operand`.
    ///
    /// # Panics
    ///
    /// Panics if the elements of `operand` are not consecutive.
    pub(in crate::ops::host) fn new(operand: &Operand<'_>) -> Self {
        let layout = operand.layout;
        assert!(layout.is_contiguous(), "the elements are not contiguous");
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
/// Invariant: while a value of this type exists, the memory of the operands is alive. Meanwhile
/// nothing writes to the elements that are read.
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

    /// Calls `read` with a reader of the elements. Each thread has its own reader.
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
                // SAFETY: by the invariant of `Readable`.
                unsafe { program.with_reader(&mut computed) };
            }
        }
    }
}

/// A reader of elements by their indices.
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
    /// Returns whether all elements are consecutive in memory, so that any number of elements can
    /// be read at once.
    #[inline(always)]
    pub(in crate::ops::host) fn is_in_memory(&self) -> bool {
        matches!(self.location, Location::InMemory(_))
    }

    /// Returns the address of the elements of `range`. If not all elements are consecutive in
    /// memory, the range must have at most [`BLOCK`](super::BLOCK) elements. The elements may be
    /// read until the reader is used again.
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
}

// SAFETY: the elements are in an operand or in the reader's scratch memory. By the invariant of
// `Readable`, an operand is alive and not written to. Only the next call writes to the scratch
// memory. `check_within` checks the ranges.
unsafe impl Elements for Blocks<'_, '_> {
    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn address(&mut self, range: Range<usize>) -> *const u8 {
        self.address_of(range, self.element_bytes)
    }

    unsafe fn write(&mut self, range: Range<usize>, to: *mut u8) {
        let (start, count, bytes) = (range.start, range.len(), self.element_bytes);
        check_within(start, count, self.count);
        match &mut self.location {
            // SAFETY: the elements are readable. By this function's contract, `to` has space for
            // the elements, and nothing else accesses it. So it does not overlap the operand.
            Location::InMemory(base) => unsafe {
                to.copy_from_nonoverlapping(base.wrapping_add(start * bytes), count * bytes);
            },
            Location::Computed(reader) => {
                let base = to.wrapping_sub(start * bytes);
                // SAFETY: the range is in the index space, as just checked. The operands may be
                // read, by the invariant of `Readable`. `base` is the address of element 0. The
                // memory from element `start` on has space for the range, and nothing else accesses
                // it.
                unsafe { reader.write(range, &Outputs::new([base])) };
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
    panic!("{count} elements from element {start} exceed {all} elements")
}
