//! States of optimizers, to save and restore.

use std::panic::Location;

use super::rounded::{ExactMap, ExactZip, exact, rounded};
use super::short_name;
use crate::array::{Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::place::{follow_place, map_erased};
use crate::grad::{MapArrays, Optimizer, ParameterPath, Parameters, ZipArrays};
use crate::ops::derivatives::zeros_like;

/// The state of an optimizer: the number of steps, and for each state one structure of the
/// parameters' type. It can be saved to a [file](crate::grad::files), beside the parameters.
///
/// A state is stored in the [accumulation type](Float::Computed) of its parameter. If the parameter
/// is of `f16` or `bf16`, the array in the structure has the rounded elements of the state. The
/// memory of this array also contains the exact elements, after the rounded elements. A clone also
/// has the exact elements. A write to the array removes them. [`Stateful::set_state`] restores the
/// exact elements. A traversal of an `OptimizerState` visits the exact elements. Therefore a file
/// contains them, in `f32`, under the name of the state. A file whose states are of the parameter's
/// type can still be loaded.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::{Adam, Stateful};
/// use cachescope::grad::value_and_step;
///
/// let mut x = Array::from_slice(&[3.0_f64, -4.0], 2)?;
/// let mut first = Adam::new(0.1);
/// value_and_step(&mut x, &mut first, |x| x.square().sum())?;
/// let state = first.state(&x)?;
///
/// // Another run continues where the first one ended.
/// let (mut y, mut second) = (x.clone(), Adam::new(0.1));
/// second.set_state(&y, &state)?;
/// value_and_step(&mut x, &mut first, |x| x.square().sum())?;
/// value_and_step(&mut y, &mut second, |y| y.square().sum())?;
/// assert_eq!(x.to_vec()?, y.to_vec()?);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct OptimizerState<P> {
    /// The number of steps, an array of rank 0.
    pub steps: Array<f64>,
    /// The states, each in a structure of the parameters' type.
    pub arrays: Vec<P>,
}

impl<P: Parameters> Parameters for OptimizerState<P> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        map.enter(&"steps");
        let steps = self.steps.map_arrays(map)?;
        map.leave();
        map.enter(&"arrays");
        let arrays = self.arrays.map_arrays(&mut ExactMap(map))?;
        map.leave();
        Ok(Self { steps, arrays })
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        zip.enter(&"steps");
        self.steps.zip_arrays(&other.steps, zip)?;
        zip.leave();
        zip.enter(&"arrays");
        self.arrays.zip_arrays(&other.arrays, &mut ExactZip(zip))?;
        zip.leave();
        Ok(())
    }
}

/// Optimizers whose state can be saved and restored: all optimizers of [this module](super).
pub trait Stateful: Optimizer {
    /// Returns the number of states of a parameter.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{Adam, Sgd, Stateful};
    ///
    /// assert_eq!(Sgd::new(0.1).states(), 0);
    /// assert_eq!(Sgd::new(0.1).momentum(0.9).states(), 1);
    /// assert_eq!(Adam::new(0.1).states(), 2);
    /// ```
    fn states(&self) -> usize;

    /// Returns true if a parameter of shape `shape` has the state `which`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{Muon, Stateful};
    ///
    /// let optimizer = Muon::new(0.1);
    /// assert!(optimizer.keeps(0, &[4, 3])); // The momentum of matrices.
    /// assert!(!optimizer.keeps(0, &[4]));
    /// ```
    fn keeps(&self, which: usize, shape: &[usize]) -> bool;

    /// Returns the state `which` of parameter `number`, in the [accumulation type](Float::Computed)
    /// of the parameter. Before the parameter's first step, the state is zeros.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Sgd, Stateful};
    ///
    /// let mut x = Array::<f32>::zeros(2)?;
    /// let mut optimizer = Sgd::new(0.1).momentum(0.9);
    /// optimizer.step(&mut x, &Array::ones(2)?)?;
    /// assert_eq!(optimizer.state_of(0, 0, &x)?.to_vec()?, [1.0, 1.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the parameter had another type or shape
    /// before.
    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T::Computed>>;

    /// Returns the number of steps. The launches of a captured step are not counted: see
    /// [`read_steps`](Self::read_steps).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Adam, Stateful};
    ///
    /// let mut optimizer = Adam::new(0.1);
    /// optimizer.step(&mut Array::<f32>::zeros(2)?, &Array::ones(2)?)?;
    /// assert_eq!(optimizer.steps(), 1);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn steps(&self) -> u64;

