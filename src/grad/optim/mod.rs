//! Optimizers: they move parameters along their gradients.
//!
//! Each is a plain structure with a state for each parameter, in the order of the parameters. The
//! first step allocates the states outside of every cache, so that they may outlive the
//! [scope](crate::cache_scope) of the step. A step of a parameter is one pass, in place.
//! [`value_and_step`](super::value_and_step) makes it inside of the backward pass.
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

mod adam;
mod average;
mod clip;
mod memory;
mod muon;
mod schedule;
mod sgd;
mod state;
mod subject;

use std::fmt::Display;
use std::panic::Location;

pub use adam::{Adam, AdamW};
pub use average::Average;
pub use clip::clip_norm;
pub use muon::Muon;
pub use schedule::{cosine, linear};
pub use sgd::Sgd;
pub use state::{OptimizerState, Stateful};
pub(crate) use state::{Shared, check_count, steps_of};
pub(crate) use subject::short_name;

use super::parameters::{Parameters, ZipArrays};
use super::place::{Place, name_of};
use super::step::Optimizer;
use crate::array::{Array, Float};
use crate::error::{Asking, AtCaller, Result};
use memory::State;
use subject::Subject;

/// An optimizer of this module, which [`step`] checks before it moves a parameter.
trait Checked: Optimizer {
    /// Returns the name of the optimizer in errors.
    fn name(&self) -> &'static str;

    /// Returns an error for a parameter that has states of another type or shape.
    fn check_states<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()>;

    /// Returns the state that records the number of parameters, if the optimizer has any state.
    fn counted(&mut self) -> Option<&mut State>;
}

/// Moves all parameters. If a gradient or a parameter causes an error, none has moved.
#[track_caller]
fn step<P: Parameters>(
    optimizer: &mut impl Checked,
    parameters: &mut P,
    gradients: &P,
) -> Result<()> {
    let _asking = Asking::at(Location::caller());
    let count = check(optimizer, parameters, gradients).at_caller()?;
    optimizer.begin();
    let mut stepping = Stepping {
        optimizer,
        number: 0,
        place: Place::default(),
    };
    let stepped = parameters.zip_arrays(gradients, &mut stepping);
    match (&stepped, stepping.optimizer.counted()) {
        (Ok(()), Some(state)) => state.set_count(count),
        (Ok(()), None) => {}
        (Err(_), _) => optimizer.abandon(),
    }
    stepped.at_caller()
}

struct Stepping<'a, O> {
    optimizer: &'a mut O,
    number: usize,
    place: Place,
}

impl<O: Checked> ZipArrays for Stepping<'_, O> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
        let number = self.number;
        self.number += 1;
        let stepped = self.optimizer.step_one(number, own, gradient);
        stepped.map_err(|error| {
            let (optimizer, name) = (self.optimizer.name(), self.place.name());
            error.of(&format!("{optimizer}::step of `{name}`"))
        })
    }

    fn enter(&mut self, name: &dyn Display) {
        self.place.enter(name);
    }

    fn leave(&mut self) {
        self.place.leave();
    }
}

/// Returns an error for gradients of other shapes than the parameters, and for other parameters
/// than in earlier steps. Otherwise, returns the number of parameters.
fn check<P: Parameters>(
    optimizer: &mut impl Checked,
    parameters: &mut P,
    gradients: &P,
) -> Result<usize> {
    let name = optimizer.name();
    let mut checking = Checking {
        optimizer: &*optimizer,
        number: 0,
        place: Place::default(),
        is_refused: false,
    };
    let zipped = parameters.zip_arrays(gradients, &mut checking);
    let (count, is_refused) = (checking.number, checking.is_refused);
    zipped.map_err(|error| match is_refused {
        true => error,
        // The structures differ.
        false => error.of(&format!("{name}::step")),
    })?;
    if let Some(state) = optimizer.counted() {
        state.check_count(Subject::numbered((name, "step"), count))?;
    }
    Ok(count)
}

/// Compares each parameter with its gradient and its states.
struct Checking<'a, O> {
    optimizer: &'a O,
    number: usize,
    place: Place,
    is_refused: bool,
}

impl<O: Checked> ZipArrays for Checking<'_, O> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
        let subject = Subject::numbered((self.optimizer.name(), "step"), self.number);
        self.number += 1;
        let subject = subject.named(self.place.name());
        let checked = check_gradient(subject, own, gradient)
            .and_then(|()| self.optimizer.check_states(subject, own));
        self.is_refused = checked.is_err();
        checked
    }

    fn enter(&mut self, name: &dyn Display) {
        self.place.enter(name);
    }

    fn leave(&mut self) {
        self.place.leave();
    }
}

/// Returns an error for a gradient of another shape than its parameter: a write would broadcast it.
#[track_caller]
fn check_gradient<T: Float>(
    subject: Subject<'_>,
    own: &Array<T>,
    gradient: &Array<T>,
) -> Result<()> {
    if own.shape() == gradient.shape() {
        return Ok(());
    }
    Err(subject.has_shapes("gradient", gradient.shape(), own.shape()))
}

/// Passes steps on to an optimizer, and records the parameter whose step failed.
pub(super) struct Named<'a, O> {
    optimizer: &'a mut O,
    failed: Option<usize>,
}

impl<'a, O: Optimizer> Named<'a, O> {
    pub(super) fn new(optimizer: &'a mut O) -> Self {
        Self {
            optimizer,
            failed: None,
        }
    }

    /// Adds the name of the parameter whose step failed to the error of a pass, and the caller's
    /// line.
    #[track_caller]
    pub(super) fn name<R, P: Parameters>(&self, outcome: Result<R>, parameters: &P) -> Result<R> {
        let named = outcome.map_err(|error| {
            let name = self.failed.and_then(|number| name_of(parameters, number));
            match name {
                Some(name) => error.of(&format!("value_and_step: `{name}`")),
                None => error,
            }
        });
        named.at_caller()
    }
}

impl<O: Optimizer> Optimizer for Named<'_, O> {
    fn begin(&mut self) {
        self.optimizer.begin();
    }

    fn abandon(&mut self) {
        self.optimizer.abandon();
    }

    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let stepped = self.optimizer.step_one(number, own, gradient);
        if stepped.is_err() {
            self.failed = Some(number);
        }
        stepped
    }
}
