//! Addition and writes at indices from an array on the device.
//!
//! The sum of floats depends on the order of its terms. The terms are added in the order of the
//! indices, like on the host. Therefore one thread adds all values of an element of the target, and
//! no floats are added atomically. Writes use the kernels for floats, so that the last of several
//! values for one element remains.
//!
//! The sum of integers does not depend on the order of its terms. Therefore one thread per value
//! adds the value atomically. The time depends on the number of values alone. For floats, the
//! indexed axis of the target may be divided into ranges, with one block per range. Each block
//! reads all indices. If the indexed axis is long and the target has no other axes, the kernel
//! takes longest.

use super::copy::{WordKernel, Words, source, word_of};
use super::launch::{THREADS, grid_of, launch};
use super::prelude;
use super::walk::{Numbering, blocks_of};
use crate::array::{DType, Shape, Walk};
use crate::device::cuda::{Arguments, Indexing, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Axis, reached};
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;
use crate::ops::order::aliasing::Target;

/// Adds each of `values`, in order, to the element of `target` that its index selects along the
/// axis `at`. Each position of `shape` is one addition. `shape` is not empty. `indices` and
/// `values` broadcast to `shape`. `target` broadcasts to `shape` along all axes except `at`.
#[track_caller]
pub(in crate::ops) fn add_at(
    order: CudaOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    (at, operation): (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    let walk = reached(&target, [indices.layout, values.layout], at, shape)?;
    let scattered = Scattered::new(&target, indices, values, (at, operation));
    let dtype = values.dtype;
    // Integer sums do not depend on the order of their terms.
    if !dtype.is_float() && !dtype.is_complex() {
        return scattered.in_any_order(order, &walk);
    }
    scattered.in_order(order, &walk, Item::Summand(dtype))
}

/// Writes each of `values` to the element of `target` that its index selects. [`add_at`] describes
/// the parameters. The last of several values for one element remains.
#[track_caller]
pub(in crate::ops) fn put_at(
    order: CudaOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    (at, operation): (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    let walk = reached(&target, [indices.layout, values.layout], at, shape)?;
    let scattered = Scattered::new(&target, indices, values, (at, operation));
    let item = Item::Word {
        bytes: values.dtype.size_bytes(),
    };
    scattered.in_order(order, &walk, item)
}

/// An element that is added or written at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// An element that is added.
    Summand(DType),
    /// An element that is written, as a word.
    Word { bytes: usize },
}

impl Item {
    /// Returns the CUDA C++ type of the element.
    fn name(self) -> &'static str {
        match self {
            Self::Summand(dtype) => dtype.in_cuda(),
            Self::Word { bytes } => word_of(bytes),
        }
    }

    /// Returns the bits of a kernel's form that identify the item. These bits are above the bits of
    /// the numbering.
    fn form(self) -> u32 {
        match self {
            Self::Summand(dtype) => 1 << 4 | (dtype as u32) << 5,
            Self::Word { bytes } => bytes.trailing_zeros() << 5,
        }
    }

    /// Returns the CUDA C++ definitions of `item_t` and of `scattered`. The function `scattered`
    /// updates an element.
    fn text(self) -> String {
        let with = match self {
            Self::Summand(_) => "cs_add(old, value)",
            Self::Word { .. } => "value",
        };
        let name = self.name();
        format!(
            "typedef {name} item_t;\nCS_FN item_t scattered(item_t old, item_t value) {{ return {with}; }}\n"
        )
    }
}

/// The maximum length of a lane, in indices, that one thread processes even if lanes are few.
const SHORT: usize = 32;

/// The number of lanes per multiprocessor that occupies a device, with one thread per lane.
const BUSY: usize = 64;

/// The operands of an addition or of a write.
#[derive(Clone, Copy, Debug)]
struct Scattered {
    target: Words,
    indices: Words,
    values: Words,
    axis: Axis,
}

/// The division of a walk into lanes. The positions of a lane differ only on axes along which the
/// target has stride 0. The indices of these positions select elements along the indexed axis of
/// the target, in the order of the walk. Different lanes reach different elements of the target.
#[derive(Debug)]
struct Division {
    /// The walk over lanes that have different indices.
    groups: Walk<3>,
    /// The walk over neighbouring lanes that share their indices.
    beside: Walk<3>,
    along: Walk<3>,
    length: usize,
}

