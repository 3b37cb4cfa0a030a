//! Transposed convolutions.

use super::convolution::check_groups;
use super::{addend, uniform, with_bias};
use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::{ConvOptions, conv_transpose2d};

/// A transposed convolution. Each element of the input adds its product with the kernel to the
/// result. The products of neighbours are one stride apart. The layer is the gradient of
/// [`Conv2d`](super::Conv2d) with respect to its input, and enlarges images by the stride.
///
/// The layer is computed as a convolution with the flipped kernel. Before this convolution, zeros
/// are inserted between the input's elements.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct ConvTranspose2d<T: Float = f32> {
    /// The kernel, of shape `[inputs, outputs / groups, height, width]`.
    pub weight: Array<T>,
    /// The bias, of shape `[outputs]`.
    pub bias: Option<Array<T>>,
    /// Strides, padding, dilation and groups. The padding is cut from the edges of the result.
    #[parameters(skip)]
    pub options: ConvOptions,
    /// Additional rows and columns at the end of the result, fewer than the stride or the dilation
    /// (default: 0). A strided convolution has one result size for several input sizes. This field
    /// selects which of these input sizes the transposed convolution returns.
    #[parameters(skip)]
    pub output_padding: [usize; 2],
}

impl<T: Float> ConvTranspose2d<T> {
    /// Makes a layer with uniform random parameters from −1 / √n to 1 / √n. As in PyTorch, n is
    /// `outputs / groups * height * width`. Uses the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::ConvOptions;
    /// use cachescope::grad::nn::ConvTranspose2d;
    ///
    /// let layer = ConvTranspose2d::<f32>::new((4, 8), [2, 2], ConvOptions::default())?;
    /// assert_eq!(layer.weight.shape(), [4, 8, 2, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// number of groups does not divide the numbers of inputs and outputs.
    #[track_caller]
    pub fn new(
        (inputs, outputs): (usize, usize),
        size: [usize; 2],
        options: ConvOptions,
    ) -> Result<Self> {
        check_groups("ConvTranspose2d", (inputs, outputs), options.groups)?;
        let each = outputs / options.groups;
        let count = each.saturating_mul(size[0]).saturating_mul(size[1]);
        Ok(Self {
            weight: uniform(count, [inputs, each, size[0], size[1]])?,
            bias: Some(uniform(count, outputs)?),
            options,
            output_padding: [0, 0],
        })
    }

    /// Applies the layer to images of shape `[count, inputs, height, width]`. An axis of the result
    /// has the length `(length - 1) * stride - 2 * padding + dilation * (size - 1) +
    /// output_padding + 1`. In `f16` and `bf16`, the bias is added before the sums are rounded.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::ConvTranspose2d;
    /// use cachescope::{Array, ConvOptions};
    ///
    /// let layer = ConvTranspose2d {
    ///     weight: Array::from_slice(&[1.0_f32, 2.0], [1, 1, 1, 2])?,
    ///     bias: None,
    ///     options: ConvOptions { stride: [1, 2], ..ConvOptions::default() },
    ///     output_padding: [0, 0],
    /// };
    /// let x = Array::from_slice(&[3.0, 5.0], [1, 1, 1, 2])?;
    /// assert_eq!(layer.forward(&x)?.to_vec()?, [3.0, 6.0, 5.0, 10.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the shapes or options do not fit or the
    /// result would be empty; the errors of [`Array::conv2d`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let lengths = self.lengths(x)?;
        let (x, weight) = (x.erased(), self.weight.erased());
        let Some(bias) = &self.bias else {
            let sums = conv_transpose2d(x, weight, None, lengths, self.options)?;
            return Ok(Array::from_erased(sums));
        };
        let outputs = self.weight.shape()[1].saturating_mul(self.options.groups);
        check_bias(bias, outputs)?;
        let bias = bias.unsqueeze(1)?.unsqueeze(2)?;
        let addend = addend(T::DTYPE, &bias);
        let sums = conv_transpose2d(x, weight, addend, lengths, self.options)?;
        with_bias(T::DTYPE, sums, &bias)
    }

    /// Returns the numbers of rows and columns of the result.
    #[track_caller]
    fn lengths(&self, x: &Array<T>) -> Result<[usize; 2]> {
        let ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        } = self.options;
        let shapes = [x, &self.weight].map(|own| *own.layout().shape());
        let fits = match (x.shape(), self.weight.shape()) {
            ([_, inputs, height, width], [own, _, h, w]) => {
                inputs == own
                    && groups > 0
                    && own.is_multiple_of(groups)
                    && ![height, width, h, w].contains(&&0)
            }
            _ => false,
        };
        if !fits {
            let [x, weight] = shapes;
            return Err(invalid(format!(
                "x has the shape {x}, expected [count, inputs, height, width] for a weight of shape {weight} in {groups} groups"
            )));
        }
        if stride.contains(&0) || dilation.contains(&0) {
            return Err(invalid("a stride or a dilation is 0".into()));
        }
        let of = |at: usize| -> Option<usize> {
            let reach = dilation[at].checked_mul(self.weight.shape()[2 + at] - 1)?;
            let spread = (x.shape()[2 + at] - 1)
                .checked_mul(stride[at])?
                .checked_add(1)?;
            let length = spread.checked_add(self.output_padding[at])?;
            let result = length.checked_add(reach)?;
            let cut = padding[at].checked_mul(2)?;
            (result > cut).then(|| result - cut)
        };
        let is_ambiguous = (0..2).any(|at| {
            let most = stride[at].max(dilation[at]);
            self.output_padding[at] > 0 && self.output_padding[at] >= most
        });
        match (of(0), of(1)) {
            (Some(rows), Some(columns)) if !is_ambiguous => Ok([rows, columns]),
            _ => Err(invalid(format!(
                "a padding of {padding:?} and an output padding of {:?} do not fit the shapes {} and {}",
                self.output_padding, shapes[0], shapes[1]
            ))),
        }
    }
}

#[cold]
#[track_caller]
fn invalid(why: String) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("ConvTranspose2d: {why}"),
    )
}

#[track_caller]
fn check_bias<T: Float>(bias: &Array<T>, outputs: usize) -> Result<()> {
    if bias.shape() == [outputs] {
        return Ok(());
    }
    let shape = bias.layout().shape();
    let text = format!("ConvTranspose2d: the bias has the shape {shape}, expected [{outputs}]");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
