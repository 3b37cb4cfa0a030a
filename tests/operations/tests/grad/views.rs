//! Gradients through views of parameters that are parts of larger arrays.

use cachescope::grad::value_and_grad;
use cachescope::{AnyElement, Array, Result};
use ndarray::{SliceInfoElem, s};

use crate::grad::differences::numbers;

/// A linear congruential generator.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    /// Returns a range of an axis of this length. The range may be empty, and its step has either
    /// sign.
    fn range(&mut self, length: usize) -> SliceInfoElem {
        let start = self.below(length + 1);
        let end = start + self.below(length + 1 - start);
        SliceInfoElem::Slice {
            start: start as isize,
            end: Some(end as isize),
            step: [1, 1, 2, -1, -2][self.below(5)],
        }
    }
}

/// Returns a view of `x` after one to four random operations.
fn viewed<T: AnyElement>(x: &Array<T>, random: &mut Random) -> Result<Array<T>> {
    let mut view = x.clone();
    for _ in 0..1 + random.below(4) {
        view = match random.below(6) {
            0 if view.ndim() > 0 => view.flip(random.below(view.ndim()) as isize)?,
            1 => view.transpose()?,
            2 if view.ndim() < 5 => {
                let mut shape = vec![1 + random.below(3)];
                shape.extend(view.shape());
                view.broadcast_to(shape)?
            }
            3 if view.ndim() < 5 && view.shape().last().is_some_and(|&length| length > 1) => {
                view.windows(&[2])?
            }
            _ => {
                let lengths = view.shape().to_vec();
                let parts: Vec<_> = lengths.iter().map(|&own| random.range(own)).collect();
                view.slice(&parts)?
            }
        };
    }
    Ok(view)
}

/// Returns the expected gradient of the weighted sum of all views' elements, computed from views of
/// the element indices. Each element of a view has a different weight.
fn expected(shape: &[usize], seeds: &[u64]) -> Result<Vec<f64>> {
    let count: usize = shape.iter().product();
    let places = Array::from_vec((0..count as i64).collect(), shape)?;
    let mut sums = vec![0.0; count];
    for &seed in seeds {
        let view = viewed(&places, &mut Random(seed))?;
        let weights = numbers(view.shape(), 1.0).to_vec()?;
        for (place, weight) in view.to_vec()?.into_iter().zip(weights) {
            sums[place as usize] += weight;
        }
    }
    Ok(sums)
}

#[test]
fn views_of_views_of_a_part() -> Result<()> {
    let whole = numbers(&[6, 4, 5], 1.0);
    for seed in 0..400 {
        let seeds = [seed * 3, seed * 3 + 1, seed * 3 + 2];
        let first = (seed % 4) as usize;
        let part = whole.slice(s![first..first + 2, .., ..])?;
        let (_, gradient) = value_and_grad(&part, |x| {
            let mut total = Array::<f64>::zeros([])?;
            for seed in seeds {
                let view = viewed(x, &mut Random(seed))?;
                total = (total + (&view * numbers(view.shape(), 1.0)).sum()?).eval()?;
            }
            Ok(total)
        })?;
        let expected = expected(part.shape(), &seeds)?;
        for (own, expected) in gradient.to_vec()?.into_iter().zip(expected) {
            let error = (own - expected).abs();
            assert!(error < 1e-9, "seed {seed}: {own} is not {expected}");
        }
    }
    Ok(())
}

#[test]
fn empty_slices_of_a_part() -> Result<()> {
    let whole = numbers(&[6, 4], 1.0);
    let part = whole.slice(s![3.., ..])?;
    let (_, gradient) = value_and_grad(&part, |x| {
        let nothing = x.slice(s![1..1, ..])?.sum()?;
        let rows = x.slice(s![..0, ..])?.exp().sum_axis(0)?.sum()?;
        let columns = x.slice(s![.., 2..2])?.sum_axis(1)?.sum()?;
        (nothing + rows + columns + x.slice(s![2, 1])?).eval()
    })?;
    let mut expected = [0.0; 12];
    expected[9] = 1.0;
    assert_eq!(gradient.to_vec()?, expected);
    Ok(())
}
