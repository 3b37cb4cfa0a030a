//! Tapes that a program opens and closes itself.
//!
//! A variable is a plain array. The handle of its memory contains the variable's number, and the
//! thread owns the tape. Therefore an array that leaves the function does not keep a tape alive.
//! Every function of arrays can be differentiated unchanged. An operation without a gradient
//! rejects tracked operands, so that no value silently becomes a constant.

use std::marker::PhantomData;
use std::panic::Location;

use super::loss::{Loss, check_value, has_anomaly_guard, unreached};
use super::parameters::{MapArrays, Parameters};
use super::place::map_erased;
use crate::array::{AnyArray, Array, Float, Shape};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::ops::derivatives::{
    BY_HAND, FirstRun, Gradients, NEVER, Seeds, TapeGuard, Tracked, backward, constant,
    detect_anomalies, first_reader, has_constants, has_tape, identity, is_paused, length, seed,
    track, tracked, tracked_backward, with_value, zeros_like,
};
use crate::ops::order::warn;
use crate::sync::OfThisThread;

/// A record of the operations that compute values from variables on this thread. It lasts from
/// [`begin`](Self::begin) to [`gradients`](Self::gradients) or the drop. If the computation of a
/// program is not one function, use a tape. [`value_and_grad`](super::value_and_grad) is a tape
/// around a call.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::Tape;
///
/// let mut tape = Tape::begin()?;
/// let x = tape.track(&Array::from_slice(&[1.0_f64, 2.0, 3.0], 3)?)?;
/// let loss = x.square().sum()?;
/// let (value, gradient) = tape.gradients(loss, x)?;
/// assert_eq!((value.item()?, gradient.to_vec()?), (14.0, vec![2.0, 4.0, 6.0]));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// A tape is not `Send`:
///
/// ```compile_fail,E0277
/// let tape = cachescope::grad::Tape::begin().unwrap();
/// std::thread::spawn(move || drop(tape));
/// ```
#[must_use = "operations on the variables are tracked only until the tape drops"]
#[derive(Debug)]
pub struct Tape {
    /// The public function that computes the gradients, as error messages name it.
    function: &'static str,
    /// The numbers of the tape's variables.
    pub(super) variables: Vec<u32>,
    /// The first step of this tape. Earlier steps belong to outer tapes.
    pub(super) first_step: usize,
    /// True if the tape of an outer function tracks the gradients.
    is_nested: bool,
    _first_run: Option<FirstRun>,
    /// The guard of the thread's tape, or `None` for a part of an outer function's tape.
    _guard: Option<TapeGuard>,
    /// Marker that makes the tape `!Send`.
    thread: OfThisThread,
}

impl Tape {
    /// Begins a tape on the calling thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Tape;
    ///
    /// let tape = Tape::begin()?;
    /// assert!(Tape::begin().is_err()); // A thread has one tape at a time.
    /// drop(tape);
    /// assert!(Tape::begin().is_ok());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the thread already has a tape, with the line that
    /// began it. The existing tape may be an open tape, or belong to a function like
    /// [`value_and_grad`](super::value_and_grad).
    #[track_caller]
    pub fn begin() -> Result<Self> {
        Ok(Self {
            function: "gradients",
            ..Self::begin_for(BY_HAND)?
        })
    }

    /// Begins a tape for the public function `function`.
    #[track_caller]
    pub(super) fn begin_for(function: &'static str) -> Result<Self> {
        let guard = TapeGuard::begin(function)?;
        if has_anomaly_guard() {
            detect_anomalies();
        }
        Ok(Self {
            _guard: Some(guard),
            ..Self::on_outer(function)
        })
    }

    /// Begins a tape like [`begin_for`](Self::begin_for). If the thread already has a tape, begins
    /// a part of this outer tape. The outer tape then tracks the gradients.
    ///
    /// A checkpoint calls its function for the first time in the forward pass, and again in the
    /// backward pass. In the first call, the nested tape ends with the call, and no tape tracks its
    /// gradients.
    #[track_caller]
    pub(super) fn begin_nested(function: &'static str) -> Result<Self> {
        // An optimizer's step has no derivative.
        if !has_tape() || is_paused() {
            return Self::begin_for(function);
        }
        let first_run = FirstRun::begin();
        Ok(Self {
            is_nested: first_run.is_none(),
            _first_run: first_run,
            ..Self::on_outer(function)
        })
    }

    fn on_outer(function: &'static str) -> Self {
        Self {
            function,
            variables: Vec::new(),
            first_step: length(),
            is_nested: false,
            _first_run: None,
            _guard: None,
            thread: PhantomData,
        }
    }

