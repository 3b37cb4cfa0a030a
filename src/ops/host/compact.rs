//! Stream compaction: the elements whose flags are true, and their positions.
//!
//! Before the first element is written, the flags are counted in blocks. The size of the result is
//! the count of true flags. The counts determine where each block writes its elements.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

use super::by_bytes;
use super::launch::{Work, launch};
use super::memory::{Output, Untyped, computed, computed_any};
use super::pointers::{ReadPtr, WritePtr, bytes_of, bytes_written, elements_of};
use crate::array::{AnyArray, Array, Elements, MAX_RANK, Shape};
use crate::error::Result;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;

/// The number of flags that are counted together.
const BLOCK: usize = 1 << 16;

/// The number of flags whose elements are written together. The slots have room for an element of
/// each flag, although most flags may be false.
const CHUNK: usize = 256;

/// The number of flags that are skipped together if none is true.
const WORD: usize = size_of::<u64>();

#[derive(Clone)]
struct FlagBlocks {
    flags: ReadPtr<bool>,
    first: usize,
    length: usize,
    /// For each block, the number of true flags before it. The last entry is the number of all true
    /// flags.
    starts: Arc<[usize]>,
}

impl FlagBlocks {
    /// Waits for the flags, and counts them.
    #[track_caller]
    fn of(flags: &Array<bool>) -> Result<Self> {
        assert!(flags.layout().is_contiguous(), "flags that stand apart");
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
            // There are so few flags that a byte can count them.
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

    /// Returns the number of true flags.
    fn count(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    fn work(&self, bytes_each: usize) -> Work {
        Work::of_bytes(self.starts.len() - 1, BLOCK * bytes_each)
    }

    /// Returns the numbers of a block's flags, and the positions of its elements in the output.
    fn block(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let first = number * BLOCK;
        let numbers = first..self.length.min(first + BLOCK);
        (numbers, self.starts[number]..self.starts[number + 1])
    }

    /// # Safety
    ///
    /// The flags must be alive and not written to, and `numbers` must be numbers of flags.
    #[inline(always)]
    unsafe fn flags(&self, numbers: Range<usize>) -> &[bool] {
        // SAFETY: by this function's contract. The flags are contiguous, as `of` has checked.
        unsafe { from_raw_parts(self.flags.at(self.first + numbers.start), numbers.len()) }
    }
}

/// Writes `value` of the positions of the true flags to the first slots. Returns the number of true
/// flags.
#[inline(always)]
fn gather<V: Copy>(
    flags: &[bool],
    slots: &mut [MaybeUninit<V>; CHUNK],
    value: impl Fn(usize) -> V,
) -> usize {
    let mut selected = 0;
    let (words, rest) = flags.as_chunks::<WORD>();
    for (word, flags) in words.iter().enumerate() {
        if u64::from_ne_bytes(flags.map(u8::from)) == 0 {
            continue;
        }
        for (bit, &flag) in flags.iter().enumerate() {
            // No branch: an element that is not kept is overwritten by the next. The remainder
            // never changes the position, because there is a slot for each flag.
            slots[selected % CHUNK].write(value(word * WORD + bit));
            selected += usize::from(flag);
        }
    }
    for (at, &flag) in rest.iter().enumerate() {
        slots[selected % CHUNK].write(value(words.len() * WORD + at));
        selected += usize::from(flag);
    }
    selected
}

/// Writes `value` of the positions of the true flags to `out`, which has one element for each.
#[inline(always)]
fn write_selected<V: Copy>(flags: &[bool], out: &mut [MaybeUninit<V>], value: impl Fn(usize) -> V) {
    let mut done = 0;
    for (chunk, flags) in flags.chunks(CHUNK).enumerate() {
        let value = |at| value(chunk * CHUNK + at);
        if let Some(slots) = out[done..].first_chunk_mut::<CHUNK>() {
            done += gather(flags, slots, value);
        } else {
            let mut buffer = [const { MaybeUninit::uninit() }; CHUNK];
            let selected = gather(flags, &mut buffer, value);
            out[done..done + selected].copy_from_slice(&buffer[..selected]);
            done += selected;
        }
    }
    assert_eq!(done, out.len(), "other flags than were counted");
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
    assert!(dense, "compacted what has other flags");
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
                // SAFETY: the memory is alive while a launch runs. Its ranges do not overlap, so
                // neither do the positions of their blocks. The stream is ordered after the writes
                // to the operands, which have these elements.
                unsafe { by_bytes!(*bytes, compact_blocks::<Word>(blocks, range, *from, to)) };
            },
        );
    };
    // SAFETY: the blocks cover all flags, and each writes an element to each of its positions, or
    // panics.
    unsafe { computed_any(order.device, &shape, array.dtype, write) }
}

