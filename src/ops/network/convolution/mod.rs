//! Convolutions.
//!
//! On the host, direct loops compute convolutions of `f32` and `f64` and their gradients. Other
//! convolutions are products of matrices. The elements for one output are copied to a column of a
//! matrix (`im2col`). The kernel is multiplied by this matrix. At any time, the matrix has only the
//! columns of one block of outputs. So a convolution runs on every device that has products and
//! copies.

mod geometry;
mod gradients;

use std::ops::Range;

use ndarray::s;

use self::geometry::{ConvOperands, Geometry};
use self::gradients::ConvPart;
use crate::array::{AnyArray, Array, Bits, Numeric, Shape, broadcast_shapes};
use crate::error::Result;
use crate::ops::dispatch::same_device;
use crate::ops::host;
use crate::ops::index::check_size;

/// The options of [`Array::conv2d`] and [`Array::conv1d`]: stride, padding, dilation and groups.
///
/// The first entry of each pair is for rows, and the second entry for columns. `conv1d` uses the
/// second entry.
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
    /// The distance from one position of the kernel to the next, in elements of the input. The
    /// default is 1.
    pub stride: [usize; 2],
    /// The number of zeros before and after each axis. The default is 0.
    pub padding: [usize; 2],
    /// The distance from one element of the kernel to the next, in elements of the input. The
    /// default is 1.
    pub dilation: [usize; 2],
    /// The number of groups of channels, each with its own outputs. The default is 1. With a group
    /// for each channel, the convolution is depthwise.
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
    /// Returns the convolution of this array with `kernel`. For each position, it is the sum of
    /// products of the kernel with the elements that the kernel covers. This is PyTorch's `conv2d`,
    /// a cross-correlation, without the bias.
    ///
    /// For an input `[N, C, H, W]` and a kernel `[O, C / groups, h, w]`, the result is `[N, O, H',
    /// W']`. `H'` is `(H + 2 * padding[0] - dilation[0] * (h - 1) - 1) / stride[0] + 1`. `W'` is
    /// `(W + 2 * padding[1] - dilation[1] * (w - 1) - 1) / stride[1] + 1`. Group `g` of the outputs
    /// depends on group `g` of the channels. Sums are computed like in [`matmul`](Self::matmul).
    ///
    /// Besides the result, the host's direct loops for `f32` and `f64` need memory for a copy of
    /// the kernel. Other convolutions need memory for the elements that a block of outputs is
    /// computed from. These elements take at most 1 MiB on the host, and 64 MiB on a CUDA device.
    /// If one row of outputs needs more, the block is one row. This row needs `C * h * w * W'`
    /// elements. The block's outputs and, with padding, the block's images also need memory. If the
    /// input is dense, a kernel of one element with stride 1 and no padding needs none of this
    /// memory.
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
    /// the channels do not match. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the
    /// kernel is empty, or does not fit the padded input.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a stride or dilation is 0, or if
    /// the groups do not divide the outputs. [`InvalidShape`](crate::ErrorKind::InvalidShape) if a
    /// size overflows. [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn conv2d(&self, kernel: &Self, options: ConvOptions) -> Result<Self> {
        conv2d(self.erased(), kernel.erased(), None, options).map(Self::from_erased)
    }

    /// Returns [`conv2d`](Self::conv2d) along one axis, for an input `[N, C, L]` and a kernel `[O,
    /// C / groups, l]`. This is PyTorch's `conv1d`.
    ///
    /// `conv1d` uses the second entry of each pair of options.
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
    /// As for [`conv2d`](Self::conv2d), for operands of three axes.
    #[track_caller]
    pub fn conv1d(&self, kernel: &Self, options: ConvOptions) -> Result<Self> {
        same_device(
            "conv1d",
            ("the input", self.erased()),
            ("the kernel", kernel.erased()),
        )?;
        let operands = ConvOperands {
            operation: "conv1d",
            input: self.layout().shape(),
            kernel: kernel.layout().shape(),
        };
        let geometry = &Geometry::of(&operands, 3, options)?;
        let (input, kernel) = (self.unsqueeze(2)?, kernel.unsqueeze(2)?);
        let operands = [input.erased(), kernel.erased()];
        let result = gradients::sums_for(ConvPart::Result, operands, None, geometry)?;
        result.squeeze(2).map(Self::from_erased)
    }
}

/// See [`Array::conv2d`]. A bias broadcasts to `[O, 1, 1]`. The bias is added to sums of `f16` or
/// `bf16` before the sums are rounded.
#[track_caller]
pub(crate) fn conv2d(
    input: &AnyArray,
    kernel: &AnyArray,
    bias: Option<&AnyArray>,
    options: ConvOptions,
) -> Result<AnyArray> {
    let geometry = &geometry_of(input, kernel, options)?;
    let Some(bias) = bias else {
        return gradients::sums_for(ConvPart::Result, [input, kernel], None, geometry);
    };
    broadcast_shapes("add", &[&geometry.result, bias.shape()])?;
    let bias = bias.broadcast_to(&[kernel.dims()[0], 1, 1].into())?;
    gradients::sums_for(ConvPart::Result, [input, kernel], Some(&bias), geometry)
}

#[track_caller]
fn geometry_of(input: &AnyArray, kernel: &AnyArray, options: ConvOptions) -> Result<Geometry> {
    same_device("conv2d", ("the input", input), ("the kernel", kernel))?;
    let operands = ConvOperands {
        operation: "conv2d",
        input: input.shape(),
        kernel: kernel.shape(),
    };
    Geometry::of(&operands, 4, options)
}