    /// Passes gradients back down to the step `from`. If the tape is nested, the outer tape tracks
    /// the gradients.
    #[track_caller]
    pub(super) fn backward(&self, seeds: Seeds, from: usize) -> Result<Gradients> {
        match self.is_nested {
            true => tracked_backward(seeds, from),
            false => backward(seeds, from),
        }
    }

    /// Returns a result, which only an outer tape tracks.
    pub(super) fn result<T: Float>(&self, array: &Array<T>) -> Array<T> {
        match self.is_nested {
            true => array.clone(),
            false => constant(array),
        }
    }

    /// Returns the gradients of variables, in the order of their numbers.
    pub(super) fn take(&self, gradients: Gradients, numbers: Vec<u32>) -> TakeGradients {
        TakeGradients {
            gradients,
            numbers: numbers.into_iter(),
            is_nested: self.is_nested,
        }
    }

    /// Returns variables with the values of `parameters`. The tape tracks the values that are
    /// computed from the variables.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Tape;
    ///
    /// let mut tape = Tape::begin()?;
    /// let (x, y) = tape.track(&(Array::full([], 2.0_f64)?, Array::full([], 3.0_f64)?))?;
    /// let (_, gradients) = tape.gradients(&x * &y, (x, y))?;
    /// assert_eq!((gradients.0.item()?, gradients.1.item()?), (3.0, 2.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Lazy::eval`](crate::Lazy::eval), which copies arrays with gaps.
    #[track_caller]
    pub fn track<P: Parameters>(&mut self, parameters: &P) -> Result<P> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let mut track = TrackParameters {
            variables: &mut self.variables,
            has_outer: self._guard.is_none(),
        };
        let variables = parameters.map_arrays(&mut track);
        let variables = variables.at_caller()?;
        if self._guard.is_none() {
            // Gradients stop at the variables, because the outer tape passes the gradients further
            // back.
            self.first_step = length();
        }
        Ok(variables)
    }

    /// Returns the value of `loss`, and its gradient for each of `variables`. The gradients are in
    /// a structure of the type of `variables`. Ends the tape.
    ///
    /// If only some variables of the tape reach the loss, the gradients of the other variables are
    /// zeros. [`value_and_grad`](super::value_and_grad) lists the computations that no gradient
    /// passes through.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Tape;
    ///
    /// let mut tape = Tape::begin()?;
    /// let x = tape.track(&Array::from_slice(&[1.0_f64, 2.0], 2)?)?;
    /// let (value, gradient) = tape.gradients((&x * 3.0).sum()?, x)?;
    /// assert_eq!((value.item()?, gradient.to_vec()?), (9.0, vec![3.0, 3.0]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the loss is not a single value.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if no variable of this tape reaches the
    /// loss. [`InvalidArgument`](ErrorKind::InvalidArgument) if an array of `variables` is not a
    /// variable of this tape. For example, a view of a variable is not a variable.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a variable is named twice. The errors of
    /// the operations of the backward pass.
    #[track_caller]
    pub fn gradients<P: Parameters, L: Loss>(
        self,
        loss: L,
        variables: P,
    ) -> Result<(Array<L::Item>, P)> {
        let numbers = |tape: &Self| {
            let mut numbers = Vec::new();
            map_erased(&variables, |array| {
                let number = tracked(&array.buffer)?;
                let number = number.filter(|number| tape.variables.contains(number));
                let number = number.ok_or_else(no_variable)?;
                let own = &array.layout;
                with_value(number, |value| match value.layout == *own {
                    true => Ok(()),
                    false => Err(a_view([own.shape(), value.layout.shape()])),
                })?;
                if numbers.contains(&number) {
                    return Err(twice(own.shape()));
                }
                numbers.push(number);
                Ok(array)
            })?;
            Ok(numbers)
        };
        self.pass_back(loss, &variables, numbers)
    }

    /// Computes [`gradients`](Self::gradients) for all variables of the tape. `variables` are the
    /// result of [`track`](Self::track).
    #[track_caller]
    pub(super) fn all_gradients<P: Parameters, L: Loss>(
        self,
        loss: L,
        variables: &P,
    ) -> Result<(Array<L::Item>, P)> {
        self.pass_back(loss, variables, |tape| Ok(tape.variables.clone()))
    }

    /// Computes [`gradients`](Self::gradients) for the variables whose numbers `numbers` returns.
    #[track_caller]
    fn pass_back<P: Parameters, L: Loss>(
        self,
        loss: L,
        variables: &P,
        numbers: impl FnOnce(&Self) -> Result<Vec<u32>>,
    ) -> Result<(Array<L::Item>, P)> {
        let loss = loss.into_value()?;
        self.check_loss(&loss)?;
        let seeds = seed(&loss, 1.0)?;
        let numbers = numbers(&self).at_caller()?;
        let gradients = self.backward(seeds, self.first_step)?;
        let is_reached = |variable: &u32| gradients.has(*variable);
        self.check_gradients(has_constants() || self.variables.iter().any(is_reached))?;
        if cfg!(debug_assertions) && !has_constants() {
            self.warn_of_unread(&gradients);
        }
        let _call_site = CallSiteOverride::at(Location::caller());
        let gradients = variables.map_arrays(&mut self.take(gradients, numbers));
        Ok((self.result(&loss), gradients.at_caller()?))
    }

    /// If only some variables reach the loss, prints a warning. Without the warning, training would
    /// silently leave the other variables unchanged.
    #[track_caller]
    fn warn_of_unread(&self, gradients: &Gradients) {
        let unread =
            |variable: &&u32| !gradients.has(**variable) && first_reader(**variable) == NEVER;
        let count = self.variables.iter().filter(unread).count();
        if count > 0 {
            let (name, all) = (self.function, self.variables.len());
            warn::once(
                Location::caller(),
                format_args!(
                    "{name}: the loss reads {} of {all} parameters; the gradients of the others are zeros",
                    all - count
                ),
            );
        }
    }

    /// Returns an error if the loss is not a single value, or if no variable reaches the loss.
    #[track_caller]
    pub(super) fn check_loss<T: Float>(&self, loss: &Array<T>) -> Result<()> {
        check_value(self.function, loss)?;
        self.check_reached(loss)
    }

    /// Returns an error if no variable reaches the loss. If the program read a variable and made a
    /// constant, for example by `stop_gradient`, the loss may be constant on purpose. In this case,
    /// returns no error.
    #[track_caller]
    pub(super) fn check_reached<T: Float>(&self, loss: &Array<T>) -> Result<()> {
        if tracked(loss.buffer())?.is_some() {
            return Ok(());
        }
        let is_read = |variable: &u32| first_reader(*variable) != NEVER;
        self.check_gradients(has_constants() && self.variables.iter().any(is_read))
    }

    /// Returns the error of a loss that no variable reaches, unless `is_right` is true or the tape
    /// has no variable.
    #[track_caller]
    pub(super) fn check_gradients(&self, is_right: bool) -> Result<()> {
        if is_right || self.variables.is_empty() {
            return Ok(());
        }
        Err(unreached(self.function))
    }
}

