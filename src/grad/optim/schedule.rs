//! Learning rates as functions of the step's number.

use std::f64::consts::PI;

/// Returns a learning rate that grows linearly from 0 to `peak` over the first `warmup` steps, and
/// then falls to `least` at step `total` along half of a cosine (Loshchilov and Hutter 2017).
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::cosine;
///
/// let rate = |step| cosine(step, (10, 110), (1.0, 0.0));
/// assert_eq!((rate(5), rate(10), rate(110)), (0.5, 1.0, 0.0));
/// assert!((rate(60) - 0.5).abs() < 1e-12);
/// ```
#[must_use]
pub fn cosine(step: usize, (warmup, total): (usize, usize), (peak, least): (f64, f64)) -> f64 {
    let fall = |share: f64| least + (peak - least) * 0.5 * (1.0 + (PI * share).cos());
    by_share(step, (warmup, total), peak, fall)
}

/// Returns a learning rate like [`cosine`], but with a linear fall.
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::linear;
///
/// assert_eq!(linear(50, (0, 100), (1.0, 0.5)), 0.75);
/// ```
#[must_use]
pub fn linear(step: usize, (warmup, total): (usize, usize), (peak, least): (f64, f64)) -> f64 {
    by_share(step, (warmup, total), peak, |share| {
        peak + (least - peak) * share
    })
}

fn by_share(
    step: usize,
    (warmup, total): (usize, usize),
    peak: f64,
    fall: impl Fn(f64) -> f64,
) -> f64 {
    if step < warmup {
        return peak * step as f64 / warmup as f64;
    }
    let length = total.saturating_sub(warmup).max(1) as f64;
    fall(((step - warmup) as f64 / length).min(1.0))
}
