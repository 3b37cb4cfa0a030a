//! Tests of `f16` gradients, whose factors and counts exceed the range of `f16`.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result};
use half::f16;

use crate::along::both;

/// A number of elements that exceeds the largest `f16`.
const MANY: usize = 70_000;

type Loss = fn(&Array<f16>) -> Result<Array<f16>>;

#[track_caller]
fn assert_gradient(values: &[f16], loss: Loss, expected: &[f64]) -> Result<()> {
    for x in both(values, &[values.len()])? {
        let (_, gradient) = value_and_grad(&x, loss)?;
        for (own, expected) in gradient.to_vec()?.into_iter().zip(expected) {
            let error = (own.to_f64() - expected).abs() / expected;
            assert!(error < 2e-3, "{own} is not {expected} on {:?}", x.device());
        }
    }
    Ok(())
}

#[test]
fn narrow_floats_have_room_for_counts() -> Result<()> {
    let two = f16::from_f64(2.0);
    assert_gradient(&[two], |x| x.broadcast_to([MANY])?.mean(), &[1.0])?;
    assert_gradient(&[two], |x| x.broadcast_to([MANY])?.max(), &[1.0])?;
    let pair = [f16::ONE, two + f16::ONE];
    let variance = |x: &Array<f16>| x.broadcast_to([MANY, 2])?.var();
    assert_gradient(&pair[1..], |x| (x.broadcast_to([MANY])? * x).mean(), &[6.0])?;
    for x in both(&pair, &[2])? {
        let (_, gradient) = value_and_grad(&x, variance)?;
        assert_eq!(gradient.to_vec()?, [-f16::ONE, f16::ONE]);
    }
    Ok(())
}

#[test]
fn narrow_floats_are_added_up_in_wide_ones() -> Result<()> {
    let taken: Loss = |x| {
        let places = {
            let _device = x.device().enter();
            Array::<i64>::zeros(5000)?
        };
        x.take(&places, 0)?.mean()
    };
    assert_gradient(&[f16::ONE], taken, &[1.0])?;
    let pooled: Loss = |x| {
        let x = x.reshape([1, 2, 2])?;
        (x.max_pool2d([2, 2], [1, 1])? + x.avg_pool2d([2, 2], [1, 1])?).sum()
    };
    assert_gradient(&[f16::ONE; 4], pooled, &[0.5; 4])
}
