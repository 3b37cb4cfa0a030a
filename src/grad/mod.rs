//! Gradients of computations by the operations of this crate.
//!
//! [`value_and_grad`] calls a function of parameters. It returns the value, and the gradient of
//! each parameter in a structure of the parameters' type. Inside of the function, parameters are
//! ordinary arrays. The function may use them in scopes, on streams, and in branches and loops.
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
//! An operation is tracked if it reads a parameter, or a value computed from a parameter. A tracked
//! operation records a step on the thread's tape, and the step passes gradients back. An expression
//! of any length is one step. The gradients of the step are again expressions. One pass evaluates
//! them, and recomputes the values of the forward pass in registers. Therefore only evaluated
//! values are stored, and only if a gradient is computed from them. The backward pass frees stored
//! values as early as possible. Views store nothing. The gradient of a view is added to the viewed
//! part of the array's gradient.
//!
//! Parameters and the value are floats. Intermediate values may be complex. As in PyTorch, the
//! gradient for x + i y is ∂/∂x + i ∂/∂y. For a complex parameter, combine two float parameters by
//! [`complex`](crate::complex()).
//!
//! The arrays that the function returns are plain arrays. They are not tracked, and pin no memory
//! except their own. An array that the function captures is a constant. A loss that no parameter
//! reaches is an error: see [`value_and_grad`].
//!
//! | | |
//! |---|---|
//! | a value with something beside it | [`value_and_grad_aux`] |
//! | each parameter moved as soon as its gradient is complete | [`value_and_step`] |
//! | products of Jacobian and Hessian matrices with vectors | [`jvp`], [`hvp`] |
//! | training in half precision | [`CastParameters`](trait@CastParameters), [`optim::LossScaled`] |
//! | less memory for more time | [`activation_budget`], [`checkpoint`] |
//! | a program that is no one function | [`Tape`] |
//! | sums and products of structures of parameters | [`arithmetic`] |
//! | batches of data, prepared ahead | [`data`] |
//! | what is kept, and where NaN comes from | [`print_saved`], [`detect_anomaly`] |

#[cfg(feature = "linalg")]
mod along;
pub mod arithmetic;
#[cfg(test)]
mod baseline;
mod budget;
mod buffers;
mod cast;
mod checkpoint;
mod containers;
pub mod data;
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

pub use budget::{BudgetGuard, BudgetReport, activation_budget};
pub use buffers::MapBuffers;
/// Implements [`CastParameters`](trait@CastParameters) for a `struct` with one type parameter, the
/// type of its elements.
///
/// # Examples
///
/// ```
/// use cachescope::grad::{CastParameters, Parameters, nn};
/// use cachescope::half::bf16;
/// use cachescope::{Array, Float};
///
/// #[derive(Parameters, CastParameters)]
/// struct Block<T: Float = f32> {
///     norm: nn::LayerNorm, // keeps its type
///     linear: Option<nn::Linear<T>>,
///     scale: Array<T>,
/// }
///
/// let block = Block { norm: nn::LayerNorm::new(4)?, linear: None, scale: Array::<f32>::ones(4)? };
/// let halves: Block<bf16> = block.cast()?;
/// assert_eq!(halves.scale.to_vec()?, [bf16::ONE; 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub use cachescope_macros::CastParameters;
/// Implements [`Parameters`](trait@Parameters) for a `struct` of arrays and of structures of
/// parameters.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::{Parameters, value_and_grad};
///
/// #[derive(Parameters)]
/// struct Line {
///     slope: Array<f32>,
///     offset: Array<f32>,
///     #[parameters(skip)]
///     name: &'static str,
/// }
///
/// let line = Line { slope: Array::full([], 2.0)?, offset: Array::ones([])?, name: "a line" };
/// let (value, gradient) = value_and_grad(&line, |line| Ok(&line.slope * 3.0 + &line.offset))?;
/// assert_eq!(value.item()?, 7.0);
/// assert_eq!((gradient.slope.item()?, gradient.offset.item()?), (3.0, 1.0));
/// assert_eq!(gradient.name, "a line");
/// # Ok::<(), cachescope::Error>(())
/// ```
pub use cachescope_macros::Parameters;
pub use cast::CastParameters;
pub use checkpoint::checkpoint;
pub use loss::{
    AnomalyGuard, Loss, detect_anomaly, print_saved, stop_gradient, value_and_grad,
    value_and_grad_aux,
};
pub use optim::interface::Optimizer;
pub use parameters::{MapArrays, Parameters, ZipArrays};
#[cfg(feature = "collective")]
pub(crate) use place::{Member, handles, map_erased, members};
pub(crate) use place::{ParameterPath, no_elements};
pub use products::{hvp, jvp};
pub use step::value_and_step;
#[cfg(feature = "collective")]
pub(crate) use step::{Order, value_and_step_in_order};
pub use tape::Tape;
