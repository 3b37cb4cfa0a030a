//! Copies between arrays of any strides. An element is copied as a word of its size, whatever its
//! type.

use super::launch::launch;
use super::memory::{Output, computed};
use super::prelude;
use super::walk::{Numbering, blocks_of, grid, limit_of};
use crate::array::{AnyArray, DType, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Copying, joined_parts};
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

#[track_caller]
pub(in crate::ops) fn copied(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    copying: Copying,
    shape: &Shape,
) -> Result<AnyArray> {
    let walk = copying.walk(array.layout);
    computed(order.device, array.dtype, shape, |output: Output| {
        let output = Words::new(output, array.dtype);
        assert_eq!(
            output.limit,
            walk.count(),
            "the source and the target differ in length"
        );
        // SAFETY: the walk visits the elements of `array` and all elements of the output, as the
        // assertion checks. The output is new.
        unsafe { copy(order, Words::of(array), output, &walk) }
    })
}

/// Returns the concatenation of arrays of one type along the axis `at`, as a new array of `shape`.
/// Each array has the dimensions of `shape` except along the axis `at`.
#[track_caller]
pub(in crate::ops) fn joined(
    order: CudaOrder<'_>,
    arrays: &[AnyArray],
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let dtype = arrays[0].dtype;
    let parts = joined_parts(arrays.iter().map(|array| &array.layout), at, shape)?;
    computed(order.device, dtype, shape, |output: Output| {
        let output = Words::new(output, dtype);
        for (array, walk) in arrays.iter().zip(parts) {
            assert_eq!(array.dtype, dtype, "the joined arrays differ in type");
            // SAFETY: the walk is over the array, and over a part of the new output. No other array
            // is copied to this part.
            unsafe { copy(order, Words::of(array.operand()), output, &walk) }?;
        }
        Ok(())
    })
}

/// The memory of an operand, as words of the size of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub(super) address: DevicePtr,
    pub(super) bytes: usize,
    /// An exclusive upper bound of the indices that a walk may reach.
    pub(super) limit: usize,
}

impl Words {
    /// Returns the memory of a new array of `dtype`.
    pub(super) fn new(output: Output, dtype: DType) -> Self {
        Self {
            address: output.address,
            bytes: dtype.size_bytes(),
            limit: output.count,
        }
    }

    /// Returns the memory of an array, from index 0 of its layout on.
    pub(super) fn of(array: Operand<'_>) -> Self {
        Self {
            address: DevicePtr(array.buffer.address()),
            bytes: array.dtype.size_bytes(),
            limit: limit_of(array.layout),
        }
    }

    fn at(self, index: usize) -> DevicePtr {
        self.address.offset((index * self.bytes) as u64)
    }

    /// Returns this memory as words that are `times` as long.
    pub(super) fn widened(self, times: usize) -> Self {
        Self {
            bytes: self.bytes * times,
            limit: self.limit / times,
            ..self
        }
    }
}

/// The size of the longest words in bytes.
const LONGEST: usize = 16;

/// Returns the number of elements in the longest word that all operands allow. This number divides
/// all `numbers`. The word is aligned in the memory of all operands.
pub(super) fn widening(operands: &[Words], numbers: impl Iterator<Item = usize> + Clone) -> usize {
    let mut times = LONGEST / operands[0].bytes;
    let fits = |times: usize| {
        let aligned = |words: &Words| words.address.0.is_multiple_of((words.bytes * times) as u64);
        operands.iter().all(aligned) && numbers.clone().all(|number| number.is_multiple_of(times))
    };
    while times > 1 && !fits(times) {
        times /= 2;
    }
    times.max(1)
}

