//! What optimizers know beside the parameters, to be kept and brought back.

use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{MapArrays, Optimizer, Parameters, ZipArrays};
use crate::ops::derivatives::zeros_like;

/// What an optimizer knows beside the parameters: for each of its states an array in the place of each parameter. As a structure of
/// arrays it goes into a [file](crate::grad::files), beside that of the parameters.
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
/// // Another run goes on where the first one ended.
/// let (mut y, mut second) = (x.clone(), Adam::new(0.1));
/// second.set_state(&y, &state)?;
/// value_and_step(&mut x, &mut first, |x| x.square().sum())?;
/// value_and_step(&mut y, &mut second, |y| y.square().sum())?;
/// assert_eq!(x.to_vec()?, y.to_vec()?);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct OptimizerState<P> {
    /// How many steps were made, of rank 0.
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
        let arrays = self.arrays.map_arrays(map)?;
        map.leave();
        Ok(Self { steps, arrays })
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        zip.enter(&"steps");
        self.steps.zip_arrays(&other.steps, zip)?;
        zip.leave();
        zip.enter(&"arrays");
        self.arrays.zip_arrays(&other.arrays, zip)?;
        zip.leave();
        Ok(())
    }
}

/// An optimizer whose state can be kept and brought back: all of [this module](super) can.
pub trait Stateful: Optimizer {
    /// How many states it keeps.
    fn states(&self) -> usize;

    /// Whether it keeps the state `which` of a parameter of that shape.
    fn keeps(&self, which: usize, shape: &[usize]) -> bool;

    /// The state `which` of the parameter of that number; zeros before its first step.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where the parameter had another type or shape before.
    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>>;

    /// How many steps it made, where that matters to it.
    fn steps(&self) -> u64;

    /// It made so many steps.
    fn set_steps(&mut self, steps: u64);

    /// Whether each element moves by its own gradients alone, wherever it stands. Only then can one parameter be divided among ranks.
    fn is_elementwise(&self) -> bool;

    /// The state, as handles that share its memory.
    ///
    /// # Errors
    ///
    /// Those of [`state_of`](Self::state_of), and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    fn state<P: Parameters>(&mut self, parameters: &P) -> Result<OptimizerState<P>>
    where
        Self: Sized,
    {
        let mut arrays = Vec::new();
        for which in 0..self.states() {
            let mut reading = Reading {
                optimizer: &mut *self,
                which,
                number: 0,
            };
            arrays.push(parameters.map_arrays(&mut reading)?);
        }
        let steps = Array::full([], self.steps() as f64)?;
        Ok(OptimizerState { steps, arrays })
    }

    /// Goes on from a state of the same parameters.
    ///
    /// # Errors
    ///
    /// Those of [`state_of`](Self::state_of), and [`InvalidArgument`](ErrorKind::InvalidArgument) where another kind of optimizer had it.
    #[track_caller]
    fn set_state<P: Parameters>(&mut self, parameters: &P, state: &OptimizerState<P>) -> Result<()>
    where
        Self: Sized,
    {
        check_count(self.states(), state.arrays.len())?;
        for (which, arrays) in state.arrays.iter().enumerate() {
            let mut own = parameters.map_arrays(&mut Shared)?;
            let mut writing = Writing {
                optimizer: &mut *self,
                which,
                number: 0,
            };
            own.zip_arrays(arrays, &mut writing)?;
        }
        self.set_steps(state.steps.item()? as u64);
        Ok(())
    }
}

/// Refuses states of another optimizer.
#[track_caller]
pub(crate) fn check_count(own: usize, found: usize) -> Result<()> {
    if own == found {
        return Ok(());
    }
    let text = format!("set_state: this optimizer keeps {own} states, and the state has {found}");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

struct Reading<'a, O> {
    optimizer: &'a mut O,
    which: usize,
    number: usize,
}

impl<O: Stateful> MapArrays for Reading<'_, O> {
    fn map<T: Float>(&mut self, parameter: &Array<T>) -> Result<Array<T>> {
        let number = self.number;
        self.number += 1;
        if !self.optimizer.keeps(self.which, parameter.shape()) {
            return zeros_like(parameter);
        }
        let state = self.optimizer.state_of(self.which, number, parameter)?;
        Ok(state.clone())
    }
}

struct Writing<'a, O> {
    optimizer: &'a mut O,
    which: usize,
    number: usize,
}

impl<O: Stateful> ZipArrays for Writing<'_, O> {
    fn zip<T: Float>(&mut self, parameter: &mut Array<T>, state: &Array<T>) -> Result<()> {
        let number = self.number;
        self.number += 1;
        if !self.optimizer.keeps(self.which, parameter.shape()) {
            return Ok(());
        }
        let own = self.optimizer.state_of(self.which, number, parameter)?;
        own.assign(state)
    }
}

/// Handles of the same arrays.
pub(crate) struct Shared;

impl MapArrays for Shared {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        Ok(array.clone())
    }
}
