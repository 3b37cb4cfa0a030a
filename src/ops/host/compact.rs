//! Stream compaction: the elements whose flags are true, and their positions.
//!
//! Before the first element is written, the flags are counted in blocks. The size of the result is
//! the count of true flags. The counts determine where each block writes its elements.

use std::ops::Range;
use std::slice::from_raw_parts;
use std::sync::Arc;

use super::launch::{Work, launch};
use super::memory::{Output, Untyped, computed, computed_any};
use super::pointers::{ReadPtr, bytes_of, bytes_written, elements_of};
use crate::array::{AnyArray, Array, Elements, Shape};
use crate::error::Result;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::moves::compaction::{CHUNK, write_elements, write_positions};

/// The number of flags that are counted together.
const BLOCK: usize = 1 << 16;

#[derive(Clone)]
struct FlagBlocks {
    flags: ReadPtr<bool>,
    first: usize,
    length: usize,
    /// The number of true flags before each block. The last entry is the number of all true flags.
    starts: Arc<[usize]>,
}

impl FlagBlocks {
    /// Waits for the flags, and counts them.
    #[track_caller]
    fn of(flags: &Array<bool>) -> Result<Self> {
        assert!(
            flags.layout().is_contiguous(),
            "the flags are not contiguous"
        );
        if let Some(count) = flags.device().backend().assumed_count(flags.len()) {
            return Ok(Self {
                flags: elements_of(flags),
                first: flags.layout().offset(),
                length: flags.len(),
                starts: [0, count].into(),
            });
        }
        let (elements, length) = (Elements::of(flags)?, flags.len());
        let count = |first: usize, end: usize| -> usize {
            // A part has at most `CHUNK - 1` flags, so that a byte can count them.
            let parts = (first..end).step_by(CHUNK - 1).map(|part| {
                let flags = elements.run(part, (end - part).min(CHUNK - 1));
                flags.fold(0_u8, |sum, flag| sum.wrapping_add(u8::from(flag)))
            });
            parts.map(usize::from).sum()
        };
        let mut all = 0;
        let mut starts = vec![0];
        for first in (0..length).step_by(BLOCK) {
            all += count(first, length.min(first + BLOCK));
            starts.push(all);
        }
        Ok(Self {
            flags: elements_of(flags),
            first: flags.layout().offset(),
            length,
            starts: starts.into(),
        })
    }

    fn count(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    fn work(&self, bytes_each: usize) -> Work {
        Work::of_bytes(self.starts.len() - 1, BLOCK * bytes_each)
    }

    /// Returns the indices of a block's flags, and the positions of its elements in the output.
    fn block(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let first = number * BLOCK;
        let numbers = first..self.length.min(first + BLOCK);
        (numbers, self.starts[number]..self.starts[number + 1])
    }

    /// # Safety
    ///
    /// The flags must be alive and not written to, and `numbers` must be indices of flags.
    #[inline(always)]
    unsafe fn flags(&self, numbers: Range<usize>) -> &[bool] {
        // SAFETY: by this function's contract. The flags are contiguous, as `of` has checked.
        unsafe { from_raw_parts(self.flags.at(self.first + numbers.start), numbers.len()) }
    }
}

/// Returns the elements of `array` whose flags are true. Both arrays are contiguous and have equal
/// lengths.
#[track_caller]
pub(in crate::ops) fn compacted(
    order: HostOrder<'_>,
    array: Operand<'_>,
    flags: Operand<'_>,
) -> Result<AnyArray> {
    let dense = array.layout.is_contiguous() && array.layout.len() == flags.layout.len();
    assert!(
        dense,
        "the array and the flags differ in length, or the array has gaps"
    );
    let blocks = FlagBlocks::of(&flags.share().into_array())?;
    let bytes = array.dtype.size_bytes();
    let shape = Shape::from(blocks.count());
    let write = |output: Untyped| {
        let first = bytes_of(array).at(array.layout.offset() * bytes);
        let reads = (ReadPtr::over(first), bytes, blocks.clone());
        let to = bytes_written(&output);
        launch(
            order,
            blocks.work(1 + 2 * bytes),
            (&reads, &to),
            |reads, &to, range| {
                let (from, bytes, blocks) = reads;
                for block in range {
                    let (numbers, places) = blocks.block(block);
                    let from = from.at(numbers.start * bytes);
                    let out = to.at(places.start * bytes).cast();
                    // SAFETY: the memory is alive during a launch. The ranges of a launch do not
                    // overlap, so the positions of their blocks do not overlap. The stream is
                    // ordered after the writes to the operands. The operands have the elements of
                    // all blocks.
                    unsafe {
                        write_elements(*bytes, blocks.flags(numbers), from, out, places.len());
                    }
                }
            },
        );
    };
    // SAFETY: the blocks cover all flags. Each block writes an element to each of its positions, or
    // panics.
    unsafe { computed_any(order.device, &shape, array.dtype, write) }
}

/// Returns the positions of the true flags in an array of `shape`. Each position is a row of
/// indices along the axes of `shape`. `flags` is contiguous, with one flag for each element of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn positions(
    order: HostOrder<'_>,
    flags: &Array<bool>,
    shape: &Shape,
) -> Result<Array<i64>> {
    assert_eq!(
        shape.checked_len()?,
        flags.len(),
        "the shape and the flags differ in length"
    );
    let blocks = FlagBlocks::of(flags)?;
    let rank = shape.ndim();
    let rows = Shape::from([blocks.count(), rank]);
    let write = |output: Output<i64>| {
        let reads = (*shape, blocks.clone());
        let work = blocks.work(1 + rank * size_of::<i64>());
        launch(order, work, (&reads, &output), |reads, output, range| {
            let (shape, blocks) = reads;
            let rank = shape.ndim();
            for block in range {
                let (numbers, places) = blocks.block(block);
                // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
                // overlap. The part has a row for each position of the block. The stream is ordered
                // after the writes to the flags.
                let (flags, out) = unsafe {
                    let out = output.part(places.start * rank..places.end * rank);
                    (blocks.flags(numbers.clone()), out)
                };
                write_positions(flags, numbers.start, shape.dims(), out);
            }
        });
    };
    // SAFETY: the blocks cover all flags. Each block writes a row to each of its positions, or
    // panics.
    unsafe { computed(order.device, &rows, write) }
}
