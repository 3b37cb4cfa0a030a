//! Convolutions.
//!
//! On the host, convolutions of `f32` and `f64` and their gradients have kernels of their own.
//! Elsewhere they are products of matrices: the elements that each output is the sum of are copied
//! to the columns of a matrix (`im2col`), for a block of the outputs at a time, and the kernel is
//! multiplied with it. So a convolution runs wherever products and copies do.

mod geometry;
mod gradients;

use std::ops::Range;

use ndarray::s;

use self::geometry::{ConvOperands, Geometry};
use self::gradients::ConvPart;
use super::derivatives::RuledOperation;
use super::dispatch::same_device;
use super::host;
use super::index::check_size;
use super::precompiled::precompiled;
use crate::array::{Array, Float, Numeric, Shape};
use crate::error::Result;

/// The steps, margins and groups of a convolution: [`Array::conv2d`] and [`Array::conv1d`].
///
/// The first entry of each pair is for rows, the second for columns. `conv1d` takes the second.
///
/// # Examples
///
/// ```
/// use cachescope::ConvOptions;
///
/// let same = ConvOptions { padding: [1, 1], ..Default::default() }; // keeps the size under a kernel of 3 × 3
/// assert_eq!((same.stride, same.dilation, same.groups), ([1, 1], [1, 1], 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvOptions {
    /// The distance from one position of the kernel to the next, in elements of the input: 1.
    pub stride: [usize; 2],
    /// The zeros before and after each axis: 0.
    pub padding: [usize; 2],
    /// The distance from one element of the kernel to the next, in elements of the input: 1.
    pub dilation: [usize; 2],
    /// The parts of the channels, each with its own outputs: 1. With a group for each channel, the
    /// convolution is depthwise.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> Self {
        Self {
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        }
    }
}

impl<T: Numeric> Array<T> {
    /// Returns the sums of products of `kernel` with the elements of this array that it covers, at
    /// every position: PyTorch's `conv2d`, which is the cross-correlation, without the bias.
    ///
    /// For an input `[N, C, H, W]` and a kernel `[O, C / groups, h, w]`, the result is `[N, O, H',
    /// W']`, where `H'` is `(H + 2 * padding[0] - dilation[0] * (h - 1) - 1) / stride[0] + 1`, and
    /// `W'` is `(W + 2 * padding[1] - dilation[1] * (w - 1) - 1) / stride[1] + 1`. Group `g` of the
    /// outputs depends on group `g` of the channels. Sums are computed as by
    /// [`matmul`](Self::matmul).
    ///
    /// Beside the result, a call on the host needs memory for a copy of the kernel, if the elements
    /// are `f32` or `f64`. Otherwise, it needs memory for a block of the outputs. The elements that
    /// they are the sums of take 1 MiB on the host and 64 MiB on a CUDA device, or one row of
    /// outputs, `C * h * w * W'` elements, if that is more, and no more than there are. The block's
    /// outputs and, with padding, the block's images also need memory. A kernel of one element with
    /// stride 1 and no padding needs none if the input is dense.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, ConvOptions};
    ///
    /// // The difference of each element and the one below it.
    /// let image = Array::from_slice(&[1.0, 2.0, 4.0, 4.0, 9.0, 9.0], [1, 1, 3, 2])?;
    /// let kernel = Array::from_slice(&[-1.0, 1.0], [1, 1, 2, 1])?;
    /// let edges = image.conv2d(&kernel, ConvOptions::default())?;
    /// assert_eq!(edges.shape(), [1, 1, 2, 2]);
    /// assert_eq!(edges.to_vec()?, [3.0, 2.0, 5.0, 5.0]);
    ///
    /// let options = ConvOptions { padding: [1, 0], stride: [2, 1], ..Default::default() };
    /// assert_eq!(image.conv2d(&kernel, options)?.to_vec()?, [1.0, 2.0, 5.0, 5.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if an operand does not have four axes, or
    /// the channels do not match; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the
    /// kernel does not fit the padded input or is empty, a stride or dilation is 0, or the groups
    /// do not divide the outputs; [`InvalidShape`](crate::ErrorKind::InvalidShape) if a size
    /// overflows, [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn conv2d(&self, kernel: &Self, options: ConvOptions) -> Result<Self> {
        same_device("conv2d", ("the input", self), ("the kernel", kernel))?;
        let operands = ConvOperands {
            operation: "conv2d",
            input: self.layout().shape(),
            kernel: kernel.layout().shape(),
        };
        let geometry = &Geometry::of(&operands, 4, options)?;
        let input = self;
        precompiled!(convolved::<T>([input], [kernel]; geometry: &Geometry))
    }

    /// Returns [`conv2d`](Self::conv2d) along one axis: for an input `[N, C, L]` and a kernel `[O,
    /// C / groups, l]`, PyTorch's `conv1d`.
    ///
    /// The second entries of the options' pairs apply.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, ConvOptions};
    ///
    /// let signal = Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [1, 1, 4])?;
    /// let kernel = Array::from_slice(&[1.0, 0.0, -1.0], [1, 1, 3])?;
    /// let options = ConvOptions { padding: [0, 1], ..Default::default() };
    /// assert_eq!(signal.conv1d(&kernel, options)?.to_vec()?, [-2.0, -2.0, -2.0, 3.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`conv2d`](Self::conv2d), for operands that do not have three axes.
    #[track_caller]
    pub fn conv1d(&self, kernel: &Self, options: ConvOptions) -> Result<Self> {
        same_device("conv1d", ("the input", self), ("the kernel", kernel))?;
        let operands = ConvOperands {
            operation: "conv1d",
            input: self.layout().shape(),
            kernel: kernel.layout().shape(),
        };
        let geometry = &Geometry::of(&operands, 3, options)?;
        let (input, kernel) = (&self.unsqueeze(2)?, &kernel.unsqueeze(2)?);
        let result: Result<Array<T>> =
            precompiled!(convolved::<T>([input], [kernel]; geometry: &Geometry));
        result?.squeeze(2)
    }
}

