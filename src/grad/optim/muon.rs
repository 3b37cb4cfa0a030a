//! Muon: momentum whose matrices are made orthogonal.

use super::memory::Memory;
use super::settings::{MOMENTUM, check, check_rate_and_decay};
use super::{AdamW, Rule, Subject, optimizer};
use crate::array::{AnyElement, Array, DType, Float};
use crate::error::Result;
use crate::grad::Optimizer;

/// Muon (Jordan et al. 2024). Five Newton-Schulz iterations make the momentum of a matrix nearly
/// orthogonal. The matrix is updated in the direction of the result. An array of more than two axes
/// counts as a matrix. Its first axis is the rows, and all other axes together are the columns.
/// [`AdamW`] updates arrays that are not matrices.
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
    /// The settings for arrays that are not matrices. The states of `others` itself are unused.
    pub others: AdamW,
    memory: Memory,
}

impl Muon {
    /// Makes an optimizer with momentum 0.95, without decay. Arrays that are not matrices have a
    /// learning rate of 3 · 10⁻⁴.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Muon;
    ///
    /// let mut bias = Array::<f64>::zeros(2)?;
    /// Muon::new(0.05).step(&mut bias, &Array::ones(2)?)?;
    /// assert!((bias.mean()?.item()? + 3e-4).abs() < 1e-9);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.95,
            decay: 0.0,
            others: AdamW::new(3e-4),
            memory: Memory::default(),
        }
    }

    /// Sets the momentum coefficient, from 0 to 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Muon;
    ///
    /// let mut x = Array::<f64>::zeros([2, 2])?;
    /// let mut optimizer = Muon::new(0.05).momentum(0.0);
    /// optimizer.step(&mut x, &Array::eye(2)?)?;
    /// let moved = x.to_vec()?;
    /// optimizer.step(&mut x, &Array::zeros([2, 2])?)?;
    /// assert_eq!(x.to_vec()?, moved); // Without momentum, the first gradient has no effect any more.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Sets the weight decay: a step shrinks matrices by learning rate times decay.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Muon;
    ///
    /// let mut x = Array::<f64>::ones([2, 2])?;
    /// Muon::new(0.1).weight_decay(0.5).step(&mut x, &Array::zeros([2, 2])?)?;
    /// assert_eq!(x.to_vec()?, [0.95; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }
}

/// Returns whether an array is updated as a matrix.
fn is_matrix(shape: &[usize]) -> bool {
    shape.len() >= 2 && !shape.contains(&0)
}

optimizer!(Muon);

/// The states are the momentum of matrices, and the two states of [`AdamW`] for other arrays.
impl Rule for Muon {
    const NAME: &'static str = "Muon";

    const IS_ELEMENTWISE: bool = false;

    fn count(&self) -> usize {
        3
    }

    fn has(&self, which: usize, shape: &[usize]) -> bool {
        is_matrix(shape) == (which == 0)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn check(&self) -> Result<()> {
        check(Self::NAME, "`momentum`", self.momentum, &MOMENTUM)?;
        check_rate_and_decay(Self::NAME, self.rate, self.decay)?;
        let others = self.others.check_settings();
        others.map_err(|error| error.of("Muon: `others`"))
    }

    fn apply<T: Float, G: Float>(
        &mut self,
        subject: Subject<'_>,
        own: &mut Array<T>,
        gradient: &Array<G>,
    ) -> Result<()> {
        self.memory.check(subject, own)?;
        let [velocity, means, squares] = &mut self.memory.states;
        if !is_matrix(own.shape()) {
            let step = self.others.at(self.memory.steps);
            return step.apply([means, squares], subject, (own, gradient));
        }
        let velocity = velocity.writable(subject, own)?;
        let of = |value: f64| <T::Computed as AnyElement>::from_f64(value);
        let momentum = of(self.momentum);
        let gradient = gradient.cast::<T::Computed>();
        velocity.update(|velocity| velocity * momentum + &gradient)?;
        let (rows, columns) = (own.shape()[0], own.len() / own.shape()[0]);
        let ahead = (gradient + &*velocity * momentum).eval_unfused()?;
        let direction =
            orthogonal(&ahead.reshape([rows, columns])?)?.reshape(*own.layout().shape())?;
        let scale = (rows as f64 / columns as f64).max(1.0).sqrt();
        let [kept, scale, rate] = [1.0 - self.rate * self.decay, scale, self.rate].map(of);
        // The two factors are multiplied separately, because their product may be beyond the range
        // of the type.
        let moved = direction * scale * rate;
        own.update(|own| (own.cast::<T::Computed>() * kept - moved).cast::<T>())
    }
}

/// Returns a matrix with nearly the singular vectors of `matrix`, and singular values near 1.
/// Applies five iterations of a polynomial of degree five.
#[track_caller]
fn orthogonal<T: Float>(matrix: &Array<T>) -> Result<Array<T>> {
    let of = |value: f64| <T as AnyElement>::from_f64(value);
    let is_tall = matrix.shape()[0] > matrix.shape()[1];
    let wide = if is_tall {
        matrix.transpose()?
    } else {
        matrix.clone()
    };
    // After the division, the largest singular value is at most 1, at every scale of the gradients.
    let norm = wide.norm()?.maximum(least_positive::<T>());
    let mut x = (&wide / norm).eval_unfused()?;
    for _ in 0..5 {
        let a = x.matmul(&x.transpose()?)?;
        let b = (&a * of(-4.7750) + a.matmul(&a)? * of(2.0315)).eval_unfused()?;
        x = (&x * of(3.4445) + b.matmul(&x)?).eval_unfused()?;
    }
    if is_tall { x.transpose() } else { Ok(x) }
}

/// Returns a positive number that prevents a division by 0. A norm above 0 is less than this number
/// only if all elements are subnormal.
fn least_positive<T: Float>() -> T {
    let least = match T::DTYPE {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    <T as AnyElement>::from_f64(least)
}
