//! Values and gradients of every function that interpolates linearly, for extreme elements.

use cachescope::grad::nn::{Upsampling, upsample};
use cachescope::grad::value_and_grad;
use cachescope::{Array, Float, Result};
use half::{bf16, f16};

/// Returns pairs of elements: extreme, infinite, equal, subnormal and ordinary elements.
fn pairs<T: Float>() -> Vec<[T; 2]> {
    let (most, inf) = (T::max_value(), T::from_f64(f64::INFINITY));
    let below = T::from_f64(most.to_f64() * (1.0 - T::epsilon().to_f64()));
    let [one, two, tenth] = [1.0, 2.0, 0.1].map(T::from_f64);
    let least = T::from_f64(match T::MANTISSA_DIGITS {
        53 => f64::from_bits(1),
        24 => f64::from(f32::from_bits(1)),
        _ => bf16::from_bits(1).to_f64().max(f16::from_bits(1).to_f64()),
    });
    vec![
        [most, -most],
        [-most, most],
        [most, most],
        [most, below],
        [below, most],
        [-most, -below],
        [inf, one],
        [one, inf],
        [-inf, most],
        [two, -inf],
        [inf, inf],
        [-inf, -inf],
        [tenth, tenth],
        [least, least],
        [one, two],
        [-two, one],
        [one, -inf],
    ]
}

/// Returns the value at the fraction `share` from `a` to `b`. An element of weight 0 is ignored,
/// even if it is infinite.
fn between<T: Float>([a, b]: [T; 2], share: f64) -> f64 {
    let [low, high] = [a.to_f64(), b.to_f64()];
    if share == 0.0 || low == high {
        return low;
    }
    if share == 1.0 {
        return high;
    }
    low * (1.0 - share) + high * share
}

/// Compares numbers up to two units in the last place. The terms of an expected number may cancel
/// in `f64`. Therefore the bound also has two `f64` units of the largest finite element in
/// `beside`.
#[track_caller]
fn assert_near<T: Float>(found: &[T], expected: &[f64], beside: &[T], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (&found, &expected) in found.iter().zip(expected) {
        let (found, rounded) = (found.to_f64(), T::from_f64(expected).to_f64());
        let sizes = beside.iter().map(|own| own.to_f64().abs());
        let size = sizes
            .filter(|own| own.is_finite())
            .fold(rounded.abs(), f64::max);
        let slack = 2.0 * (T::epsilon().to_f64() * rounded.abs() + f64::EPSILON * size);
        assert!(
            found == rounded || (rounded.is_finite() && (found - rounded).abs() <= slack),
            "{} of {what}: {found}, expected {rounded}",
            T::NAME
        );
    }
}

/// Returns the sizes that two elements are resized to, and the position of each new element.
fn sizes() -> impl Iterator<Item = (usize, Vec<f64>)> {
    [1, 3, 4, 6, 10].into_iter().map(|size| {
        let place = |at: usize| ((2 * at + 1) as f64 / size as f64 - 0.5).clamp(0.0, 1.0);
        (size, (0..size).map(place).collect())
    })
}

fn check<T: Float>() -> Result<()> {
    for pair in pairs::<T>() {
        for (size, places) in sizes() {
            let expected: Vec<f64> = places.iter().map(|&share| between(pair, share)).collect();
            let shares: f64 = places.iter().sum();
            for (shape, size) in [([1, 2], [1, size]), ([2, 1], [size, 1])] {
                let x = Array::from_slice(&pair, shape)?;
                let what = format!("upsample of {pair:?} to {size:?}");
                let (_, gradient) = value_and_grad(&x, |x| {
                    let y = upsample(x, size, Upsampling::Bilinear)?;
                    assert_near(&y.to_vec()?, &expected, &pair, &what);
                    y.sum()
                })?;
                let count = expected.len() as f64;
                assert_near(&gradient.to_vec()?, &[count - shares, shares], &[], &what);
            }
        }
        let x = Array::from_slice(&pair, 2)?;
        let is_up = pair[0].to_f64() <= pair[1].to_f64();
        let sorted = if is_up { pair } else { [pair[1], pair[0]] };
        for q in [0.0, 0.25, 0.5, 0.625, 1.0] {
            let what = format!("quantile {q} of {pair:?}");
            let expected = [between(sorted, q)];
            assert_near(&x.quantile(q, 0)?.to_vec()?, &expected, &pair, &what);
            let (_, gradient) = value_and_grad(&x, |x| {
                let y = x.quantile(q, 0)?;
                assert_near(&y.to_vec()?, &expected, &pair, &what);
                y.sum()
            })?;
            let shares = if is_up { [1.0 - q, q] } else { [q, 1.0 - q] };
            assert_near(&gradient.to_vec()?, &shares, &[], &what);
        }
        let expected = [between(sorted, 0.5)];
        assert_near(&x.median(0)?.to_vec()?, &expected, &pair, "median");
    }
    Ok(())
}

#[test]
fn interpolation_between_extremes() -> Result<()> {
    check::<f32>()?;
    check::<f64>()?;
    check::<f16>()?;
    check::<bf16>()
}

#[test]
fn an_arm_of_weight_0_does_not_count() -> Result<()> {
    let x = Array::from_slice(&[f32::NAN, 1.0, f32::INFINITY], [1, 3])?;
    let y = upsample(&x, [1, 9], Upsampling::Bilinear)?.to_vec()?;
    assert!(y[..4].iter().all(|value| value.is_nan()), "{y:?}");
    assert_eq!(
        y[4..],
        [
            1.0,
            f32::INFINITY,
            f32::INFINITY,
            f32::INFINITY,
            f32::INFINITY
        ]
    );
    // A new element at the position of an old element equals the old element, even between
    // infinities.
    for (own, length) in [(3, 9), (5, 15), (7, 49), (11, 33)] {
        for at in 0..own {
            let mut values = vec![f64::INFINITY; own];
            values[at] = 2.0;
            let x = Array::from_vec(values, [1, own])?;
            let y = upsample(&x, [1, length], Upsampling::Bilinear)?.to_vec()?;
            let times = length / own;
            assert_eq!(y[at * times + times / 2], 2.0, "{at} of {own} to {length}");
        }
    }
    Ok(())
}

fn in_two_directions<T: Float>() -> Result<()> {
    let values = [-8.0, -2.0, -10.0, 11.0].map(T::from_f64);
    let x = Array::from_slice(&values, [2, 2])?;
    let weights: Vec<f64> = (0..25).map(|at| f64::from(at * 7 % 25) - 12.0).collect();
    let weights = Array::from_vec(weights, [5, 5])?;
    let wide = x.cast::<f64>().eval()?;
    let exact = upsample(&wide, [5, 5], Upsampling::Bilinear)?.to_vec()?;
    let (_, exact_gradient) = value_and_grad(&wide, |x| {
        (upsample(x, [5, 5], Upsampling::Bilinear)? * &weights).sum()
    })?;
    let weights = weights.cast::<T>().eval()?;
    let (_, gradient) = value_and_grad(&x, |x| {
        let y = upsample(x, [5, 5], Upsampling::Bilinear)?;
        assert_near(&y.to_vec()?, &exact, &[], "two directions");
        (y * &weights).sum()
    })?;
    let exact_gradient = exact_gradient.to_vec()?;
    assert_near(&gradient.to_vec()?, &exact_gradient, &[], "two directions");
    Ok(())
}

#[test]
fn two_directions_are_rounded_once() -> Result<()> {
    in_two_directions::<f16>()?;
    in_two_directions::<bf16>()
}
