//! Optimizers, which update parameters by their gradients.
//!
//! Each optimizer is a plain structure with a state for each parameter, in the order of the
//! parameters. The first step allocates the states outside of every cache, so that they may outlive
//! the [scope](crate::cache_scope) of the step. A step updates a parameter in one pass, in place.
//! For a small parameter on the host, it may use one pass for each state.
//! [`value_and_step`](super::value_and_step) makes steps inside of the backward pass.
//!
//! The learning rate is the field `rate` of each optimizer. A schedule such as [`Cosine`] sets it
//! before a step.
//!
//! A step reads the parameter, its gradient and its states, computes in the
//! [accumulation type](crate::Float::Computed) and rounds the parameter once. The states are
//! stored in this type: a parameter in `f16` or `bf16` has states in `f32`.
//!
//! ```
//! use cachescope::grad::optim::Adam;
//! use cachescope::grad::value_and_grad;
//! use cachescope::Array;
//!
//! let target = Array::from_slice(&[1.0_f32, -2.0, 3.0], 3)?;
//! let mut x = Array::<f32>::zeros(3)?;
//! let mut optimizer = Adam::new(0.1);
//! for _ in 0..200 {
//!     let (_, gradient) = value_and_grad(&x, |x| (x - &target).square().sum())?;
//!     optimizer.step(&mut x, &gradient)?;
//! }
//! assert!((&x - &target).abs().max()?.item()? < 1e-2);
//! # Ok::<(), cachescope::Error>(())
//! ```

mod accumulated;
mod adam;
mod average;
mod clip;
mod clock;
mod groups;
pub(super) mod interface;
mod lbfgs;
mod lion;
mod loss_scaled;
mod memory;
mod muon;
pub(crate) mod rounded;
mod schedule;
mod settings;
mod sgd;
mod state;
mod subject;
mod wide;
mod wolfe;

use std::panic::Location;

pub use accumulated::Accumulated;
pub use adam::{Adam, AdamW};
pub use average::Average;
pub use clip::{Clipped, clip_norm};
pub use groups::Groups;
pub use interface::Optimizer;
pub use lbfgs::Lbfgs;
pub use lion::Lion;
pub use loss_scaled::LossScaled;
pub use muon::Muon;
pub use schedule::{Cosine, LinearDecay};
pub use sgd::Sgd;
pub use state::{OptimizerState, Stateful};
#[cfg(feature = "collective")]
pub(crate) use state::{check_count, steps_of};
pub(crate) use subject::short_name;

use super::arithmetic::{SameShapes, global_norm};
use super::parameters::{Parameters, ZipArrays};
use super::place::{ParameterPath, follow_place};
use crate::array::{Array, Float};
use crate::error::{AtCaller, CallSiteOverride, Result};
use crate::ops::derivatives::GlobalNorm;
use memory::Memory;
use subject::Subject;

/// The update rule of an optimizer. [`optimizer!`] implements the public traits for a type that has
/// a rule.
trait Rule: Stateful {
    /// The name of the optimizer in errors.
    const NAME: &'static str;

    /// True if the rule is [elementwise](Stateful::is_elementwise).
    const IS_ELEMENTWISE: bool = true;

    /// Returns the [number of states](Stateful::states) of a parameter.
    fn count(&self) -> usize;

    /// Returns true if a parameter of shape `shape` [has](Stateful::keeps) the state `which`.
    fn has(&self, _which: usize, _shape: &[usize]) -> bool {
        true
    }

    fn memory(&mut self) -> &mut Memory;

    #[track_caller]
    fn check(&self) -> Result<()>;

    /// Updates a parameter by a gradient of equal shape, in the parameter's type or its
    /// accumulation type.
    ///
    /// A rule reads the parameter, the gradient and the states, and rounds the parameter once. It
    /// computes in the [accumulation type](Float::Computed), which is also the type of the states.
    /// Settings are converted to the accumulation type.
    #[track_caller]
    fn apply<T: Float, G: Float>(
        &mut self,
        subject: Subject<'_>,
        own: &mut Array<T>,
        gradient: &Array<G>,
    ) -> Result<()>;
}

