//! A line search for the strong Wolfe conditions (Nocedal and Wright 2006, "Numerical
//! Optimization", algorithms 3.5 and 3.6). The constants and the order of evaluations are from
//! PyTorch's `_strong_wolfe`.

use super::lbfgs::{Evaluate, Point};
use crate::array::Array;
use crate::error::Result;

/// The constant of sufficient decrease.
const C1: f64 = 1e-4;
/// The constant of curvature.
const C2: f64 = 0.9;
/// The largest number of evaluations of one search.
const MOST: usize = 25;

/// A step length, with the loss, the gradient and the slope along the direction.
#[derive(Clone)]
struct Trial {
    t: f64,
    slope: f64,
    point: Point,
}

/// A search from `from` along `direction`. The slope at `from` is negative.
pub(super) struct Search<'a> {
    pub(super) direction: &'a Array<f64>,
    pub(super) from: &'a Array<f64>,
    /// The change of an element below which the search ends.
    pub(super) tolerance: f64,
    pub(super) evaluate: &'a mut Evaluate<'a>,
    pub(super) evaluations: usize,
}

impl Search<'_> {
    #[track_caller]
    fn at(&mut self, t: f64) -> Result<Trial> {
        let x = (self.from + self.direction * t).eval_unfused()?;
        let point = (self.evaluate)(&x)?;
        self.evaluations += 1;
        let slope = point.gradient.dot(self.direction)?.item()?;
        Ok(Trial { t, slope, point })
    }

    /// Returns the step length, and the loss and gradient at this length. The search first tries
    /// the length `t`.
    #[track_caller]
    pub(super) fn run(&mut self, start: &Point, slope: f64, t: f64) -> Result<(f64, Point)> {
        let first = Trial {
            t: 0.0,
            slope,
            point: start.clone(),
        };
        // The comparison is false for NaN, so that a step length with a NaN loss counts as too
        // long.
        let decreases = |trial: &Trial| trial.point.loss <= first.point.loss + C1 * trial.t * slope;
        let is_flat = |trial: &Trial| trial.slope.abs() <= -C2 * slope;
        let (mut before, mut trial) = (first.clone(), self.at(t)?);
        let mut count = 0;
        let mut bracket = loop {
            if count == MOST {
                break [first.clone(), trial];
            }
            if !decreases(&trial) || (count > 1 && trial.point.loss >= before.point.loss) {
                break [before, trial];
            }
            if is_flat(&trial) {
                return Ok((trial.t, trial.point));
            }
            if trial.slope >= 0.0 {
                break [before, trial];
            }
            let bounds = (trial.t + 0.01 * (trial.t - before.t), trial.t * 10.0);
            let t = minimum_of_cubic(&before, &trial, bounds);
            before = trial;
            trial = self.at(t)?;
            count += 1;
        };
        let longest = self.direction.abs().max()?.item()?;
        let mut is_stuck = false;
        // The end with the smaller loss becomes the first end.
        order(&mut bracket);
        while count < MOST {
            let [low, high] = &bracket;
            let (least, most) = (low.t.min(high.t), low.t.max(high.t));
            if (most - least) * longest < self.tolerance {
                break;
            }
            let [left, right] = if low.t <= high.t {
                [low, high]
            } else {
                [high, low]
            };
            let t = minimum_of_cubic(left, right, (least, most));
            let t = moved_inside(t, (least, most), &mut is_stuck);
            let trial = self.at(t)?;
            count += 1;
            if !decreases(&trial) || trial.point.loss >= bracket[0].point.loss {
                bracket[1] = trial;
                order(&mut bracket);
                continue;
            }
            let is_done = is_flat(&trial);
            if !is_done && trial.slope * (bracket[1].t - bracket[0].t) >= 0.0 {
                bracket[1] = bracket[0].clone();
            }
            bracket[0] = trial;
            if is_done {
                break;
            }
        }
        let [best, _] = bracket;
        Ok((best.t, best.point))
    }
}

/// Makes the end with the smaller loss the first end. An end with a NaN loss is never made the
/// first end.
fn order(bracket: &mut [Trial; 2]) {
    let [first, second] = [&bracket[0], &bracket[1]].map(|trial| trial.point.loss);
    if second < first || first.is_nan() {
        bracket.swap(0, 1);
    }
}

/// Returns `t`. If two consecutive trials are close to an end of the interval, moves `t` away from
/// this end.
fn moved_inside(t: f64, (least, most): (f64, f64), is_stuck: &mut bool) -> f64 {
    let margin = 0.1 * (most - least);
    if (most - t).min(t - least) >= margin {
        *is_stuck = false;
        return t;
    }
    if !*is_stuck && t < most && t > least {
        *is_stuck = true;
        return t;
    }
    *is_stuck = false;
    match (t - most).abs() < (t - least).abs() {
        true => most - margin,
        false => least + margin,
    }
}

/// Returns the minimum of the cubic polynomial through two trials, inside of the bounds. Returns
/// the bounds' middle if the polynomial has no minimum.
fn minimum_of_cubic(a: &Trial, b: &Trial, (least, most): (f64, f64)) -> f64 {
    let [a, b] = if a.t <= b.t { [a, b] } else { [b, a] };
    let d1 = a.slope + b.slope - 3.0 * (a.point.loss - b.point.loss) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    let middle = f64::midpoint(least, most);
    if !square.is_finite() || square < 0.0 {
        return middle;
    }
    let d2 = square.sqrt();
    let t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2));
    if t.is_nan() {
        return middle;
    }
    t.max(least).min(most)
}
