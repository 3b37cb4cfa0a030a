//! A tape that is held open.

use std::marker::PhantomData;
use std::panic::Location;

use super::loss::{Loss, check_value, detects_anomalies};
use super::parameters::{MapArrays, Parameters};
use crate::array::{Array, Float};
use crate::error::{Asking, Error, ErrorKind, Result};
use crate::ops::derivatives::{
    Gradients, TapeGuard, backward, constant, follow, followed, seed, zeros_like,
};

/// What the thread computes from variables, from [`begin`](Self::begin) until the gradients are asked for or it drops: for programs
/// that no one function is made of. [`value_and_grad`](super::value_and_grad) is a tape around a call.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::Tape;
///
/// let mut tape = Tape::begin()?;
/// let x = tape.follow(&Array::from_slice(&[1.0_f64, 2.0, 3.0], 3)?)?;
/// let loss = x.square().sum()?;
/// let (value, gradient) = tape.gradients(loss, x)?;
/// assert_eq!((value.item()?, gradient.to_vec()?), (14.0, vec![2.0, 4.0, 6.0]));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// let tape = cachescope::grad::Tape::begin().unwrap();
/// std::thread::spawn(move || drop(tape));
/// ```
#[must_use = "what is computed from its variables is followed while it lives"]
#[derive(Debug)]
pub struct Tape {
    /// What the tape calls them.
    variables: Vec<u32>,
    _guard: TapeGuard,
    /// Of the thread that began it, whose tape it ends.
    thread: PhantomData<*const ()>,
}

impl Tape {
    /// Begins one on the calling thread.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where the thread has one.
    #[track_caller]
    pub fn begin() -> Result<Self> {
        Ok(Self {
            _guard: TapeGuard::begin()?,
            variables: Vec::new(),
            thread: PhantomData,
        })
    }

    /// The same values as variables: what is computed from them is followed.
    ///
    /// # Errors
    ///
    /// Those of [`Lazy::eval`](crate::Lazy::eval), which copies arrays with gaps.
    #[track_caller]
    pub fn follow<P: Parameters>(&mut self, parameters: &P) -> Result<P> {
        let _asking = Asking::at(Location::caller());
        parameters.map_arrays(&mut Following(&mut self.variables))
    }

    /// The value of `loss`, and its gradient for each of `variables`: in a structure of the same type, zeros where the value does not
    /// depend on it. Ends the tape.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) where the loss is no single value; [`InvalidArgument`](ErrorKind::InvalidArgument)
    /// where an array is no variable of this tape; those of the operations of the backward pass.
    #[track_caller]
    pub fn gradients<P: Parameters, L: Loss>(
        self,
        loss: L,
        variables: P,
    ) -> Result<(Array<L::Item>, P)> {
        let loss = loss.into_value()?;
        check_value(&loss)?;
        let seeds = seed(&loss)?;
        let mut numbers = Numbers {
            of: &self.variables,
            numbers: Vec::new(),
        };
        variables.map_arrays(&mut numbers)?;
        let numbers = numbers.numbers;
        let gradients = backward(seeds, (0, detects_anomalies()), &mut |_| Ok(()))?;
        let _asking = Asking::at(Location::caller());
        let gradients = variables.map_arrays(&mut Taking::new(gradients, numbers))?;
        Ok((constant(&loss), gradients))
    }

    /// Its variables, by what it calls them.
    pub(super) fn variables(&self) -> &[u32] {
        &self.variables
    }
}

/// Makes variables of arrays.
struct Following<'a>(&'a mut Vec<u32>);

impl MapArrays for Following<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let array = if array.layout().is_contiguous() {
            constant(array)
        } else {
            constant(array).lazy().eval()?
        };
        let layout = *array.layout();
        let buffer = follow(array.into_buffer(), layout, T::DTYPE);
        self.0.extend(buffer.node().map(|node| node.index));
        Ok(Array::from_parts(buffer, layout))
    }
}

/// Tells what a tape calls its variables.
struct Numbers<'a> {
    of: &'a [u32],
    numbers: Vec<u32>,
}

impl MapArrays for Numbers<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let number = followed(array.buffer())?;
        let number = number.filter(|number| self.of.contains(number));
        self.numbers.push(number.ok_or_else(no_variable)?);
        Ok(array.clone())
    }
}

#[cold]
fn no_variable() -> Error {
    let text = "gradients: an array that is no variable of this tape: follow gives them";
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Takes the gradients of variables out, zeros where there are none.
pub(super) struct Taking {
    gradients: Gradients,
    numbers: std::vec::IntoIter<u32>,
}

impl Taking {
    pub(super) fn new(gradients: Gradients, numbers: Vec<u32>) -> Self {
        Self {
            gradients,
            numbers: numbers.into_iter(),
        }
    }
}

impl MapArrays for Taking {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let number = self.numbers.next();
        let gradient = match number {
            Some(number) => self.gradients.take_compact(number)?,
            None => None,
        };
        match gradient {
            Some(gradient) => Ok(constant(&gradient.into_array())),
            None => zeros_like(array),
        }
    }
}