/// Implements an optimizer by its [`Rule`] and its field `memory`.
macro_rules! optimizer {
    ($Own:ident) => {
        impl $Own {
            /// Updates the parameters by their gradients.
            ///
            /// # Examples
            ///
            /// ```
            /// use cachescope::Array;
            /// use cachescope::grad::value_and_grad;
            #[doc = concat!("use cachescope::grad::optim::", stringify!($Own), ";")]
            ///
            /// let mut x = Array::from_slice(&[3.0_f64, -4.0], 2)?;
            #[doc = concat!("let mut optimizer = ", stringify!($Own), "::new(0.1);")]
            /// for _ in 0..200 {
            ///     let (_, gradient) = value_and_grad(&x, |x| x.square().sum())?;
            ///     optimizer.step(&mut x, &gradient)?;
            /// }
            /// assert!(x.abs().max()?.item()? < 4.0); // nearer to the least sum of squares
            /// # Ok::<(), cachescope::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a setting is outside of
            /// its [domain](crate::grad::Optimizer::check_settings), or if a gradient has another
            /// shape than its parameter.
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the number, types or
            /// shapes of the parameters differ from earlier steps. After these errors, no parameter
            /// has changed. After an error of [`Array::assign`], some parameters may have changed.
            /// An error names the optimizer, and the parameter by its
            /// [name in files](crate::grad::files).
            #[track_caller]
            pub fn step<P: $crate::grad::Parameters>(
                &mut self,
                parameters: &mut P,
                gradients: &P,
            ) -> Result<()> {
                $crate::grad::optim::step(self, parameters, gradients)
            }
        }

        impl $crate::grad::Optimizer for $Own {
            fn begin(&mut self) {
                self.memory.steps = self.memory.steps.saturating_add(1);
                self.memory.clock.begin();
            }

            fn abandon(&mut self) {
                self.memory.steps = self.memory.steps.saturating_sub(1);
                self.memory.clock.abandon();
            }

            #[track_caller]
            fn step_one<T: Float>(
                &mut self,
                number: usize,
                own: &mut Array<T>,
                gradient: &Array<T>,
            ) -> Result<()> {
                let subject = Subject::numbered((Self::NAME, "step_one"), number);
                $crate::grad::optim::step_one(self, subject, (own, gradient))
            }

            #[track_caller]
            fn step_wide<T: Float>(
                &mut self,
                number: usize,
                own: &mut Array<T>,
                gradient: &Array<T::Computed>,
            ) -> Result<()> {
                let subject = Subject::numbered((Self::NAME, "step_wide"), number);
                $crate::grad::optim::step_one(self, subject, (own, gradient))
            }

            #[track_caller]
            fn check_settings(&self) -> Result<()> {
                self.check()
            }
        }

        impl $crate::grad::optim::Stateful for $Own {
            fn states(&self) -> usize {
                self.count()
            }

            fn keeps(&self, which: usize, shape: &[usize]) -> bool {
                self.has(which, shape)
            }

            #[track_caller]
            fn state_of<T: Float>(
                &mut self,
                which: usize,
                number: usize,
                parameter: &Array<T>,
            ) -> Result<&mut Array<T::Computed>> {
                let subject = Subject::numbered((Self::NAME, "state_of"), number);
                if which >= self.count() {
                    return Err(subject.has_no_state(which, self.count()));
                }
                self.memory.states[which].of(subject, parameter)
            }

            fn steps(&self) -> u64 {
                self.memory.steps
            }

            fn set_steps(&mut self, steps: u64) {
                self.memory.steps = steps;
                self.memory.clock.set_steps(steps);
            }

            #[track_caller]
            fn read_steps(&mut self) -> Result<u64> {
                if let Some(steps) = self.memory.clock.read_steps()? {
                    self.memory.steps = steps;
                }
                Ok(self.memory.steps)
            }

            fn is_elementwise(&self) -> bool {
                Self::IS_ELEMENTWISE
            }
        }
    };
}
use optimizer;

/// Updates all parameters. If a gradient or a parameter causes an error, no parameter has changed.
#[track_caller]
fn step<P: Parameters>(optimizer: &mut impl Rule, parameters: &mut P, gradients: &P) -> Result<()> {
    let _call_site = CallSiteOverride::at(Location::caller());
    optimizer.check().at_caller()?;
    let count = check(optimizer, parameters, gradients).at_caller()?;
    step_checked(optimizer, parameters, gradients).at_caller()?;
    optimizer.memory().count = Some(count);
    Ok(())
}

