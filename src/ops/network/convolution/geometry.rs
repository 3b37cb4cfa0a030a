//! The lengths of a convolution, and the layouts of its operands. This module accesses no memory.

use std::ops::Range;

use super::ConvOptions;
use crate::array::{DType, Layout, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::derivatives::work_of;
use crate::ops::descriptors::ConvLengths;

/// The maximum number of bytes that are copied for a block of outputs. A single row of outputs may
/// exceed this maximum. On the host, the maximum is the size of the second-level cache. On a CUDA
/// device, a block of this size occupies the whole device.
const BLOCK_BYTES: usize = 1 << 20;
const CUDA_BLOCK_BYTES: usize = 1 << 26;

/// The limits of small images and of large kernels. If a channel of the result has fewer than
/// `SMALL_AREA` elements, images are small. If a kernel has more than `LARGE_KERNEL` elements, it
/// is large: it exceeds the second-level cache.
const SMALL_AREA: usize = 64;
const LARGE_KERNEL: usize = 1 << 17;
/// The maximum scratch memory of a job on the host, in bytes.
const MOST_SCRATCH_BYTES: usize = 16 << 20;
/// The reach of a result in rows ([`ConvLengths::reach`]) above which the scratch memory is limited
/// to an eighth.
const LONG_REACH: usize = 15;
/// The maximum number of passes that compute the gradient of the images.
const MOST_PASSES: usize = 1 << 10;

/// The arguments of a convolution that error messages name.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvOperands<'a> {
    pub(super) operation: &'static str,
    pub(super) input: &'a Shape,
    pub(super) kernel: &'a Shape,
}

/// A convolution of `[N, C, H, W]` with `[O, C / groups, h, w]`. A convolution along a single axis
/// has a height of 1.
///
/// Invariant: the kernel fits the padded input, and neither a stride nor a dilation is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) operation: &'static str,
    /// The shape of the result, `[N, O, H', W']`.
    pub(super) result: Shape,
    input: [usize; 4],
    kernel: [usize; 4],
    options: ConvOptions,
}

/// The outputs that are computed at once: some rows of one image, or all rows of several images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputBlock {
    pub(super) images: usize,
    pub(super) rows: usize,
}

/// Elements of an axis with zeros between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// The elements that are spread.
    pub(super) taken: Range<usize>,
    /// The position of the first spread element.
    pub(super) first: usize,
    /// The distance between two spread elements.
    pub(super) step: usize,
    /// The length of the axis, including zeros.
    pub(super) length: usize,
}

impl ConvOperands<'_> {
    #[cold]
    #[track_caller]
    fn error(&self, code: impl Into<ErrorCode>, why: &str) -> Error {
        let Self {
            operation,
            input,
            kernel,
        } = self;
        Error::new(
            code,
            format!("{operation}: input {input} and kernel {kernel} do not fit: {why}"),
        )
    }

    /// Returns the lengths of input and kernel, with a height of 1 if they have only three axes.
    #[track_caller]
    fn lengths(&self, rank: usize) -> Result<([usize; 4], [usize; 4])> {
        if self.input.ndim() != rank || self.kernel.ndim() != rank {
            let expected = match rank {
                3 => "[N, C, L] and [O, C / groups, l]",
                _ => "[N, C, H, W] and [O, C / groups, h, w]",
            };
            let why = format!("expected {rank} axes each, {expected}");
            return Err(self.error(ErrorCode::Channels, &why));
        }
        let lengths = |shape: &Shape| match *shape.dims() {
            [a, b, c] => [a, b, 1, c],
            [a, b, c, d] => [a, b, c, d],
            _ => unreachable!("the rank has been checked"),
        };
        Ok((lengths(self.input), lengths(self.kernel)))
    }
}