/// Returns the transposed convolution of `x`, of shape `[N, O, H', W']`, with a kernel `[O, C /
/// groups, h, w]`: images `[N, C, H, W]` of these `lengths`. It is the gradient of the input of
/// [`conv2d`](Array::conv2d) for a gradient `x` of the result.
#[track_caller]
pub(crate) fn conv_transpose2d<T: Float>(
    x: &Array<T>,
    kernel: &Array<T>,
    lengths: [usize; 2],
    options: ConvOptions,
) -> Result<Array<T>> {
    let operation = "ConvTranspose2d";
    same_device(operation, ("the input", x), ("the kernel", kernel))?;
    let channels = kernel.shape()[1].saturating_mul(options.groups);
    let images: Shape = [x.shape()[0], channels, lengths[0], lengths[1]].into();
    check_size(operation, &images, T::DTYPE)?;
    let operands = ConvOperands {
        operation,
        input: &images,
        kernel: kernel.layout().shape(),
    };
    let geometry = &Geometry::of(&operands, 4, options)?;
    let result = geometry.result.dims();
    // Images that are longer than the input needs have results of zero behind it.
    let margins = [0, 1, 2, 3].map(|axis| (0, result[axis] - x.shape()[axis]));
    if margins == [(0, 0); 4] {
        return precompiled!(transposed::<T>([x], [kernel]; geometry: &Geometry));
    }
    let x = &x.framed(operation, &margins, T::zero())?;
    precompiled!(transposed::<T>([x], [kernel]; geometry: &Geometry))
}

#[track_caller]
fn transposed<T: Float>(x: &Array<T>, kernel: &Array<T>, geometry: &Geometry) -> Result<Array<T>> {
    gradients::sums_for(ConvPart::Input, [x, kernel], geometry)
}

/// Returns the convolution of `[N, C, H, W]` with `[O, C / groups, h, w]`.
#[track_caller]
fn convolved<T: Numeric>(
    input: &Array<T>,
    kernel: &Array<T>,
    geometry: &Geometry,
) -> Result<Array<T>> {
    let own = *geometry;
    let step = RuledOperation::begin("conv2d", &[input, kernel])?
        .computed_from(geometry.flops(), move |[input, kernel]| {
            multiplied::<T>(input, kernel, &own)
        });
    let wanted = [step.wants(0), step.wants(1)];
    let result = multiplied(input, kernel, geometry)?;
    Ok(step.finish(result, |saved| {
        let operands = [input, kernel].map(|operand| saved.save_releasable(operand));
        gradients::rule(ConvPart::Result, operands, *geometry, wanted)
    }))
}

#[track_caller]
fn multiplied<T: Numeric>(
    input: &Array<T>,
    kernel: &Array<T>,
    geometry: &Geometry,
) -> Result<Array<T>> {
    check_size(geometry.operation, &geometry.result, T::DTYPE)?;
    if let Some(lengths) = &geometry.on_host::<T>(input.device()) {
        return host::convolved(input, kernel, lengths);
    }
    let kernel = &kernel.reshape(geometry.factor())?;
    if let Some(pixels) = geometry.without_a_copy(input.layout())? {
        return kernel
            .matmul(&input.viewed(pixels))?
            .reshape(geometry.result);
    }
    let block = geometry.block(size_of::<T>(), input.device().backend().cuda().is_some());
    if block.images == 1 && geometry.images() == 1 && block.rows == geometry.rows() {
        let padded = padded(input, geometry)?;
        let products = products(&padded, kernel, geometry, 0..block.rows)?;
        return products.reshape(geometry.result);
    }
    let mut result = Array::zeros_on(input.device(), &geometry.result)?;
    for images in ranges(geometry.images(), block.images) {
        let some = input.slice(s![images.clone(), .., .., ..])?;
        let padded = padded(&some, geometry)?;
        for rows in ranges(geometry.rows(), block.rows) {
            let products = products(&padded, kernel, geometry, rows.clone())?;
            let mut part = result.slice_mut(s![images.clone(), .., rows, ..])?;
            part.assign(&products.permute(&[1, 0, 2, 3])?)?;
        }
    }
    Ok(result)
}

fn ranges(length: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(step)
        .map(move |start| start..length.min(start + step))
}

/// Returns the images with zeros around each.
#[track_caller]
fn padded<T: Numeric>(images: &Array<T>, geometry: &Geometry) -> Result<Array<T>> {
    let [rows, columns] = geometry.padding();
    if (rows, columns) == (0, 0) {
        return Ok(images.clone());
    }
    let margins = [(0, 0), (0, 0), (rows, rows), (columns, columns)];
    images.framed(geometry.operation, &margins, T::zero())
}

/// Returns the outputs of the rows `rows`, `[O, N, rows, W']`, of the padded images.
#[track_caller]
fn products<T: Numeric>(
    padded: &Array<T>,
    kernel: &Array<T>,
    geometry: &Geometry,
    rows: Range<usize>,
) -> Result<Array<T>> {
    let (images, count) = (padded.shape()[0], rows.len());
    let covered = padded.viewed(geometry.covered(padded.layout(), rows)?);
    let columns = covered.reshape(geometry.columns(images, count))?;
    kernel
        .matmul(&columns)?
        .reshape(geometry.outputs(images, count))
}