/// Copies elements of `from` to `to`. `walk` visits the indices to read and the indices to write.
///
/// # Safety
///
/// The walk must stay within the memory of both operands, and visit each element of `to` at most
/// once. No other pending work may write the visited elements of `to`. The array of `from` must be
/// among the operands of `order`.
#[track_caller]
pub(super) unsafe fn copy(
    order: CudaOrder<'_>,
    from: Words,
    to: Words,
    walk: &Walk<2>,
) -> Result<()> {
    let count = walk.count();
    if count == 0 {
        return Ok(());
    }
    if count == 1 || walk.axes().eq([(count, [1, 1])]) {
        let [first, target] = walk.first();
        let bytes = (count * from.bytes) as u64;
        // SAFETY: by this function's contract, the walk stays within both memories. The walk is one
        // contiguous range of `count` elements.
        let copy = |stream| unsafe { order.gpu.copy(stream, from.at(first), to.at(target), bytes) };
        return order.queue(copy);
    }
    match Tiles::of(walk, from.bytes) {
        Some(tiles) => copy_tiles(order, from, to, &tiles),
        None => copy_words(order, from, to, walk),
    }
}

/// Copies like [`copy`], with a thread for each word.
#[track_caller]
fn copy_words(order: CudaOrder<'_>, from: Words, to: Words, walk: &Walk<2>) -> Result<()> {
    let (length, steps) = walk.row();
    let times = if steps == [1, 1] {
        let others = walk.axes().take(walk.axes().len() - 1);
        let steps = others.flat_map(|(_, steps)| steps.map(isize::unsigned_abs));
        widening(
            &[from, to],
            walk.first().into_iter().chain(steps).chain([length]),
        )
    } else {
        1
    };
    let (from, to, walk) = (from.widened(times), to.widened(times), coarser(walk, times));
    let numbering = Numbering::of(&walk, from.limit.max(to.limit));
    let mut arguments = Arguments::default();
    arguments.push(from.address.0);
    arguments.push(to.address.0);
    numbering.push(&mut arguments, &walk);
    arguments.push(walk.count() as u64);
    let kernel = WordKernel::of::<CopyWords>(numbering, from.bytes, words_source);
    kernel.launch(order, grid(walk.count()), &arguments)
}

struct CopyWords;

fn words_source(numbering: Numbering, bytes: usize) -> KernelSource {
    source("a copy", numbering, bytes, include_str!("copy.cuh"))
}

/// Returns `walk` over words of `times` elements. Along its last axis, all operands have stride 1.
fn coarser<const K: usize>(walk: &Walk<K>, times: usize) -> Walk<K> {
    if times == 1 {
        return *walk;
    }
    let last = walk.axes().len() - 1;
    let axes = walk.axes().enumerate().map(|(axis, (length, steps))| {
        if axis == last {
            (length / times, steps)
        } else {
            (length, steps.map(|step| step / times as isize))
        }
    });
    Walk::over(walk.first().map(|first| first / times), axes)
}

/// Returns the CUDA C++ type of a word of `bytes` bytes.
pub(super) fn word_of(bytes: usize) -> &'static str {
    match bytes {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "cs_pack<u64, 2>",
    }
}

/// A kernel over words of a fixed size.
#[derive(Debug)]
pub(super) struct WordKernel {
    key: KernelKey,
    numbering: Numbering,
    bytes: usize,
    source: fn(Numbering, usize) -> KernelSource,
}

impl WordKernel {
    /// Returns the kernel that `source` generates for this numbering and word size. `K` identifies
    /// the kernel.
    pub(super) fn of<K: 'static>(
        numbering: Numbering,
        bytes: usize,
        source: fn(Numbering, usize) -> KernelSource,
    ) -> Self {
        Self {
            key: KernelKey::of::<K>(form_of(numbering, bytes)),
            numbering,
            bytes,
            source,
        }
    }

    #[track_caller]
    pub(super) fn launch(
        &self,
        order: CudaOrder<'_>,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<()> {
        let source = || (self.source)(self.numbering, self.bytes);
        launch(order, self.key, &source, grid, arguments)
    }
}

/// Returns the lowest seven bits of the form of a kernel over words of `bytes` bytes.
pub(super) fn form_of(numbering: Numbering, bytes: usize) -> u32 {
    // The word size is above the bits of the numbering.
    numbering.form() | bytes.trailing_zeros() << 4
}