impl Geometry {
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the input or the kernel does not have `rank`
    /// axes, or the channels do not match. [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// options do not fit the shapes.
    #[track_caller]
    pub(super) fn of(
        operands: &ConvOperands<'_>,
        rank: usize,
        mut options: ConvOptions,
    ) -> Result<Self> {
        let (input, kernel) = operands.lengths(rank)?;
        if rank == 3 {
            (options.stride[0], options.padding[0], options.dilation[0]) = (1, 0, 1);
        }
        let invalid = ErrorKind::InvalidArgument;
        let ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        } = options;
        if stride.contains(&0) || dilation.contains(&0) {
            let why =
                format!("stride {stride:?} or dilation {dilation:?} has a 0, expected at least 1");
            return Err(operands.error(invalid, &why));
        }
        let ([images, channels, ..], [outputs, each, ..]) = (input, kernel);
        if groups == 0 || outputs % groups != 0 {
            let why =
                format!("the {outputs} outputs of the kernel do not divide into {groups} groups");
            return Err(operands.error(invalid, &why));
        }
        if each.checked_mul(groups) != Some(channels) {
            let noun = if groups == 1 { "group" } else { "groups" };
            let why =
                format!("the input has {channels} channels, expected {groups} {noun} of {each}");
            return Err(operands.error(ErrorCode::Channels, &why));
        }
        let mut result = [images, outputs, 0, 0];
        for at in 0..2 {
            let axis = 2 + at;
            // The index of the axis in the operands. If the rank is 3, the operands have no height.
            let named = axis + rank - 4;
            // If the sum saturates, the result is too large, which is an error.
            let length = input[axis].saturating_add(padding[at].saturating_mul(2));
            let extent = (kernel[axis].saturating_sub(1)).saturating_mul(dilation[at]);
            if kernel[axis] == 0 {
                let why = format!("axis {named} of the kernel has length 0, expected at least 1");
                return Err(operands.error(invalid, &why));
            }
            if extent >= length {
                let why = format!(
                    "the kernel spans {} elements along axis {named}, the padded input has {length}",
                    extent.saturating_add(1)
                );
                return Err(operands.error(ErrorCode::Window, &why));
            }
            result[axis] = (length - extent - 1) / stride[at] + 1;
        }
        Ok(Self {
            operation: operands.operation,
            result: result.into(),
            input,
            kernel,
            options,
        })
    }

    /// Returns the shape of the input, of four axes.
    pub(super) fn input(&self) -> Shape {
        self.input.into()
    }

    /// Returns the shape of the kernel, of four axes.
    pub(super) fn kernel(&self) -> Shape {
        self.kernel.into()
    }

    /// Returns the options of the convolution that computes the gradient of the input. The operands
    /// of this convolution are the spread gradient of the result and the flipped kernel.
    pub(super) fn turned(&self) -> ConvOptions {
        let ConvOptions {
            dilation, groups, ..
        } = self.options;
        ConvOptions {
            dilation,
            groups,
            ..ConvOptions::default()
        }
    }

    /// Returns the positions of the result's elements in the spread gradient, along the last two
    /// axes. Output y has the position y × stride + reach − padding. The reach of the kernel is
    /// dilation × (length − 1). Outputs that depend only on padding are left out.
    pub(super) fn spread(&self) -> [Spread; 2] {
        [0, 1].map(|at| {
            let (input, step) = (self.input[2 + at], self.options.stride[at]);
            let padding = self.options.padding[at];
            let reach = (self.kernel[2 + at] - 1) * self.options.dilation[at];
            let first = padding.saturating_sub(reach).div_ceil(step);
            let end = self.result.dims()[2 + at].min((input + padding).div_ceil(step));
            Spread {
                taken: first..end.max(first),
                first: first * step + reach - padding,
                step,
                length: input + reach,
            }
        })
    }

    pub(super) fn images(&self) -> usize {
        self.input[0]
    }

    pub(super) fn flops(&self) -> u64 {
        work_of(&[2, self.inner(), work_of(self.result.dims()) as usize])
    }

    /// Returns the number of rows of an image of the result.
    pub(super) fn rows(&self) -> usize {
        self.result.dims()[2]
    }

    pub(super) fn padding(&self) -> [usize; 2] {
        self.options.padding
    }

    /// Returns the number of products that are summed for each output.
    fn inner(&self) -> usize {
        self.kernel[1..].iter().product()
    }

    /// Returns the kernel's shape as the left factor: a matrix for each group.
    pub(super) fn factor(&self) -> Shape {
        let groups = self.options.groups;
        [groups, self.kernel[0] / groups, self.inner()].into()
    }

    /// Returns whether the kernel has one element, with stride 1 and without padding. The right
    /// factor is then the input itself.
    pub(super) fn is_pointwise(&self) -> bool {
        let ConvOptions {
            stride, padding, ..
        } = self.options;
        self.kernel[2..] == [1, 1] && stride == [1, 1] && padding == [0, 0]
    }

    /// Returns the lengths for the host's convolution loops, if they compute this convolution of
    /// elements of `dtype` on `device`. Three cases are computed by products of matrices instead.
    /// First, the kernel has one element. Second, a large kernel would be read once for each small
    /// image. Third, rows are so long or so far apart that a job would need much scratch memory.
    pub(super) fn on_host(&self, dtype: DType, device: &Device) -> Option<ConvLengths> {
        let ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        } = self.options;
        let area: usize = self.result.dims()[2..].iter().product();
        let kernel_len = self.kernel.iter().product::<usize>();
        let steps = [stride, padding, dilation];
        let fits = matches!(dtype, DType::F32 | DType::F64)
            && device.backend().cuda().is_none()
            && !self.is_pointwise()
            && (area >= SMALL_AREA || kernel_len <= LARGE_KERNEL)
            && ![self.input, self.kernel].as_flattened().contains(&0)
            && steps
                .as_flattened()
                .iter()
                .all(|&step| step < ConvLengths::MOST);
        let &[_, _, rows, columns] = self.result.dims() else {
            unreachable!("the result has four axes");
        };
        let [images, _, height, width] = self.input;
        let [outputs, channels, h, w] = self.kernel;
        let lengths = ConvLengths {
            images,
            groups,
            channels,
            outputs: outputs / groups,
            image: [height, width],
            kernel: [h, w],
            result: [rows, columns],
            stride,
            padding,
            dilation,
        };
        // Each job packs the input rows that its results are summed from.
        let most_bytes = match lengths.reach(0) {
            0..=LONG_REACH => MOST_SCRATCH_BYTES,
            _ => MOST_SCRATCH_BYTES / 8,
        };
        let is_small = |bytes: usize| bytes <= most_bytes;
        let fits = fits
            && lengths.passes().is_some_and(|passes| passes <= MOST_PASSES)
            && lengths
                .scratch_bytes(dtype.size_bytes())
                .is_some_and(is_small);
        fits.then_some(lengths)
    }

    /// Returns the layout of the right factors in the input itself, one for each image and group.
    /// Returns `None` if the factors need a copy. A copy is needed if the convolution is not
    /// pointwise, or the input cannot be reshaped.
    #[track_caller]
    pub(super) fn without_a_copy(&self, input: &Layout) -> Result<Option<Layout>> {
        if !self.is_pointwise() {
            return Ok(None);
        }
        let [images, _, height, width] = self.input;
        let groups = self.options.groups;
        input.reshape(&[images, groups, self.kernel[1], height * width].into())
    }

    /// Returns the block of outputs to compute at once. An element has `element_bytes` bytes.
    pub(super) fn block(&self, element_bytes: usize, is_cuda: bool) -> OutputBlock {
        let most = if is_cuda {
            CUDA_BLOCK_BYTES
        } else {
            BLOCK_BYTES
        };
        let (rows, width) = (self.rows(), self.result.dims()[3]);
        let inner = self.inner().saturating_mul(self.options.groups);
        let row_bytes = inner.saturating_mul(width).saturating_mul(element_bytes);
        let image_bytes = row_bytes.saturating_mul(rows).max(1);
        if image_bytes <= most {
            let images = (most / image_bytes).clamp(1, self.images().max(1));
            return OutputBlock { images, rows };
        }
        let blocks = rows.div_ceil((most / row_bytes).max(1));
        OutputBlock {
            images: 1,
            rows: rows.div_ceil(blocks),
        }
    }

    /// Returns the layout of the padded images' elements that the outputs of `rows` are computed
    /// from. The axes of the layout are `[C, h, w, N, rows, W']`.
    #[track_caller]
    pub(super) fn covered(&self, padded: &Layout, rows: Range<usize>) -> Result<Layout> {
        let [_, _, height, width] = self.kernel;
        let ConvOptions {
            stride, dilation, ..
        } = self.options;
        let windows = padded.windows_apart(&[height, width], &stride, &dilation)?;
        windows.part(2, rows, 1)?.permute(&[1, 4, 5, 0, 2, 3])
    }

    /// Returns the shape of the covered elements as the right factors, one for each group.
    pub(super) fn columns(&self, images: usize, rows: usize) -> Shape {
        let width = self.result.dims()[3];
        [self.options.groups, self.inner(), images * rows * width].into()
    }

    /// Returns the shape of the products, which is `[O, N, rows, W']`.
    pub(super) fn outputs(&self, images: usize, rows: usize) -> Shape {
        let &[_, outputs, _, width] = self.result.dims() else {
            unreachable!("the result has four axes");
        };
        [outputs, images, rows, width].into()
    }
}