/// Writes the elements of the blocks of `range`, of type `T`, whose flags are true.
///
/// # Safety
///
/// The elements and the flags must be alive and not written to. The blocks' positions from `to` on
/// must be the caller's alone.
unsafe fn compact_blocks<T: Copy>(
    blocks: &FlagBlocks,
    range: Range<usize>,
    from: ReadPtr<u8>,
    to: WritePtr<u8>,
) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for block in range {
        let (numbers, places) = blocks.block(block);
        // SAFETY: by this function's contract.
        let (flags, values, out) = unsafe {
            let values = from_raw_parts(from.at(numbers.start), numbers.len());
            let out = from_raw_parts_mut(to.at(places.start), places.len());
            (blocks.flags(numbers), values, out)
        };
        write_selected(flags, out, |at| values[at]);
    }
}

/// Returns the positions of the true flags in an array of `shape`. Each position is a row of
/// indices along the axes. The flags are contiguous, and as many as the shape has elements.
#[track_caller]
pub(in crate::ops) fn positions(
    order: HostOrder<'_>,
    flags: &Array<bool>,
    shape: &Shape,
) -> Result<Array<i64>> {
    assert_eq!(shape.checked_len()?, flags.len(), "flags of another shape");
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
                // SAFETY: as above; each position is a row.
                let (flags, out) = unsafe {
                    let out = output.part(places.start * rank..places.end * rank);
                    (blocks.flags(numbers.clone()), out)
                };
                let first = numbers.start;
                match rank {
                    1 => write_selected(flags, out, |at| (first + at) as i64),
                    _ => write_rows(flags, first, shape, out),
                }
            }
        });
    };
    // SAFETY: as above, with rows in place of elements.
    unsafe { computed(order.device, &rows, write) }
}

/// Writes the indices of the elements whose flags are true, along the axes of `shape`. The first
/// flag belongs to the element with number `first`.
fn write_rows(flags: &[bool], first: usize, shape: &Shape, out: &mut [MaybeUninit<i64>]) {
    let mut line = FlagLine::of(first, shape);
    let mut rows = out.chunks_exact_mut(shape.ndim());
    for (chunk, flags) in flags.chunks(CHUNK).enumerate() {
        let mut buffer = [const { MaybeUninit::uninit() }; CHUNK];
        let selected = gather(flags, &mut buffer, |at| at as u32);
        for (at, row) in buffer[..selected].iter().zip(&mut rows) {
            // SAFETY: `gather` has written the first `selected` positions.
            let at = unsafe { at.assume_init() } as usize;
            line.write(first + chunk * CHUNK + at, shape, row);
        }
    }
    assert!(rows.next().is_none(), "other flags than were counted");
}

/// The elements along the last axis at one position on the other axes.
struct FlagLine {
    /// The indices along the other axes.
    index: [i64; MAX_RANK],
    /// The numbers of the elements.
    numbers: Range<usize>,
}

impl FlagLine {
    /// Returns the line of the element with this number.
    fn of(number: usize, shape: &Shape) -> Self {
        let [others @ .., length] = shape.dims() else {
            unreachable!("an array of rank 0 has no rows to write");
        };
        let mut index = [0; MAX_RANK];
        let mut rest = number / length;
        for (slot, length) in index[..others.len()].iter_mut().zip(others).rev() {
            *slot = (rest % length) as i64;
            rest /= length;
        }
        let start = number / length * length;
        Self {
            index,
            numbers: start..start + length,
        }
    }

    /// Advances to the element with this number, and writes its indices.
    #[inline(always)]
    fn write(&mut self, number: usize, shape: &Shape, row: &mut [MaybeUninit<i64>]) {
        let others = row.len() - 1;
        while number >= self.numbers.end {
            self.numbers = self.numbers.end..self.numbers.end + shape.dims()[others];
            for axis in (0..others).rev() {
                self.index[axis] += 1;
                if self.index[axis] < shape.dims()[axis] as i64 {
                    break;
                }
                self.index[axis] = 0;
            }
        }
        for (slot, &index) in row.iter_mut().zip(&self.index[..others]) {
            slot.write(index);
        }
        row[others].write((number - self.numbers.start) as i64);
    }
}
