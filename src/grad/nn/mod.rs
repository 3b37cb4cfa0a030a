//! Layers of neural networks: plain structures of parameters, with a function that applies them.
//!
//! Names, shapes and initial values are as in PyTorch's `torch.nn`, buffers included. Therefore a
//! `state_dict` that PyTorch saved as `.safetensors` can be [loaded](super::files). Elements are
//! `f32` unless a type is given, as in `Linear<f64>`. A layer stores its parameters, and a
//! [`BatchNorm`] also its running statistics. Parameters are allocated in the current scope, like
//! any array. Make layers outside of the scope of a step.
//!
//! ```
//! use cachescope::grad::nn::{Linear, dropout};
//! use cachescope::grad::optim::AdamW;
//! use cachescope::grad::{Parameters, value_and_grad};
//! use cachescope::{Array, Result, manual_seed};
//!
//! #[derive(Parameters)]
//! struct Network {
//!     hidden: Linear,
//!     out: Linear,
//! }
//!
//! impl Network {
//!     fn forward(&self, x: &Array<f32>) -> Result<Array<f32>> {
//!         let hidden = self.hidden.forward(x)?.relu().eval()?;
//!         self.out.forward(&dropout(&hidden, 0.1)?)
//!     }
//! }
//!
//! manual_seed(1);
//! let mut network = Network { hidden: Linear::new(2, 16)?, out: Linear::new(16, 2)? };
//! let x = Array::from_slice(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], [4, 2])?;
//! let is_odd = Array::from_slice(&[0, 1, 1, 0], 4)?;
//! let mut optimizer = AdamW::new(0.05);
//! for _ in 0..200 {
//!     let (_, gradients) =
//!         value_and_grad(&network, |network| network.forward(&x)?.cross_entropy(&is_odd))?;
//!     optimizer.step(&mut network, &gradients)?;
//! }
//! assert_eq!(network.forward(&x)?.argmax_axis(1)?, is_odd);
//! # Ok::<(), cachescope::Error>(())
//! ```

mod attention;
mod batch_norm;
mod convolution;
mod dropout;
mod linear;
mod norms;
mod pooling;
mod recurrent;
mod rotary;
mod statistics;
mod transposed;
mod upsampling;

pub use attention::Attention;
pub use batch_norm::BatchNorm;
pub use convolution::Conv2d;
pub use dropout::{alpha_dropout, drop_path, dropout, dropout_channels};
pub use linear::{Embedding, Linear};
pub use norms::{GroupNorm, LayerNorm, RmsNorm};
pub use pooling::{PoolOptions, adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool2d, max_pool2d};
pub use recurrent::{Gru, Lstm, LstmState};
pub use rotary::Rotary;
pub use statistics::RunningStatistics;
pub use transposed::ConvTranspose2d;
pub use upsampling::{Upsampling, upsample};

use crate::array::{AnyArray, AnyElement, Array, DType, Float, Shape};
use crate::error::Result;

/// Returns uniform random numbers from −1 / √n to 1 / √n.
#[track_caller]
fn uniform<T: Float>(n: usize, shape: impl Into<Shape>) -> Result<Array<T>> {
    let bound = 1.0 / (n.max(1) as f64).sqrt();
    let of = |value: f64| <T as AnyElement>::from_f64(value);
    (Array::<T>::rand(shape)? * of(2.0 * bound) - of(bound)).eval_unfused()
}

/// Returns whether sums are rounded to `dtype`, so that a bias must be added before the rounding.
fn is_narrow(dtype: DType) -> bool {
    dtype != dtype.computed_in()
}

/// If sums of elements of `dtype` are rounded, returns the bias. The caller must add it before the
/// rounding. Otherwise, returns `None`.
fn addend<T: Float>(dtype: DType, bias: &Array<T>) -> Option<&AnyArray> {
    is_narrow(dtype).then(|| bias.erased())
}

/// Returns `sums` plus a bias. If [`addend`] returned the bias, `sums` contain the bias already.
#[track_caller]
fn with_bias<T: Float>(dtype: DType, sums: AnyArray, bias: &Array<T>) -> Result<Array<T>> {
    let mut sums = Array::from_erased(sums);
    if !is_narrow(dtype) {
        sums.update(|sums| sums + bias)?;
    }
    Ok(sums)
}

/// Returns the product of two matrices plus a bias. If the product is narrow, the bias is added
/// before the rounding.
#[track_caller]
fn product_with_bias<S: Float>(
    left: &AnyArray,
    right: &AnyArray,
    bias: &Array<S>,
) -> Result<Array<S>> {
    if is_narrow(left.dtype) || has_epilogue(left, right, bias.erased()) {
        let sums = left.matmul_plus(right, bias.erased())?;
        return Ok(Array::from_erased(sums));
    }
    let mut sums = Array::from_erased(left.matmul(right)?);
    sums.update(|sums| sums + bias)?;
    Ok(sums)
}

/// Returns whether a CUDA device adds the bias to a product of `f32` while it writes the product.
/// The bias must have an element for each of several columns. The number of rows makes no
/// difference, so that steps of all batch sizes allocate in one order.
fn has_epilogue(left: &AnyArray, right: &AnyArray, bias: &AnyArray) -> bool {
    let device = left.device();
    let is_on_device = device.backend().cuda().is_some() && bias.device() == device;
    let columns = right.dims().last().copied().unwrap_or(1);
    let is_bias = columns > 1 && bias.dims() == [columns];
    left.dtype == DType::F32 && is_on_device && left.dims().len() > 1 && is_bias
}