    /// Returns the number of steps. If the steps can be captured, reads the number from the device.
    /// Otherwise, returns [`steps`](Self::steps).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Adam, Stateful};
    ///
    /// let mut optimizer = Adam::new(0.1).capturable();
    /// optimizer.step(&mut Array::<f32>::zeros(2)?, &Array::ones(2)?)?;
    /// assert_eq!(optimizer.read_steps()?, 1);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::item`].
    fn read_steps(&mut self) -> Result<u64> {
        Ok(self.steps())
    }

    /// Sets the number of steps.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{Adam, Stateful};
    ///
    /// let mut optimizer = Adam::new(0.1);
    /// optimizer.set_steps(1000);
    /// assert_eq!(optimizer.steps(), 1000);
    /// ```
    fn set_steps(&mut self, steps: u64);

    /// Returns true if each element is updated by its own gradients alone, independent of its
    /// position. Only then can a parameter be divided among ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{Adam, Muon, Stateful};
    ///
    /// assert!(Adam::new(0.1).is_elementwise());
    /// assert!(!Muon::new(0.1).is_elementwise()); // It moves matrices as a whole.
    /// ```
    fn is_elementwise(&self) -> bool;

    /// Returns the state, as handles that share the optimizer's memory. This memory is outside of
    /// every cache. States of parameters in `f16` or `bf16` are copied.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Sgd, Stateful};
    ///
    /// let mut x = Array::<f32>::zeros(2)?;
    /// let mut optimizer = Sgd::new(0.1).momentum(0.9);
    /// optimizer.step(&mut x, &Array::ones(2)?)?;
    /// let state = optimizer.state(&x)?;
    /// assert_eq!((state.steps.item()?, state.arrays[0].to_vec()?), (1.0, vec![1.0, 1.0]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`state_of`](Self::state_of), naming the parameter, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    fn state<P: Parameters>(&mut self, parameters: &P) -> Result<OptimizerState<P>>
    where
        Self: Sized,
    {
        let _call_site = CallSiteOverride::at(Location::caller());
        let read = read(self, parameters);
        read.map_err(|error| error.of(&method::<Self>("state")))
            .at_caller()
    }

    /// Restores a state of parameters with equal types and shapes. A rejected state leaves the
    /// optimizer unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Adam, Sgd, Stateful};
    ///
    /// let mut x = Array::<f32>::zeros(2)?;
    /// let mut first = Adam::new(0.1);
    /// first.step(&mut x, &Array::ones(2)?)?;
    /// let state = first.state(&x)?;
    /// let mut second = Adam::new(0.1);
    /// second.set_state(&x, &state)?;
    /// assert_eq!(second.steps(), 1);
    /// assert!(Sgd::new(0.1).set_state(&x, &state).is_err()); // It has no states.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`state_of`](Self::state_of). [`InvalidArgument`](ErrorKind::InvalidArgument)
    /// if the state does not have the optimizer's [number of states](Self::states), or has a
    /// fractional number of steps. [`InvalidArgument`](ErrorKind::InvalidArgument), naming the
    /// parameter, if an array of the state has another shape than its parameter.
    #[track_caller]
    fn set_state<P: Parameters>(&mut self, parameters: &P, state: &OptimizerState<P>) -> Result<()>
    where
        Self: Sized,
    {
        let _call_site = CallSiteOverride::at(Location::caller());
        let written = write(self, parameters, state);
        written
            .map_err(|error| error.of(&method::<Self>("set_state")))
            .at_caller()
    }
}

fn method<O>(name: &str) -> String {
    format!("{}::{name}", short_name::<O>())
}

fn read<O: Stateful, P: Parameters>(
    optimizer: &mut O,
    parameters: &P,
) -> Result<OptimizerState<P>> {
    let _outside = enter_uncached();
    let mut arrays = Vec::new();
    for which in 0..optimizer.states() {
        arrays.push(parameters.map_arrays(&mut StateReader {
            optimizer: &mut *optimizer,
            which,
            number: 0,
            place: ParameterPath::default(),
        })?);
    }
    let steps = Array::full([], optimizer.read_steps()? as f64)?;
    Ok(OptimizerState { steps, arrays })
}

