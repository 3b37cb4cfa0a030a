//! Optimizers that wrap another optimizer that clips or scales.

use cachescope::grad::optim::{Adam, AdamW, Clipped, Cosine, LinearDecay, LossScaled, Sgd};
use cachescope::grad::{Optimizer, value_and_step};
use cachescope::{Array, ErrorKind, Result};

/// Returns a parameter after a step from 1. The step is along the gradient of the sum of four
/// squares. Each element of the gradient is 2, and its norm is 4.
fn stepped(mut optimizer: impl Optimizer) -> Result<f64> {
    let mut x = Array::<f64>::ones(4)?;
    value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
    Ok(x.to_vec()?[0])
}

#[test]
fn a_large_bound_clips_nothing() -> Result<()> {
    for most in [1e300, 1e308, f64::MAX, f64::INFINITY] {
        let optimizer = LossScaled::new(Sgd::new(0.1));
        assert_eq!(stepped(Clipped::new(optimizer).norm(most))?, 0.8);
        let optimizer = LossScaled::new(Sgd::new(0.1));
        assert_eq!(stepped(Clipped::new(optimizer).value(most))?, 0.8);
    }
    Ok(())
}

#[test]
fn an_optimizer_inside_gets_the_norm_of_clipped_gradients() -> Result<()> {
    let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-12, "{value}");
    // The norm is clipped from 4 to 1, which is within the inner bound of 2. Each gradient is ½.
    let inner = || Clipped::new(Sgd::new(0.1)).norm(2.0);
    near(stepped(Clipped::new(inner()).norm(1.0))?, 0.95);
    // The norm is clipped from 4 to 3, and then to 2.
    near(stepped(Clipped::new(inner()).norm(3.0))?, 0.9);
    near(
        stepped(Clipped::new(LossScaled::new(inner())).norm(1.0))?,
        0.95,
    );
    // Gradients that are not finite are still detected.
    let mut skips = Clipped::new(LossScaled::new(Sgd::new(0.1))).norm(1.0);
    let mut x = Array::<f64>::zeros(1)?;
    skips.step(&mut x, &Array::full(1, f64::INFINITY)?)?;
    assert_eq!(x.item()?, 0.0);
    Ok(())
}

#[test]
fn one_optimizer_scales_the_loss() {
    let inner = || LossScaled::new(Sgd::new(0.1));
    let refused = |outcome: Result<f64>| {
        let error = outcome.expect_err("two scales");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("LossScaled"), "{error}");
    };
    refused(stepped(LossScaled::new(inner())));
    refused(stepped(LossScaled::new(Clipped::new(inner()).norm(1.0))));
}

#[test]
fn no_rate_outside_of_its_domain_is_written() -> Result<()> {
    for rate in [f64::NAN, -1.0, f64::INFINITY] {
        let mut x = Array::<f64>::zeros(1)?;
        let (mut adam, mut adam_w) = (Adam::new(0.1).capturable(), AdamW::new(0.1).capturable());
        adam.step(&mut x, &Array::ones(1)?)?;
        adam_w.step(&mut x, &Array::ones(1)?)?;
        (adam.rate, adam_w.rate) = (rate, rate);
        assert!(adam.write_rate().is_err() && adam_w.write_rate().is_err());
    }
    Ok(())
}

#[test]
fn schedules_end_at_their_total() {
    for (warmup, total) in [(0, 0), (10, 10), (10, 5), (2, 4)] {
        let (max, min) = (1.0, 0.25);
        let last = warmup.max(total);
        let cosine = Cosine {
            warmup,
            total,
            max,
            min,
        };
        let linear = LinearDecay {
            warmup,
            total,
            max,
            min,
        };
        for step in [last, last + 1, last + 100] {
            assert_eq!(
                [cosine.at(step), linear.at(step)],
                [min; 2],
                "{warmup}, {total}"
            );
        }
    }
}