/// Updates all parameters, for an optimizer that is not a [`Rule`].
#[track_caller]
pub(super) fn step_any<P: Parameters>(
    optimizer: &mut impl Optimizer,
    parameters: &mut P,
    gradients: &P,
) -> Result<()> {
    let _call_site = CallSiteOverride::at(Location::caller());
    optimizer.check_settings().at_caller()?;
    let checked = parameters.zip_arrays(gradients, &mut SameShapes::of("step"));
    checked.at_caller()?;
    step_checked(optimizer, parameters, gradients).at_caller()
}

#[track_caller]
fn step_one<T: Float, G: Float>(
    optimizer: &mut impl Rule,
    subject: Subject<'_>,
    (own, gradient): (&mut Array<T>, &Array<G>),
) -> Result<()> {
    optimizer.check()?;
    check_gradient(subject, own.shape(), gradient.shape())?;
    optimizer.apply(subject, own, gradient)
}

fn step_checked<P: Parameters>(
    optimizer: &mut impl Optimizer,
    parameters: &mut P,
    gradients: &P,
) -> Result<()> {
    optimizer.begin();
    let norm = match optimizer.needs_norm() {
        true => global_norm(gradients)
            .and_then(GlobalNorm::into_kept)
            .map(Some),
        false => Ok(None),
    };
    let stepped = norm.and_then(|norm| {
        norm.iter().for_each(|norm| optimizer.set_norm(norm));
        parameters.zip_arrays(gradients, &mut Stepping::of(optimizer))
    });
    if stepped.is_err() {
        optimizer.abandon();
    }
    stepped
}

struct Stepping<'a, O> {
    optimizer: &'a mut O,
    number: usize,
    place: ParameterPath,
}

impl<'a, O> Stepping<'a, O> {
    fn of(optimizer: &'a mut O) -> Self {
        Self {
            optimizer,
            number: 0,
            place: ParameterPath::default(),
        }
    }
}

impl<O: Optimizer> ZipArrays for Stepping<'_, O> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
        let number = self.number;
        self.number += 1;
        let stepped = self.optimizer.step_one(number, own, gradient);
        stepped.map_err(|error| {
            let name = self.place.name();
            error.of(&format!("{}::step of `{name}`", short_name::<O>()))
        })
    }

    follow_place!();
}

/// Returns an error if a gradient and its parameter differ in shape, or if the parameters differ
/// from earlier steps. Otherwise, returns the number of parameters.
fn check<O: Rule, P: Parameters>(
    optimizer: &mut O,
    parameters: &mut P,
    gradients: &P,
) -> Result<usize> {
    let has_states = optimizer.count() > 0;
    let memory = &*optimizer.memory();
    let mut checking = Checking {
        name: O::NAME,
        memory,
        number: 0,
        place: ParameterPath::default(),
        is_refused: false,
    };
    let zipped = parameters.zip_arrays(gradients, &mut checking);
    let (count, is_refused) = (checking.number, checking.is_refused);
    zipped.map_err(|error| match is_refused {
        true => error,
        // The traversal returned the error, because the structures differ.
        false => error.of(&format!("{}::step", O::NAME)),
    })?;
    if has_states {
        memory.check_count(Subject::numbered((O::NAME, "step"), count))?;
    }
    Ok(count)
}

/// Traversal that compares each parameter with its gradient and its states.
struct Checking<'a> {
    name: &'static str,
    memory: &'a Memory,
    number: usize,
    place: ParameterPath,
    is_refused: bool,
}

impl ZipArrays for Checking<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
        let subject = Subject::numbered((self.name, "step"), self.number);
        self.number += 1;
        let subject = subject.named(self.place.name());
        let checked = check_gradient(subject, own.shape(), gradient.shape())
            .and_then(|()| self.memory.check(subject, own));
        self.is_refused = checked.is_err();
        checked
    }

    follow_place!();
}

/// Returns an error for a gradient of another shape than its parameter, because a write would
/// broadcast the gradient.
#[track_caller]
fn check_gradient(subject: Subject<'_>, own: &[usize], gradient: &[usize]) -> Result<()> {
    if own == gradient {
        return Ok(());
    }
    Err(subject.has_shapes("gradient", gradient, own))
}
