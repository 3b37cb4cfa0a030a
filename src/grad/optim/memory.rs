//! The arrays of an optimizer.
//!
//! The arrays outlive the scope of the step that creates them. Therefore they are allocated outside
//! of every cache: no scope counts them as escaped, and they pin no arena.

use std::any::Any;
use std::fmt;

use super::Subject;
use super::clock::Clock;
use crate::array::{AnyElement, Array, DType, Float};
use crate::context::scope::enter_uncached;
use crate::error::Result;
use crate::ops::derivatives::zeros_on;

/// The states of an optimizer, and the number of its steps.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) steps: u64,
    /// The states. An optimizer with fewer states leaves the last states empty.
    pub(super) states: [ParameterState; 3],
    /// The number of parameters of the last complete step.
    pub(super) count: Option<usize>,
    /// The step count and the learning rate in device memory, for captured steps.
    pub(super) clock: Clock,
}

impl Memory {
    /// Returns an error for a parameter that had another type or shape before.
    #[track_caller]
    pub(super) fn check<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        let mut states = self.states.iter();
        states.try_for_each(|state| state.check(subject, parameter))
    }

    /// Returns an error for a step of more or fewer parameters than the last step.
    #[track_caller]
    pub(super) fn check_count(&self, subject: Subject<'_>) -> Result<()> {
        match self.count {
            Some(count) if count != subject.number => Err(subject.has_count(count)),
            _ => Ok(()),
        }
    }
}

/// One state of an optimizer: an array for each parameter, by the number of the parameter.
#[derive(Default)]
pub(super) struct ParameterState {
    arrays: Vec<Option<Held>>,
}

struct Held {
    /// The type of the parameter.
    dtype: DType,
    /// An [`Array`] of elements of the parameter's [accumulation type](Float::Computed).
    array: Box<dyn Any + Send + Sync>,
}

impl ParameterState {
    /// Returns an error for a parameter that had another type or shape before.
    #[track_caller]
    fn check<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        let Some(held) = self.arrays.get(subject.number).and_then(Option::as_ref) else {
            return Ok(());
        };
        match held.array.downcast_ref::<Array<T::Computed>>() {
            Some(own) if held.dtype == T::DTYPE && own.shape() == parameter.shape() => Ok(()),
            Some(own) if held.dtype == T::DTYPE => {
                Err(subject.has_shapes("state", own.shape(), parameter.shape()))
            }
            _ => Err(subject.has_types("state", held.dtype, T::DTYPE)),
        }
    }

    /// Returns the array of a parameter: zeros before its first step.
    #[track_caller]
    pub(super) fn of<T: Float>(
        &mut self,
        subject: Subject<'_>,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T::Computed>> {
        self.check(subject, parameter)?;
        let length = self.arrays.len().max(subject.number + 1);
        self.arrays.resize_with(length, || None);
        let place = &mut self.arrays[subject.number];
        if place.is_none() {
            let _outside = enter_uncached();
            *place = Some(Held {
                dtype: T::DTYPE,
                array: Box::new(wide_zeros(parameter)?),
            });
        }
        let own = place.as_mut();
        let own = own.and_then(|own| own.array.downcast_mut());
        Ok(own.expect("the type of the state was checked"))
    }

    /// Returns the array of a parameter like [`of`](Self::of). The caller may write to the array,
    /// because no other handle shares its memory.
    #[track_caller]
    pub(super) fn writable<T: Float>(
        &mut self,
        subject: Subject<'_>,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T::Computed>> {
        let own = self.of(subject, parameter)?;
        unshare(own)?;
        Ok(own)
    }
}

impl fmt::Debug for ParameterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State of {} arrays", self.arrays.len())
    }
}

/// Returns zeros of the accumulation type, of the shape and on the device of a parameter.
#[track_caller]
fn wide_zeros<T: Float>(parameter: &Array<T>) -> Result<Array<T::Computed>> {
    let shape = parameter.layout().shape();
    let dtype = <T::Computed as AnyElement>::DTYPE;
    Ok(zeros_on(parameter.device(), shape, dtype)?.into_array())
}

/// Copies an array to memory outside of every cache, if other handles share its memory. Otherwise,
/// a write would copy the array into the cache of the current scope.
#[track_caller]
pub(super) fn unshare<T: Float>(array: &mut Array<T>) -> Result<()> {
    if array.buffer().holders() <= 1 {
        return Ok(());
    }
    let _outside = enter_uncached();
    array.update(Array::clone)
}
