//! Layers of neural networks: plain structures of parameters, with a function that applies them.
//!
//! Names, shapes and initial values are as in PyTorch's `torch.nn`, so PyTorch's parameter files
//! can be loaded. Elements are `f32` unless a type is given, as in `Linear<f64>`. A layer stores
//! only its parameters, which come from the current scope like any array. So make layers outside of
//! the scope of a step.
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
mod convolution;
mod linear;
mod norms;

pub use attention::Attention;
pub use convolution::Conv2d;
pub use linear::{Embedding, Linear};
pub use norms::{LayerNorm, RmsNorm};

use crate::array::{AnyElement, Array, Float, Shape};
use crate::error::Result;

/// Sets each element of `x` to 0 with the given probability, and divides the others by 1 −
/// probability (Srivastava et al. 2014). Uses the calling thread's generator. Use dropout in
/// training only, not in inference.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::dropout;
///
/// let dropped = dropout(&Array::<f32>::ones(100)?, 0.5)?;
/// assert!(dropped.to_vec()?.iter().all(|&value| value == 0.0 || value == 2.0));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Array::dropout_mask`].
#[track_caller]
pub fn dropout<T: Float>(x: &Array<T>, probability: f64) -> Result<Array<T>> {
    if probability == 0.0 {
        return Ok(x.clone());
    }
    let _device = x.device().enter();
    (x * Array::dropout_mask(probability, *x.layout().shape())?).eval()
}

/// Returns uniform random numbers from −1 / √n to 1 / √n.
#[track_caller]
fn uniform<T: Float>(n: usize, shape: impl Into<Shape>) -> Result<Array<T>> {
    let bound = 1.0 / (n.max(1) as f64).sqrt();
    let of = |value: f64| <T as AnyElement>::from_f64(value);
    (Array::<T>::rand(shape)? * of(2.0 * bound) - of(bound)).eval()
}
