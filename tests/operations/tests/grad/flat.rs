//! Derivatives of softmax, and of functions that contain softmax. If one weight is nearly 1, the
//! derivatives keep the digits of the other weights.

use cachescope::grad::{hvp, jvp, value_and_grad};
use cachescope::{Array, Float, Result, attention};
use half::bf16;

use super::narrow::number;

/// Returns the softmax weights of two logits with the difference `apart`, and the product of the
/// weights.
fn weights(apart: f64) -> ([f64; 2], f64) {
    let small = 1.0 / (1.0 + apart.exp());
    ([1.0 - small, small], small * (1.0 - small))
}

/// Asserts that values are within a relative `tolerance` of the expected values.
#[track_caller]
fn assert_near<T: Float>(values: &Array<T>, expected: &[f64], tolerance: f64) {
    let values = values.cast::<f64>().eval().unwrap().to_vec().unwrap();
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let error = (value - expected).abs() / expected.abs();
        assert!(error <= tolerance, "{values:?}, expected {expected:e}");
    }
}

fn tangents_of_softmax<T: Float>(apart: f64, tolerance: f64) -> Result<()> {
    let logits = Array::from_slice(&[number::<T>(apart), T::zero()], [1, 2])?;
    let along = Array::from_slice(&[T::one(), T::zero()], [1, 2])?;
    let (_, tangent) = jvp(&logits, &along, |x| x.softmax(1))?;
    let (_, product) = weights(apart);
    assert_near(&tangent, &[product, -product], tolerance);
    Ok(())
}

#[test]
fn tangents_of_softmax_keep_their_digits() -> Result<()> {
    tangents_of_softmax::<f64>(37.43, 1e-2)?;
    tangents_of_softmax::<f64>(3.0, 1e-14)?;
    tangents_of_softmax::<f32>(10.0, 1e-5)?;
    tangents_of_softmax::<f32>(16.5, 1e-2)?;
    tangents_of_softmax::<bf16>(5.0, 1e-2)
}

/// Checks the gradient of attention with one query of `apart`. The keys and the values are 1 and 0,
/// so that the result is the first weight.
fn gradient_of_attention<T: Float>(apart: f64, tolerance: f64) -> Result<()> {
    let query = Array::from_slice(&[number::<T>(apart)], [1, 1])?;
    let keys = Array::from_slice(&[T::one(), T::zero()], [2, 1])?;
    let (_, gradient) = value_and_grad(&query, |q| attention(q, &keys, &keys, false)?.sum())?;
    assert_near(&gradient, &[weights(apart).1], tolerance);
    let (_, of_keys) = value_and_grad(&keys, |keys| {
        let values = Array::from_slice(&[T::one(), T::zero()], [2, 1])?;
        attention(&query, keys, &values, false)?.sum()
    })?;
    let slope = apart * weights(apart).1;
    assert_near(&of_keys, &[slope, -slope], tolerance);
    Ok(())
}

#[test]
fn gradients_of_attention_keep_their_digits() -> Result<()> {
    gradient_of_attention::<f64>(37.43, 1e-2)?;
    gradient_of_attention::<f64>(2.0, 1e-14)?;
    gradient_of_attention::<f32>(17.0, 1e-2)?;
    gradient_of_attention::<bf16>(17.0, 2e-2)
}

/// Checks that, for either class, the second derivatives of the loss and of `logsumexp` are equal.
fn curvature_of_cross_entropy<T: Float>(apart: f64, tolerance: f64) -> Result<()> {
    let logits = Array::from_slice(&[number::<T>(apart), T::zero()], [1, 2])?;
    let along = Array::from_slice(&[T::one(), T::zero()], [1, 2])?;
    let (_, product) = weights(apart);
    for class in [0, 1] {
        let classes = Array::from_slice(&[class], 1)?;
        let (_, curvature) = hvp(&logits, &along, |x| x.cross_entropy(&classes))?;
        assert_near(&curvature, &[product, -product], tolerance);
    }
    Ok(())
}

#[test]
fn second_derivatives_of_cross_entropy_keep_their_digits() -> Result<()> {
    curvature_of_cross_entropy::<f64>(10.0, 1e-10)?;
    curvature_of_cross_entropy::<f32>(20.0, 1e-5)?;
    curvature_of_cross_entropy::<bf16>(5.0, 1e-2)
}

/// Checks second derivatives of `logsumexp_axis` and `logsumexp`. The second row has only logits
/// −∞.
fn curvature_of_logsumexp<T: Float>(apart: f64, tolerance: f64) -> Result<()> {
    let elements = [apart, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY].map(number::<T>);
    let logits = Array::from_slice(&elements, [2, 2])?;
    let along = Array::from_slice(&[T::one(), T::zero(), T::zero(), T::zero()], [2, 2])?;
    let (_, product) = weights(apart);
    let counts = Array::from_slice(&[T::one(), T::zero()], 2)?;
    let (_, of_lines) = hvp(&logits, &along, |x| x.logsumexp_axis(1)?.dot(&counts))?;
    let (_, of_all) = hvp(&logits, &along, Array::logsumexp)?;
    for curvature in [of_lines, of_all] {
        let curvature = curvature.reshape(4)?.to_vec()?;
        let finite = Array::from_slice(&curvature[..2], 2)?;
        assert_near(&finite, &[product, -product], tolerance);
        assert_eq!(curvature[2..], [T::zero(); 2]);
    }
    Ok(())
}

#[test]
fn second_derivatives_of_logsumexp_keep_their_digits() -> Result<()> {
    curvature_of_logsumexp::<f64>(37.43, 1e-2)?;
    curvature_of_logsumexp::<f64>(3.0, 1e-14)?;
    curvature_of_logsumexp::<f32>(10.0, 1e-5)?;
    curvature_of_logsumexp::<f32>(16.5, 1e-2)?;
    curvature_of_logsumexp::<bf16>(5.0, 1e-2)
}