fn write<O: Stateful, P: Parameters>(
    optimizer: &mut O,
    parameters: &P,
    state: &OptimizerState<P>,
) -> Result<()> {
    // An assignment to an array that shares its memory allocates a copy. The copy must be outside
    // of every cache, too.
    let _outside = enter_uncached();
    check_count(optimizer.states(), state.arrays.len())?;
    let steps = steps_of(&state.steps)?;
    let mut own = map_erased(parameters, Ok)?;
    for is_checked in [false, true] {
        for (which, arrays) in state.arrays.iter().enumerate() {
            let mut writing = StateWriter {
                optimizer: &mut *optimizer,
                which,
                number: 0,
                place: ParameterPath::default(),
                is_checked,
            };
            own.zip_arrays(arrays, &mut writing)?;
        }
    }
    optimizer.set_steps(steps);
    Ok(())
}

/// Returns an error if an optimizer with `own` states gets `found` states.
#[track_caller]
pub(crate) fn check_count(own: usize, found: usize) -> Result<()> {
    if own == found {
        return Ok(());
    }
    let text = format!("{found} states are given, the optimizer has {own}");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// Returns the number of steps of a state. Checks the number, because the state may come from a
/// file.
#[track_caller]
pub(crate) fn steps_of(steps: &Array<f64>) -> Result<u64> {
    /// The largest number up to which `f64` represents all whole numbers.
    const MOST: f64 = (1_u64 << 53) as f64;
    let steps = steps.item()?;
    if (0.0..=MOST).contains(&steps) && steps.fract() == 0.0 {
        return Ok(steps as u64);
    }
    let text = format!("the number of steps is {steps}, expected a whole number from 0 to 2^53");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

struct StateReader<'a, O> {
    optimizer: &'a mut O,
    which: usize,
    number: usize,
    place: ParameterPath,
}

impl<O: Stateful> MapArrays for StateReader<'_, O> {
    fn map<T: Float>(&mut self, parameter: &Array<T>) -> Result<Array<T>> {
        let number = self.number;
        self.number += 1;
        if !self.optimizer.keeps(self.which, parameter.shape()) {
            return zeros_like(parameter);
        }
        let state = self.optimizer.state_of(self.which, number, parameter);
        match state {
            Ok(state) => rounded(state),
            Err(error) => Err(error.of(&format!("`{}`", self.place.name()))),
        }
    }

    follow_place!();
}

/// Traversal that compares states with parameters in a first pass, and writes states in a second
/// pass.
struct StateWriter<'a, O> {
    optimizer: &'a mut O,
    which: usize,
    number: usize,
    place: ParameterPath,
    is_checked: bool,
}

impl<O: Stateful> StateWriter<'_, O> {
    /// Returns an error for a state of another shape than the parameter, because a write would
    /// broadcast the state.
    fn check_shape(&self, found: &[usize], expected: &[usize]) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let (which, name) = (self.which, self.place.name());
        let text = format!(
            "state {which} of `{name}` has shape {found:?}, the parameter has shape {expected:?}"
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }
}

impl<O: Stateful> ZipArrays for StateWriter<'_, O> {
    fn zip<T: Float>(&mut self, parameter: &mut Array<T>, state: &Array<T>) -> Result<()> {
        let number = self.number;
        self.number += 1;
        self.check_shape(state.shape(), parameter.shape())?;
        if !self.optimizer.keeps(self.which, parameter.shape()) {
            return Ok(());
        }
        let own = self.optimizer.state_of(self.which, number, parameter);
        let written = own.and_then(|own| match self.is_checked {
            true => own.assign(&exact(state)?),
            false => Ok(()),
        });
        written.map_err(|error| error.of(&format!("`{}`", self.place.name())))
    }

    follow_place!();
}

/// Implements [`Stateful`] for a wrapper by the states of its `optimizer`.
macro_rules! forward_states {
    ($Own:ident) => {
        /// The states are the states of the wrapped optimizer.
        impl<O: Stateful> Stateful for $Own<O> {
            fn states(&self) -> usize {
                self.optimizer.states()
            }

            fn keeps(&self, which: usize, shape: &[usize]) -> bool {
                self.optimizer.keeps(which, shape)
            }

            #[track_caller]
            fn state_of<T: Float>(
                &mut self,
                which: usize,
                number: usize,
                parameter: &Array<T>,
            ) -> Result<&mut Array<T::Computed>> {
                self.optimizer.state_of(which, number, parameter)
            }

            fn steps(&self) -> u64 {
                self.optimizer.steps()
            }

            #[track_caller]
            fn read_steps(&mut self) -> Result<u64> {
                self.optimizer.read_steps()
            }

            fn set_steps(&mut self, steps: u64) {
                self.optimizer.set_steps(steps);
            }

            fn is_elementwise(&self) -> bool {
                self.optimizer.is_elementwise()
            }
        }
    };
}
pub(super) use forward_states;
