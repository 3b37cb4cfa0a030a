//! L-BFGS, for losses with few parameters that are computed from the whole data set.

use std::collections::VecDeque;
use std::panic::Location;

use super::settings::{RATE, TOLERANCE, check};
use super::wolfe::Search;
use crate::array::{AnyElement, Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Result};
use crate::grad::{Loss, MapArrays, Parameters, ZipArrays, no_elements, value_and_grad};
use crate::ops::concat;
use ndarray::s;

/// The name of the optimizer in errors.
const NAME: &str = "Lbfgs";

/// The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno (Nocedal 1980; Liu and
/// Nocedal 1989). Its line search satisfies the strong Wolfe conditions. Its steps equal the steps
/// of PyTorch's `LBFGS(line_search_fn="strong_wolfe")`.
///
/// A call of [`step`](Self::step) runs several iterations. Each iteration evaluates the loss at
/// least once. The loss must be deterministic. Directions are computed in `f64`, on the device of
/// the first parameter. The history is allocated outside of every cache. The host waits for each
/// loss.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::Lbfgs;
///
/// // Rosenbrock's function, with its minimum at (1, 1).
/// let mut x = vec![Array::full([], -1.2_f64)?, Array::full([], 1.0)?];
/// let mut optimizer = Lbfgs::new(1.0);
/// for _ in 0..3 {
///     optimizer.step(&mut x, |x| {
///         ((1.0 - &x[0]).square() + 100.0 * (&x[1] - x[0].square()).square()).eval()
///     })?;
/// }
/// assert!((x[0].item()? - 1.0).abs() < 1e-4 && (x[1].item()? - 1.0).abs() < 1e-4);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Lbfgs {
    /// The first step length that a line search tries.
    pub rate: f64,
    iterations: usize,
    history: usize,
    /// The tolerance of the gradient. A step ends when no element of the gradient is larger.
    gradient_tolerance: f64,
    /// The tolerance of changes. A step ends when the change of all elements, or of the loss, is
    /// smaller.
    change_tolerance: f64,
    memory: Option<History>,
}

/// The state that an iteration passes to the next iteration.
#[derive(Debug)]
struct History {
    /// Changes of the gradient and of the parameters, and the reciprocal of their product.
    pairs: VecDeque<(Array<f64>, Array<f64>, f64)>,
    /// The factor of the initial approximation of the inverse Hessian.
    scale: f64,
    gradient: Array<f64>,
    direction: Array<f64>,
    t: f64,
}

/// A loss and its gradient.
#[derive(Clone)]
pub(super) struct Point {
    pub(super) loss: f64,
    pub(super) gradient: Array<f64>,
}

/// A function that returns the loss and the gradient at the given elements of all parameters.
pub(super) type Evaluate<'a> = dyn FnMut(&Array<f64>) -> Result<Point> + 'a;