impl Division {
    fn of(walk: &Walk<3>) -> Self {
        // Lanes run along the axes on which the target has stride 0. Positions that differ on the
        // other axes select different elements of the target, for any indices.
        let axes = |wanted: fn([isize; 3]) -> bool| {
            let axes = walk.axes();
            axes.filter(move |&(_, steps)| wanted(steps))
        };
        let along = Walk::over([0; 3], axes(|[step, ..]| step == 0));
        Self {
            groups: Walk::over(
                walk.first(),
                axes(|[step, index, _]| step != 0 && index != 0),
            ),
            beside: Walk::over([0; 3], axes(|[step, index, _]| step != 0 && index == 0)),
            length: along.count(),
            along,
        }
    }

    fn lanes(&self) -> usize {
        self.groups.count() * self.beside.count()
    }

    /// Returns all lanes as one walk.
    fn all(&self) -> Walk<3> {
        let axes = self.groups.axes().chain(self.beside.axes());
        Walk::over(self.groups.first(), axes)
    }

    /// Returns the numbering for the three walks. All positions and element indices are below
    /// `limit`.
    fn numbering(&self, limit: usize) -> Numbering {
        let walks = [&self.groups, &self.beside, &self.along];
        let rank = walks.map(|walk| walk.axes().len()).into_iter().max();
        Numbering::new(rank.unwrap_or(1).max(self.all().axes().len()), limit)
    }
}

/// Marker types that distinguish the kernels. A kernel of `InAnyOrder` is for all integers of one
/// size. A kernel of `ByLanes` or `ByRanges` is for one [`Item`]. The kernel's form identifies the
/// item.
struct InAnyOrder;
struct ByLanes;
struct ByRanges;

impl Scattered {
    fn new(
        target: &Target<'_>,
        indices: Operand<'_>,
        values: Operand<'_>,
        (at, operation): (usize, Indexing),
    ) -> Self {
        assert_eq!(indices.dtype, DType::I64, "the indices are not `i64`");
        assert_eq!(
            target.dtype(),
            values.dtype,
            "the values and the target differ in type"
        );
        Self {
            target: Words::of(target.into()),
            indices: Words::of(indices),
            values: Words::of(values),
            axis: Axis::of(target.layout(), at, operation),
        }
    }

    /// Returns a number that exceeds every element index and every position below `count`.
    fn limit(&self, count: usize) -> usize {
        let reached = [self.target, self.indices, self.values].map(|words| words.limit);
        reached.into_iter().fold(count, usize::max)
    }

    fn addresses(&self) -> Arguments {
        let mut arguments = Arguments::default();
        for words in [self.target, self.indices, self.values] {
            arguments.push(words.address.0);
        }
        arguments
    }

    /// Adds integers atomically, with one thread per value.
    #[track_caller]
    fn in_any_order(&self, order: CudaOrder<'_>, walk: &Walk<3>) -> Result<()> {
        let count = walk.count();
        let numbering = Numbering::of(walk, self.limit(count));
        let mut arguments = self.addresses();
        numbering.push(&mut arguments, walk);
        self.axis.push(order.gpu, &mut arguments);
        arguments.push(count as u64);
        let kernel = WordKernel::of::<InAnyOrder>(numbering, self.target.bytes, whole_source);
        kernel.launch(order, grid_of(count), &arguments)
    }

    /// Updates the target in the order of the walk.
    #[track_caller]
    fn in_order(&self, order: CudaOrder<'_>, walk: &Walk<3>, item: Item) -> Result<()> {
        let division = Division::of(walk);
        let busy = order.gpu.multiprocessors() as usize * BUSY;
        if division.length <= SHORT || division.lanes() >= busy {
            self.by_lanes(order, &division, item)
        } else {
            self.by_ranges(order, &division, item)
        }
    }

    /// Updates the target with one thread per lane. The time is proportional to the length of a
    /// lane.
    #[track_caller]
    fn by_lanes(&self, order: CudaOrder<'_>, division: &Division, item: Item) -> Result<()> {
        let lanes = division.lanes();
        let numbering = division.numbering(self.limit(lanes.max(division.length)));
        let mut arguments = self.addresses();
        numbering.push(&mut arguments, &division.all());
        numbering.push(&mut arguments, &division.along);
        self.axis.push(order.gpu, &mut arguments);
        arguments.push(division.length as u64);
        arguments.push(lanes as u64);
        let source = || lanes_source(numbering, item);
        let key = KernelKey::of::<ByLanes>(numbering.form() | item.form());
        launch(order, key, &source, grid_of(lanes), &arguments)
    }