pub(super) fn source(name: &str, numbering: Numbering, bytes: usize, text: &str) -> KernelSource {
    let word = word_of(bytes);
    let name = format!("{name} of {bytes}-byte words");
    prelude::source(
        name,
        &format!("{}typedef {word} word_t;\n{text}", numbering.text()),
    )
}

/// A walk by tiles of two axes. The target is contiguous along one axis, and the source is
/// contiguous along the other axis.
#[derive(Debug)]
struct Tiles {
    /// The walk over the axes that the tiles do not divide.
    outer: Walk<2>,
    across: (usize, [isize; 2]),
    along: (usize, [isize; 2]),
    /// The length of a tile's side, in words.
    side: usize,
}

/// Returns the length of a tile's side, in words. Even for words of one byte, a side is a whole
/// number of memory sectors.
fn side_of(bytes: usize) -> usize {
    if bytes < 4 { 64 } else { 32 }
}

fn tiles_source(numbering: Numbering, bytes: usize) -> KernelSource {
    let text = format!(
        "#define TILE {}\n{}",
        side_of(bytes),
        include_str!("tiles.cuh")
    );
    source("a transposing copy", numbering, bytes, &text)
}

/// The minimum length of an axis, in words, for which tiles are faster.
const SHORT: usize = 8;

impl Tiles {
    /// Returns the tiles of `walk`, if a copy by rows would use only a small part of each memory
    /// sector.
    fn of(walk: &Walk<2>, bytes: usize) -> Option<Self> {
        let along = walk.row();
        let inner = walk.axes().len() - 1;
        let (length, [read, _]) = along;
        if read.unsigned_abs() < 2 || length < SHORT {
            return None;
        }
        let dense =
            |(length, [read, _]): (usize, [isize; 2])| read.unsigned_abs() == 1 && length >= SHORT;
        let divided = walk.axes().take(inner).position(dense)?;
        let across = walk.axes().nth(divided)?;
        let others = walk.axes().take(inner).enumerate();
        let others = others.filter(|&(axis, _)| axis != divided);
        Some(Self {
            outer: Walk::over(walk.first(), others.map(|(_, axis)| axis)),
            across,
            along,
            side: side_of(bytes),
        })
    }

    fn count(&self) -> usize {
        let in_plane = self.across.0.div_ceil(self.side) * self.along.0.div_ceil(self.side);
        self.outer.count() * in_plane
    }
}

/// Copies like [`copy`], by tiles.
#[track_caller]
fn copy_tiles(order: CudaOrder<'_>, from: Words, to: Words, tiles: &Tiles) -> Result<()> {
    let numbering = Numbering::of(&tiles.outer, from.limit.max(to.limit).max(tiles.count()));
    let mut arguments = Arguments::default();
    arguments.push(from.address.0);
    arguments.push(to.address.0);
    numbering.push(&mut arguments, &tiles.outer);
    let plane = [tiles.across, tiles.along];
    let plane = plane.map(|(length, [read, write])| [length as u64, read as u64, write as u64]);
    numbering.push_numbers(&mut arguments, plane.as_flattened());
    arguments.push(tiles.count() as u64);
    let kernel = WordKernel::of::<Tiles>(numbering, from.bytes, tiles_source);
    kernel.launch(order, blocks_of(tiles.count()), &arguments)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns two numberings for which the compiler generates different code.
    pub(in crate::ops::cuda) fn numberings() -> [Numbering; 2] {
        [(2, 0), (3, usize::MAX)].map(|(rank, limit)| Numbering::new(rank, limit))
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn copies_compile() {
        for numbering in numberings() {
            let words = [1, 2, 4, 8, 16].map(|bytes| words_source(numbering, bytes));
            crate::device::cuda::compile_for_all(&words);
            let tiles = [1, 2, 4, 8].map(|bytes| tiles_source(numbering, bytes));
            crate::device::cuda::compile_for_all(&tiles);
        }
    }
}