/// A traversal that makes variables from arrays. If an outer tape tracks an array, the outer tape
/// receives the gradient of the variable.
struct TrackParameters<'a> {
    variables: &'a mut Vec<u32>,
    /// True if the tape is a part of an outer tape.
    has_outer: bool,
}

impl MapArrays for TrackParameters<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let array = match (array.layout().is_contiguous(), self.has_outer) {
            (true, _) => array,
            (false, true) => &array.lazy().eval_unfused()?,
            (false, false) => &constant(array).lazy().eval_unfused()?,
        };
        let layout = array.layout();
        let outer = match self.has_outer {
            true => Tracked::of(array.buffer(), layout)?,
            false => None,
        };
        let buffer = match outer {
            Some(outer) => identity(AnyArray::of(array), outer),
            None => track(array.buffer().share().with_value_id(None), layout, T::DTYPE),
        };
        let value_id = buffer.value_id();
        self.variables
            .extend(value_id.map(|value_id| value_id.index));
        Ok(Array::from_parts(buffer, *layout))
    }
}

#[cold]
fn no_variable() -> Error {
    let text =
        "gradients: an array is not a variable of this tape: pass the arrays that `track` returned";
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cold]
fn a_view([own, whole]: [&Shape; 2]) -> Error {
    let text = format!(
        "gradients: the array is a view of shape {own} of a variable of shape {whole}: pass the \
         variable, and take the view of its gradient"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cold]
fn twice(shape: &Shape) -> Error {
    let text = format!(
        "gradients: a variable of shape {shape} is passed twice: pass it once, and clone its \
         gradient"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}

/// A traversal that takes the gradients of variables, or zeros for a variable without a gradient.
pub(super) struct TakeGradients {
    gradients: Gradients,
    numbers: std::vec::IntoIter<u32>,
    is_nested: bool,
}

impl MapArrays for TakeGradients {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let number = self.numbers.next();
        let gradient = match number {
            Some(number) if self.is_nested => self.gradients.take(number)?,
            Some(number) => self.gradients.take_compact(number)?,
            None => None,
        };
        match gradient {
            Some(gradient) if self.is_nested => Ok(gradient.into_array()),
            Some(gradient) => Ok(gradient.untracked().into_array()),
            None => zeros_like(array),
        }
    }
}
