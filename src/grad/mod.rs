//! Gradients of what the operations of this crate compute.
//!
//! [`value_and_grad`] calls a function of parameters and gives its value with the gradient of each parameter, in a structure of
//! the same type. Inside, parameters are arrays as any others: whatever function computes with them works, in scopes, on
//! streams, with branches and loops.
//!
//! ```
//! use cachescope::grad::{Parameters, value_and_grad};
//! use cachescope::{Array, Result};
//!
//! #[derive(Parameters)]
//! struct Line {
//!     slope: Array<f32>,
//!     offset: Array<f32>,
//! }
//!
//! fn loss(line: &Line, x: &Array<f32>, y: &Array<f32>) -> Result<Array<f32>> {
//!     (x * &line.slope + &line.offset - y).square().mean()
//! }
//!
//! let (x, y) = (Array::from_slice(&[0.0, 1.0, 2.0], 3)?, Array::from_slice(&[1.0, 3.0, 5.0], 3)?);
//! let mut line = Line { slope: Array::zeros([])?, offset: Array::zeros([])? };
//! for _ in 0..200 {
//!     let (_, gradient) = value_and_grad(&line, |line| loss(line, &x, &y))?;
//!     line.slope.update(|slope| slope - 0.2 * &gradient.slope)?;
//!     line.offset.update(|offset| offset - 0.2 * &gradient.offset)?;
//! }
//! assert!(loss(&line, &x, &y)?.item()? < 1e-6);
//! # Ok::<(), cachescope::Error>(())
//! ```
//!
//! An operation that reads a parameter, or what was computed from one, is followed: a step on the thread's tape says how gradients
//! pass back through it. An expression is one step, however long: its gradients are again expressions, evaluated in one
//! pass, in which the values of the forward pass are computed again in registers. So only what is evaluated stands in memory, and
//! of that only what a gradient is computed from; it is freed as the backward pass comes by. Views cost nothing: what is
//! read through one adds to that part of the gradient.
//!
//! Parameters and the value are floats; complex numbers may stand between them. The gradient of x + i y is ∂/∂x + i ∂/∂y, as
//! PyTorch's. A complex parameter is two of floats, made one by [`complex`](crate::complex()).
//!
//! What leaves the function are plain arrays. Nothing follows them any more, and they keep nothing but their own memory.
//!
//! | | |
//! |---|---|
//! | a value with something beside it | [`value_and_grad_aux`] |
//! | each parameter moved as soon as its gradient is complete | [`value_and_step`] |
//! | products of Jacobian and Hessian matrices with vectors | [`jvp`], [`hvp`] |
//! | less memory for more time | [`checkpoint`] |
//! | a program that is no one function | [`Tape`] |
//! | what is kept, and where NaN comes from | [`print_saved`], [`detect_anomaly`] |

mod checkpoint;
#[cfg(any(feature = "npy", feature = "safetensors"))]
pub mod files;
mod loss;
pub mod nn;
pub mod optim;
mod parameters;
mod place;
mod products;
mod step;
mod tape;

pub use cachescope_macros::Parameters;
pub use checkpoint::checkpoint;
pub use loss::{
    AnomalyGuard, Loss, detect_anomaly, print_saved, stop_gradient, value_and_grad,
    value_and_grad_aux,
};
pub use parameters::{MapArrays, Parameters, ZipArrays};
pub(crate) use place::Place;
pub use products::{hvp, jvp};
pub(crate) use step::{Nothing, Order, value_and_step_in_order};
pub use step::{Optimizer, value_and_step};
pub use tape::Tape;