impl Lbfgs {
    /// Makes an optimizer with PyTorch's defaults: 20 iterations a step, and a history of 100
    /// iterations. The tolerances are 10⁻⁷ for gradients and 10⁻⁹ for changes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lbfgs;
    ///
    /// let mut x = Array::<f32>::zeros(3)?;
    /// let loss = Lbfgs::new(1.0).step(&mut x, |x| (x - 2.0).square().sum())?;
    /// assert_eq!(loss, 12.0); // before the step
    /// assert!((x.mean()?.item()? - 2.0).abs() < 1e-6);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            iterations: 20,
            history: 100,
            gradient_tolerance: 1e-7,
            change_tolerance: 1e-9,
            memory: None,
        }
    }

    /// Sets the maximum number of iterations of a step. After a line search, a step also ends if it
    /// has evaluated the loss at least 5/4 times this number.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lbfgs;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// Lbfgs::new(0.25).iterations(1).step(&mut x, |x| (x - 2.0).square().sum())?;
    /// assert!(x.item()? > 0.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// Sets the number of past iterations that the direction is computed from. Each past iteration
    /// needs 16 bytes per element of the parameters.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::Lbfgs;
    ///
    /// let optimizer = Lbfgs::new(1.0).history(10);
    /// assert_eq!(optimizer.rate, 1.0);
    /// ```
    #[must_use]
    pub fn history(self, history: usize) -> Self {
        Self { history, ..self }
    }

    /// Sets the tolerances below which a step ends. `gradient` is for each element of the gradient,
    /// `change` for changes of the loss and of each element.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lbfgs;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// Lbfgs::new(1.0).tolerances(10.0, 1e-9).step(&mut x, |x| (x - 2.0).square().sum())?;
    /// assert_eq!(x.item()?, 0.0); // The gradient is −4, within the tolerance.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn tolerances(self, gradient: f64, change: f64) -> Self {
        Self {
            gradient_tolerance: gradient,
            change_tolerance: change,
            ..self
        }
    }

    /// Changes the parameters so that the value of `function` decreases. Returns the value before
    /// the step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Linear;
    /// use cachescope::grad::optim::Lbfgs;
    ///
    /// let x = Array::from_slice(&[0.0_f32, 1.0, 2.0, 3.0], [4, 1])?;
    /// let y = (&x * 3.0 + 1.0).eval()?;
    /// let mut line = Linear::new(1, 1)?;
    /// Lbfgs::new(1.0).step(&mut line, |line| (line.forward(&x)? - &y).square().mean())?;
    /// assert!((line.weight.item()? - 3.0).abs() < 1e-3);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the rate is not from 0 to 3.4e38,
    /// or if a tolerance is negative or not finite. After this error, no parameter has changed. The
    /// errors of [`value_and_grad`], after which the parameters have the values at which the line
    /// search evaluated the loss last. [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the
    /// number of elements of the parameters differs from earlier steps.
    #[track_caller]
    pub fn step<P: Parameters, L: Loss>(
        &mut self,
        parameters: &mut P,
        mut function: impl FnMut(&P) -> Result<L>,
    ) -> Result<f64> {
        let _call_site = CallSiteOverride::at(Location::caller());
        self.check().at_caller()?;
        let start = flat(parameters).at_caller()?;
        let nothing = no_elements(parameters).at_caller()?;
        // `evaluate` is a function object, so that `minimize` is compiled once.
        let mut evaluate = |x: &Array<f64>| -> Result<Point> {
            parameters.zip_arrays(&nothing, &mut WriteFlat { from: x, at: 0 })?;
            let (loss, gradients) = value_and_grad(parameters, &mut function)?;
            Ok(Point {
                loss: AnyElement::to_f64(loss.item()?),
                gradient: flat(&gradients)?,
            })
        };
        let (loss, end) = self.minimize(start, &mut evaluate).at_caller()?;
        let write = &mut WriteFlat { from: &end, at: 0 };
        parameters.zip_arrays(&nothing, write).at_caller()?;
        Ok(loss)
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let check = |setting, value, domain| check(NAME, setting, value, domain);
        check("`rate`", self.rate, &RATE)?;
        let [gradient, change] = [self.gradient_tolerance, self.change_tolerance];
        check(
            "the gradient tolerance of `tolerances`",
            gradient,
            &TOLERANCE,
        )?;
        check("the change tolerance of `tolerances`", change, &TOLERANCE)
    }

    /// Runs the iterations. Returns the first loss, and the elements of all parameters after the
    /// step.
    #[track_caller]
    fn minimize(
        &mut self,
        mut x: Array<f64>,
        evaluate: &mut Evaluate<'_>,
    ) -> Result<(f64, Array<f64>)> {
        let mut point = evaluate(&x)?;
        let (first, mut evaluations) = (point.loss, 1);
        if largest(&point.gradient)? <= self.gradient_tolerance {
            return Ok((first, x));
        }
        for iteration in 1..=self.iterations {
            let (direction, t) = self.direction(&point.gradient)?;
            let slope = point.gradient.dot(&direction)?.item()?;
            // The step also ends for NaN, because a NaN slope gives no direction.
            if slope.is_nan() || slope > -self.change_tolerance {
                break;
            }
            let mut search = Search {
                direction: &direction,
                from: &x,
                tolerance: self.change_tolerance,
                evaluate: &mut *evaluate,
                evaluations: 0,
            };
            let (t, next) = search.run(&point, slope, t)?;
            evaluations += search.evaluations;
            x.update(|x| x + &direction * t)?;
            let memory = self
                .memory
                .as_mut()
                .expect("the search direction has created the memory");
            memory.t = t;
            let change = (next.loss - point.loss).abs();
            point = next;
            let is_small = |value: f64| value <= self.change_tolerance;
            if iteration == self.iterations
                || evaluations >= self.iterations.saturating_mul(5) / 4
                || largest(&point.gradient)? <= self.gradient_tolerance
                || is_small(largest(&direction)? * t)
                || change < self.change_tolerance
            {
                break;
            }
        }
        Ok((first, x))
    }

    /// Returns the direction at a point with the gradient `gradient`, and the first step length to
    /// try.
    #[track_caller]
    fn direction(&mut self, gradient: &Array<f64>) -> Result<(Array<f64>, f64)> {
        let _outside = enter_uncached();
        let Some(memory) = &mut self.memory else {
            let direction = (-gradient).eval_unfused()?;
            let t = self.rate * gradient.abs().sum()?.item()?.recip().min(1.0);
            self.memory = Some(History {
                pairs: VecDeque::new(),
                scale: 1.0,
                gradient: gradient.lazy().eval_unfused()?,
                direction: direction.clone(),
                t,
            });
            return Ok((direction, t));
        };
        let change = (gradient - &memory.gradient).eval_unfused()?;
        let step = (&memory.direction * memory.t).eval_unfused()?;
        let product = change.dot(&step)?.item()?;
        if product > 1e-10 {
            memory.scale = product / change.dot(&change)?.item()?;
            memory.pairs.push_back((change, step, product.recip()));
            if memory.pairs.len() > self.history {
                memory.pairs.pop_front();
            }
        }
        // The step length is 0 until the search succeeds, so that a failed search contributes no
        // pair.
        memory.t = 0.0;
        memory.direction = memory.two_loops(gradient)?;
        memory.gradient = gradient.lazy().eval_unfused()?;
        Ok((memory.direction.clone(), self.rate))
    }
}