/// Returns the transposed convolution of `x` with a kernel. `x` has the shape `[N, O, H', W']`, and
/// the kernel `[O, C / groups, h, w]`. The result has the shape `[N, C, H, W]`, where `lengths` are
/// `[H, W]`. If `x` is the gradient of the result of [`conv2d`](Array::conv2d), the result is the
/// gradient of the input. A bias of shape `[C, 1, 1]` is added like in [`conv2d`].
#[track_caller]
pub(crate) fn conv_transpose2d(
    x: &AnyArray,
    kernel: &AnyArray,
    bias: Option<&AnyArray>,
    lengths: [usize; 2],
    options: ConvOptions,
) -> Result<AnyArray> {
    let operation = "ConvTranspose2d";
    same_device(operation, ("the input", x), ("the kernel", kernel))?;
    let channels = kernel.dims()[1].saturating_mul(options.groups);
    let images: Shape = [x.dims()[0], channels, lengths[0], lengths[1]].into();
    check_size(operation, &images, x.dtype)?;
    let operands = ConvOperands {
        operation,
        input: &images,
        kernel: kernel.shape(),
    };
    let geometry = &Geometry::of(&operands, 4, options)?;
    let result = geometry.result.dims();
    // If the images are larger than `x` requires, `x` is extended by zeros.
    let margins = [0, 1, 2, 3].map(|axis| (0, result[axis] - x.dims()[axis]));
    let framed;
    let x = match margins == [(0, 0); 4] {
        true => x,
        false => {
            framed = x.framed(operation, &margins, Bits::default())?;
            &framed
        }
    };
    gradients::sums_for(ConvPart::Input, [x, kernel], bias, geometry)
}

/// Returns the convolution of `[N, C, H, W]` with `[O, C / groups, h, w]`. A bias of shape `[O, 1,
/// 1]` may be added, but only to narrow floats.
#[track_caller]
fn multiplied(
    [input, kernel]: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let (device, dtype) = (input.device(), input.dtype);
    check_size(geometry.operation, &geometry.result, dtype)?;
    if let Some(lengths) = &geometry.on_host(dtype, device) {
        return host::convolved(input, kernel, lengths);
    }
    let factor = geometry.factor();
    let &[groups, outputs, _] = factor.dims() else {
        unreachable!("a factor has three axes");
    };
    let factors = &LeftFactors {
        kernel: kernel.reshape(&factor)?,
        bias: match bias {
            Some(bias) => Some(bias.reshape(&[groups, outputs, 1].into())?),
            None => None,
        },
    };
    if let Some(pixels) = geometry.without_a_copy(&input.layout)? {
        return factors
            .times(&input.viewed(pixels))?
            .reshape(&geometry.result);
    }
    let block = geometry.block(dtype.size_bytes(), device.backend().cuda().is_some());
    if block.images == 1 && geometry.images() == 1 && block.rows == geometry.rows() {
        let padded = padded(input, geometry)?;
        let products = products(&padded, factors, geometry, 0..block.rows)?;
        return products.reshape(&geometry.result);
    }
    let mut result = input.zeros(&geometry.result)?;
    for images in ranges(geometry.images(), block.images) {
        let some = input.slice(s![images.clone(), .., .., ..].as_ref())?;
        let padded = padded(&some, geometry)?;
        for rows in ranges(geometry.rows(), block.rows) {
            let products = products(&padded, factors, geometry, rows.clone())?;
            let mut part = result.slice_mut(s![images.clone(), .., rows, ..].as_ref())?;
            part.assign(&products.permute(&[1, 0, 2, 3])?.lazy())?;
        }
    }
    Ok(result)
}

/// The left factors of a convolution's products: a matrix for each group.
struct LeftFactors {
    kernel: AnyArray,
    /// The addends of the products: a column for each group.
    bias: Option<AnyArray>,
}

impl LeftFactors {
    #[track_caller]
    fn times(&self, columns: &AnyArray) -> Result<AnyArray> {
        match &self.bias {
            Some(bias) => self.kernel.matmul_plus(columns, bias),
            None => self.kernel.matmul(columns),
        }
    }
}

fn ranges(length: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(step)
        .map(move |start| start..length.min(start + step))
}

/// Returns the images, each surrounded by zeros.
#[track_caller]
fn padded(images: &AnyArray, geometry: &Geometry) -> Result<AnyArray> {
    let [rows, columns] = geometry.padding();
    if (rows, columns) == (0, 0) {
        return Ok(images.share());
    }
    let margins = [(0, 0), (0, 0), (rows, rows), (columns, columns)];
    images.framed(geometry.operation, &margins, Bits::default())
}

/// Returns the outputs of the rows `rows` of the padded images, of shape `[O, N, rows, W']`.
#[track_caller]
fn products(
    padded: &AnyArray,
    factors: &LeftFactors,
    geometry: &Geometry,
    rows: Range<usize>,
) -> Result<AnyArray> {
    let (images, count) = (padded.dims()[0], rows.len());
    let covered = padded.viewed(geometry.covered(&padded.layout, rows)?);
    let columns = covered.reshape(&geometry.columns(images, count))?;
    factors
        .times(&columns)?
        .reshape(&geometry.outputs(images, count))
}