    /// Updates the target with one block per range of the indexed axis. A block processes several
    /// lanes that share their indices. The block reads all indices, 256 at a time, and then the
    /// values in its range. If few values are in the range, reading the indices dominates the time.
    /// If the number of neighbouring lanes reaches the number of threads, reading the indices
    /// dominates, too. If all indices are equal, each index takes about ten cycles.
    #[track_caller]
    fn by_ranges(&self, order: CudaOrder<'_>, division: &Division, item: Item) -> Result<()> {
        let beside = division.beside.count();
        let threads = beside.next_power_of_two().min(THREADS as usize);
        let tiles = beside.div_ceil(threads);
        let parts = division.groups.count() * tiles;
        let wanted = (order.gpu.multiprocessors().max(1) as usize * 8).div_ceil(parts);
        // The length of a range is a multiple of the number of threads that own the elements of one
        // lane.
        let owners = THREADS as usize / threads;
        let range = self.axis.length.div_ceil(wanted).max(1);
        let range = range.next_multiple_of(owners);
        let ranges = self.axis.length.div_ceil(range);
        let count = parts * ranges;
        let numbering = division.numbering(self.limit(division.length.max(beside).max(parts)));
        let mut arguments = self.addresses();
        for walk in [&division.groups, &division.beside, &division.along] {
            numbering.push(&mut arguments, walk);
        }
        self.axis.push(order.gpu, &mut arguments);
        let shares = [range, ranges, beside, threads, tiles];
        arguments.push_all(shares.map(|number| number as u64));
        arguments.push(division.length as u64);
        arguments.push(count as u64);
        let source = || ranges_source(numbering, item);
        let key = KernelKey::of::<ByRanges>(numbering.form() | item.form());
        launch(order, key, &source, blocks_of(count), &arguments)
    }
}

fn whole_source(numbering: Numbering, bytes: usize) -> KernelSource {
    let text = [include_str!("picked.cuh"), include_str!("add_whole.cuh")].concat();
    source("scatter_add", numbering, bytes, &text)
}

fn lanes_source(numbering: Numbering, item: Item) -> KernelSource {
    in_order_source("by lanes", numbering, item, include_str!("add_lines.cuh"))
}

fn ranges_source(numbering: Numbering, item: Item) -> KernelSource {
    in_order_source("by ranges", numbering, item, include_str!("add_ranges.cuh"))
}

fn in_order_source(way: &str, numbering: Numbering, item: Item, text: &str) -> KernelSource {
    let (numbers, picked) = (numbering.text(), include_str!("picked.cuh"));
    let text = [&numbers, &item.text(), picked, text].concat();
    let operation = match item {
        Item::Summand(_) => "scatter_add",
        Item::Word { .. } => "scatter",
    };
    prelude::source(format!("{operation} of {} {way}", item.name()), &text)
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::numberings;
    use super::*;

    const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

    fn words<const N: usize>(sizes: [usize; N]) -> [Item; N] {
        sizes.map(|bytes| Item::Word { bytes })
    }

    #[test]
    fn each_item_has_kernels_of_its_own() {
        let summands = FLOATS.into_iter().chain([DType::C32, DType::C64]);
        let items = summands.map(Item::Summand).chain(words([1, 2, 4, 8, 16]));
        let forms = numberings().into_iter().flat_map(|numbering| {
            let items = items.clone();
            items.map(move |item| numbering.form() | item.form())
        });
        let forms: Vec<u32> = forms.collect();
        for (at, form) in forms.iter().enumerate() {
            assert!(!forms[..at].contains(form), "{form}");
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn scattering_compiles() {
        use crate::device::cuda::compile_for_all;
        for numbering in numberings() {
            compile_for_all(&[1, 2, 4, 8].map(|bytes| whole_source(numbering, bytes)));
            for items in [FLOATS.map(Item::Summand), words([1, 2, 4, 8])] {
                compile_for_all(&items.map(|item| lanes_source(numbering, item)));
                compile_for_all(&items.map(|item| ranges_source(numbering, item)));
            }
        }
    }
}