impl History {
    /// Returns the product of the approximated inverse Hessian with the negative gradient
    /// (Nocedal's two-loop recursion).
    #[track_caller]
    fn two_loops(&self, gradient: &Array<f64>) -> Result<Array<f64>> {
        let mut direction = (-gradient).eval_unfused()?;
        let mut factors = Vec::new();
        for (change, step, reciprocal) in self.pairs.iter().rev() {
            let factor = step.dot(&direction)?.item()? * reciprocal;
            direction.update(|direction| direction - change * factor)?;
            factors.push(factor);
        }
        direction.update(|direction| direction * self.scale)?;
        for ((change, step, reciprocal), factor) in self.pairs.iter().zip(factors.iter().rev()) {
            let back = change.dot(&direction)?.item()? * reciprocal;
            direction.update(|direction| direction + step * (factor - back))?;
        }
        Ok(direction)
    }
}

/// Returns the largest magnitude.
#[track_caller]
fn largest(x: &Array<f64>) -> Result<f64> {
    match x.is_empty() {
        true => Ok(0.0),
        false => x.abs().max()?.item(),
    }
}

/// Returns all elements of a structure in one array.
#[track_caller]
fn flat<P: Parameters>(parameters: &P) -> Result<Array<f64>> {
    let mut parts = Flat::default();
    parameters.map_arrays(&mut parts)?;
    match parts.0.first() {
        Some(_) => concat(&parts.0.iter().collect::<Vec<_>>(), 0),
        None => Array::zeros(0),
    }
}

#[derive(Default)]
struct Flat(Vec<Array<f64>>);

impl MapArrays for Flat {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let part = array.cast::<f64>().eval_unfused()?.reshape(array.len())?;
        self.0.push(part);
        Ok(array.clone())
    }
}

/// Traversal that writes the elements of a structure from one array.
struct WriteFlat<'a> {
    from: &'a Array<f64>,
    at: usize,
}

impl ZipArrays for WriteFlat<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, _: &Array<T>) -> Result<()> {
        let end = self.at + own.len();
        let part = self.from.slice(s![self.at..end])?;
        self.at = end;
        let part = part.reshape(*own.layout().shape())?;
        own.assign(part.cast::<T>())
    }
}
