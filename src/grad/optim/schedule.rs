//! Learning rates as functions of the step's number.

use std::f64::consts::PI;

/// A learning rate that grows linearly from 0 to `max` over the first `warmup` steps. Then it falls
/// to `min` at step `total` along half of a cosine (Loshchilov and Hutter 2017).
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::Cosine;
///
/// let rate = Cosine { warmup: 10, total: 110, max: 1.0, min: 0.0 };
/// assert_eq!((rate.at(5), rate.at(10), rate.at(110)), (0.5, 1.0, 0.0));
/// assert!((rate.at(60) - 0.5).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// The number of steps in which the rate grows.
    pub warmup: usize,
    /// The first step at which the rate is `min`.
    pub total: usize,
    /// The highest rate.
    pub max: f64,
    /// The rate from step `total` on.
    pub min: f64,
}

impl Cosine {
    /// Returns the learning rate of step `step`.
    #[must_use]
    pub fn at(&self, step: usize) -> f64 {
        let fall = |share: f64| self.min + (self.max - self.min) * 0.5 * (1.0 + (PI * share).cos());
        by_share(step, (self.warmup, self.total), self.max, fall)
    }
}

/// A learning rate like [`Cosine`], but with a linear fall.
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::LinearDecay;
///
/// let rate = LinearDecay { warmup: 0, total: 100, max: 1.0, min: 0.5 };
/// assert_eq!(rate.at(50), 0.75);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearDecay {
    /// The number of steps in which the rate grows.
    pub warmup: usize,
    /// The first step at which the rate is `min`.
    pub total: usize,
    /// The highest rate.
    pub max: f64,
    /// The rate from step `total` on.
    pub min: f64,
}

impl LinearDecay {
    /// Returns the learning rate of step `step`.
    #[must_use]
    pub fn at(&self, step: usize) -> f64 {
        by_share(step, (self.warmup, self.total), self.max, |share| {
            self.max + (self.min - self.max) * share
        })
    }
}

fn by_share(
    step: usize,
    (warmup, total): (usize, usize),
    max: f64,
    fall: impl Fn(f64) -> f64,
) -> f64 {
    if step < warmup {
        return max * step as f64 / warmup as f64;
    }
    if step >= total {
        return fall(1.0);
    }
    fall((step - warmup) as f64 / (total - warmup) as f64)
}
