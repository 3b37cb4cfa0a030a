//! The layouts of an attention's arrays, as arguments of its kernels.

use smallvec::SmallVec;

use super::super::walk::Numbering;
use crate::array::{DType, Layout, Shape};
use crate::device::DevicePtr;
use crate::device::cuda::Arguments;
use crate::ops::descriptors::AttentionSizes;
use crate::ops::expression::tree::Operand;

/// A matrix for each head, in the memory of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadMatrices {
    pub(super) address: DevicePtr,
    pub(super) dtype: DType,
    /// The first element of each head.
    heads: Layout,
    /// The steps between rows and between columns.
    steps: [isize; 2],
    columns: usize,
}

impl HeadMatrices {
    /// Returns the matrices in the last two axes of an array.
    pub(super) fn new(array: Operand<'_>) -> Self {
        let address = DevicePtr(array.buffer.address());
        Self::at(address, array.layout, array.dtype)
    }

    /// Returns the matrices of an array, broadcast to `heads`.
    pub(super) fn of(array: Operand<'_>, heads: &Shape) -> Self {
        let own = Self::new(array);
        let heads = own.heads.broadcast_to(heads);
        Self {
            heads: heads.expect("the sizes were computed from the array's shape"),
            ..own
        }
    }

    /// Returns the place of each query in an array of one element per query.
    pub(super) fn of_queries(sizes: &AttentionSizes) -> Self {
        let layout = Layout::row_major(&sizes.shape(sizes.queries, 1));
        Self::at(DevicePtr(0), &layout, DType::F32)
    }

    fn at(address: DevicePtr, layout: &Layout, dtype: DType) -> Self {
        let (heads, matrix) = layout.split_at(layout.ndim() - 2);
        Self {
            address,
            dtype,
            heads,
            steps: [matrix.strides()[0], matrix.strides()[1]],
            columns: matrix.dims()[1],
        }
    }

    /// Returns the heads at index 0 of all axes that have length 1 in `heads`.
    fn first_along(&self, heads: &Shape) -> Layout {
        let mut first = self.heads;
        for (axis, &length) in heads.dims().iter().enumerate() {
            if length == 1 && first.dims()[axis] > 1 {
                let part = first.part(axis, 0..1, 1);
                first = part.expect("an axis of several heads has a first head");
            }
        }
        first
    }

    /// Returns whether all rows are contiguous and begin at multiples of 16 bytes.
    pub(super) fn is_aligned(&self) -> bool {
        let bytes = self.dtype.size_bytes();
        let is_whole = |elements: usize| (elements * bytes).is_multiple_of(16);
        let steps = self.heads.strides().iter().chain([&self.steps[0]]);
        (self.columns == 1 || self.steps[1] == 1)
            && self.address.0.is_multiple_of(16)
            && is_whole(self.heads.offset())
            && steps.map(|step| step.unsigned_abs()).all(is_whole)
    }
}

/// The division of heads into groups that share their keys and values. The gradients of the keys
/// and values of a group are summed by one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharingGroups {
    /// The lengths of the axes of heads, with length 1 for axes within a group.
    pub(super) all: Shape,
    /// The lengths of the axes of heads, with length 1 for axes of groups.
    pub(super) within: Shape,
}

impl SharingGroups {
    pub(super) fn of(k: &HeadMatrices, v: &HeadMatrices) -> Self {
        let strides = k.heads.strides().iter().zip(v.heads.strides());
        let axes = k.heads.dims().iter().zip(strides);
        let (all, within): (Vec<usize>, Vec<usize>) = axes
            .map(|(&length, strides)| match strides {
                (0, 0) => (1, length),
                _ => (length, 1),
            })
            .unzip();
        Self {
            all: all.into(),
            within: within.into(),
        }
    }

    /// Returns the number of groups.
    pub(super) fn count(&self) -> usize {
        self.all.dims().iter().product()
    }
}

/// The arguments of a kernel: addresses, the offsets of heads, the steps of matrices, and lengths.
pub(super) struct AttentionArguments {
    arguments: Arguments,
    numbering: Numbering,
    lengths: [u32; 8],
}

impl AttentionArguments {
    pub(super) fn new(sizes: &AttentionSizes, is_causal: bool) -> Self {
        let scale = sizes.scale();
        let bits = |scale: f64| (scale as f32).to_bits();
        let lengths = [sizes.queries, sizes.keys, sizes.depth, sizes.width];
        let [queries, keys, depth, width] = lengths.map(|length| length as u32);
        let factor = bits(scale * std::f64::consts::LOG2_E);
        let is_causal = u32::from(is_causal);
        Self {
            arguments: Arguments::default(),
            // Offsets may exceed 31 bits, and a block computes them once.
            numbering: Numbering::new(sizes.heads.ndim(), usize::MAX),
            lengths: [
                queries,
                keys,
                depth,
                width,
                bits(scale),
                factor,
                is_causal,
                1,
            ],
        }
    }

    pub(super) fn addresses(&mut self, addresses: &[DevicePtr]) {
        for address in addresses {
            self.arguments.push(address.0);
        }
    }

    /// Adds the offsets of each head in several arrays.
    pub(super) fn heads(&mut self, arrays: &[&HeadMatrices]) {
        let layouts: SmallVec<[Layout; 7]> = arrays.iter().map(|array| array.heads).collect();
        self.offsets(&layouts);
    }

    /// Adds the offsets of the first head of each group, and the distances of the heads of a group
    /// from the first.
    pub(super) fn groups(
        &mut self,
        groups: &SharingGroups,
        arrays: &[&HeadMatrices],
        within: &[&HeadMatrices],
    ) {
        let first = arrays.iter().map(|array| array.first_along(&groups.all));
        self.offsets(&first.collect::<SmallVec<[Layout; 7]>>());
        let apart = within
            .iter()
            .map(|array| array.first_along(&groups.within).starting_at(0));
        self.offsets(&apart.collect::<SmallVec<[Layout; 7]>>());
        self.lengths[7] = groups.within.dims().iter().product::<usize>() as u32;
    }

    /// Adds the kernel's `Walk` over layouts of one shape.
    fn offsets(&mut self, layouts: &[Layout]) {
        let mut numbers: Vec<u64> = layouts.iter().map(|own| own.offset() as u64).collect();
        let dims = layouts[0].dims();
        for _ in dims.len()..self.numbering.rank() {
            numbers.push(1);
            numbers.resize(numbers.len() + 2 + layouts.len(), 0);
        }
        for (axis, &length) in dims.iter().enumerate() {
            // A kernel divides numbers of 64 bits without a multiplier and a shift.
            numbers.extend([length as u64, 0, 0]);
            numbers.extend(layouts.iter().map(|own| own.strides()[axis] as u64));
        }
        self.numbering.push_numbers(&mut self.arguments, &numbers);
    }

    /// Adds the steps of each array.
    pub(super) fn steps(&mut self, arrays: &[&HeadMatrices]) {
        for array in arrays {
            let steps = array.steps.map(|step| step as u64);
            self.arguments.push_all(steps);
        }
    }

    /// Returns the numbering of heads.
    pub(super) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Adds the lengths, which are the last argument of each kernel.
    pub(super) fn finish(mut self) -> Arguments {
        let bytes = self.lengths.iter().flat_map(|length| length.to_ne_bytes());
        self.arguments.push_bytes(&bytes.collect::<Vec<u8>>());
        self.arguments
    }
}
