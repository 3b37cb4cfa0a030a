//! Muon: momentum whose matrices are made orthogonal.

use super::memory::State;
use super::{AdamW, Checked, Stateful, Subject, check_gradient, step};
use crate::array::{AnyElement, Array, Float};
use crate::error::Result;
use crate::grad::{Optimizer, Parameters};

/// Muon (Jordan et al. 2024). Each matrix moves in the direction of its momentum, made nearly
/// orthogonal by five Newton-Schulz iterations. Arrays of more than two axes are matrices of the
/// first axis and all others. All other arrays move by [`AdamW`].
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::Muon;
/// use cachescope::grad::value_and_grad;
///
/// let target = Array::<f32>::linspace(-1.0, 1.0, 12)?.reshape([4, 3])?;
/// let mut x = Array::<f32>::zeros([4, 3])?;
/// let mut optimizer = Muon::new(0.05);
/// let loss = |x: &Array<f32>| (x - &target).square().mean();
/// let first = loss(&x)?.item()?;
/// for _ in 0..60 {
///     let (_, gradient) = value_and_grad(&x, loss)?;
///     optimizer.step(&mut x, &gradient)?;
/// }
/// assert!(loss(&x)?.item()? < 0.1 * first);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Muon {
    /// The learning rate.
    pub rate: f64,
    momentum: f64,
    decay: f64,
    velocity: State,
    /// The optimizer of arrays that are no matrices.
    pub others: AdamW,
}

impl Muon {
    /// Makes an optimizer with momentum 0.95, without decay. Arrays that are no matrices move at a
    /// learning rate of 3 · 10⁻⁴.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.95,
            decay: 0.0,
            velocity: State::default(),
            others: AdamW::new(3e-4).called(NAME),
        }
    }

    /// Sets the momentum coefficient.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Sets the weight decay: a step shrinks matrices by learning rate times decay.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// The errors of [`Sgd::step`](super::Sgd::step).
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

const NAME: &str = "Muon";

/// Returns whether an array is moved as a matrix.
fn is_matrix(shape: &[usize]) -> bool {
    shape.len() >= 2 && !shape.contains(&0)
}

impl Checked for Muon {
    fn name(&self) -> &'static str {
        NAME
    }

    #[track_caller]
    fn check_states<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        self.velocity.check(subject, parameter)?;
        self.others.check_states(subject, parameter)
    }

    fn counted(&mut self) -> Option<&mut State> {
        Some(&mut self.velocity)
    }
}

impl Optimizer for Muon {
    fn begin(&mut self) {
        self.others.begin();
    }

    fn abandon(&mut self) {
        self.others.abandon();
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let subject = Subject::numbered((NAME, "step_one"), number);
        check_gradient(subject, own, gradient)?;
        self.check_states(subject, own)?;
        if !is_matrix(own.shape()) {
            return self.others.step_one(number, own, gradient);
        }
        let velocity = self.velocity.writable(subject, own)?;
        let of = |value: f64| <T as AnyElement>::from_f64(value);
        let momentum = of(self.momentum);
        velocity.update(|velocity| velocity * momentum + gradient)?;
        let (rows, columns) = (own.shape()[0], own.len() / own.shape()[0]);
        let ahead = (gradient + &*velocity * momentum).eval()?;
        let direction =
            orthogonal(&ahead.reshape([rows, columns])?)?.reshape(*own.layout().shape())?;
        let scale = (rows as f64 / columns as f64).max(1.0).sqrt();
        let (kept, step) = (of(1.0 - self.rate * self.decay), of(self.rate * scale));
        own.update(|own| own * kept - direction * step)
    }
}

/// States: the momentum of matrices, and the two of [`AdamW`] for all others.
impl Stateful for Muon {
    fn states(&self) -> usize {
        3
    }

    fn keeps(&self, which: usize, shape: &[usize]) -> bool {
        is_matrix(shape) == (which == 0)
    }

    #[track_caller]
    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        let subject = Subject::numbered((NAME, "state_of"), number);
        match which {
            0 => self.velocity.of(subject, parameter),
            _ => self.others.state_of(which - 1, number, parameter),
        }
    }

    fn steps(&self) -> u64 {
        self.others.steps()
    }

    fn set_steps(&mut self, steps: u64) {
        self.others.set_steps(steps);
    }

    fn is_elementwise(&self) -> bool {
        false
    }
}

/// Returns a matrix with nearly the singular vectors of the given one, and singular values near 1.
/// Five iterations of a polynomial of degree five.
#[track_caller]
fn orthogonal<T: Float>(matrix: &Array<T>) -> Result<Array<T>> {
    let of = |value: f64| <T as AnyElement>::from_f64(value);
    let is_tall = matrix.shape()[0] > matrix.shape()[1];
    let wide = if is_tall {
        matrix.transpose()?
    } else {
        matrix.clone()
    };
    let norm = wide.norm()?;
    let mut x = (&wide / (norm + of(1e-7))).eval()?;
    for _ in 0..5 {
        let a = x.matmul(&x.transpose()?)?;
        let b = (&a * of(-4.7750) + a.matmul(&a)? * of(2.0315)).eval()?;
        x = (&x * of(3.4445) + b.matmul(&x)?).eval()?;
    }
    if is_tall { x.transpose() } else { Ok(x) }
}
