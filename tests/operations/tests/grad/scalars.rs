//! Settings that are NaN, negative or otherwise out of their domain. Each error names the setting.

use cachescope::grad::nn::{alpha_dropout, drop_path, dropout, dropout_channels};
use cachescope::grad::optim::{Average, Clipped, Cosine, LinearDecay, LossScaled, Sgd, clip_norm};
use cachescope::grad::{Optimizer, value_and_step};
use cachescope::{Array, ErrorKind, Float, Result};
use half::{bf16, f16};

const NOT_POSITIVE: [f64; 4] = [f64::NAN, -1.0, f64::NEG_INFINITY, -1e-300];
const NO_SHARES: [f64; 7] = [
    f64::NAN,
    -1e-9,
    -1.0,
    1.0 + 1e-9,
    2.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
];
const NO_SCALES: [f64; 7] = [
    f64::NAN,
    0.0,
    -1.0,
    1e-300,
    1e39,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

/// A setting, with values outside and inside of its domain.
struct Setting<T: Float> {
    name: &'static str,
    refused: &'static [f64],
    taken: &'static [f64],
    used: fn(&Array<T>, f64) -> Result<()>,
}

/// Makes a step by a gradient of ones, within a backward pass and separately. Checks that a refused
/// step changes nothing.
fn stepped<T: Float, O: Optimizer>(x: &Array<T>, make: impl Fn() -> O) -> Result<()> {
    let mut own = x.lazy().eval()?;
    let inside = value_and_step(&mut own, &mut make(), |x| x.sum());
    let by_hand = make().step(&mut own, &Array::ones(x.shape())?);
    assert_eq!(inside.is_err(), by_hand.is_err());
    if by_hand.is_err() {
        assert_eq!(&own, x);
    }
    by_hand
}

fn settings<T: Float>() -> Vec<Setting<T>> {
    let of = |name, refused, taken, used| Setting {
        name,
        refused,
        taken,
        used,
    };
    vec![
        of(
            "clip_norm: the bound",
            &NOT_POSITIVE,
            &[0.0, 1e-300, 1.0, f64::INFINITY],
            |x, most| clip_norm(x.clone(), most).map(drop),
        ),
        of(
            "Clipped::norm: the bound",
            &NOT_POSITIVE,
            &[0.0, 1.0, f64::INFINITY],
            |x, most| stepped(x, || Clipped::new(Sgd::new(0.5)).norm(most)),
        ),
        of(
            "Clipped::value: the bound",
            &NOT_POSITIVE,
            &[0.0, 1.0, f64::INFINITY],
            |x, most| stepped(x, || Clipped::new(Sgd::new(0.5)).value(most)),
        ),
        of(
            "Average::new: the decay",
            &NO_SHARES,
            &[0.0, 0.5, 1.0],
            |x, decay| Average::new(x, decay).map(drop),
        ),
        of(
            "LossScaled::first_scale: the scale",
            &NO_SCALES,
            &[1.0, 1e38],
            |_, scale| LossScaled::new(Sgd::new(0.1)).first_scale(scale).map(drop),
        ),
        of(
            "LossScaled::set_scale_state: the scale",
            &NO_SCALES,
            &[1.0, 1e38],
            |_, scale| {
                let state = (Array::full([], scale)?, Array::zeros([])?);
                LossScaled::new(Sgd::new(0.1)).set_scale_state(&state)
            },
        ),
        of(
            "dropout: the probability",
            &NO_SHARES,
            &[0.0, 0.5, 1.0],
            |x, p| dropout(x, p).map(drop),
        ),
        of(
            "dropout_channels: the probability",
            &NO_SHARES,
            &[0.0, 0.5, 1.0],
            |x, p| dropout_channels(x, p).map(drop),
        ),
        of(
            "drop_path: the probability",
            &NO_SHARES,
            &[0.0, 0.5, 1.0],
            |x, p| drop_path(x, p).map(drop),
        ),
        of(
            "alpha_dropout: the probability",
            &NO_SHARES,
            &[0.0, 0.5, 1.0],
            |x, p| alpha_dropout(x, p).map(drop),
        ),
    ]
}

fn each_setting<T: Float>() -> Result<()> {
    let x = Array::<T>::full([2, 3], T::from_f64(2.0))?;
    for setting in settings::<T>() {
        let name = setting.name;
        for &value in setting.refused {
            let error = (setting.used)(&x, value).expect_err(&format!("{name} {value}"));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(
                text.contains(&format!("{name} is {value}, expected")),
                "{text}"
            );
        }
        for &value in setting.taken {
            (setting.used)(&x, value)?;
        }
    }
    Ok(())
}

#[test]
fn a_setting_out_of_its_domain_is_named() -> Result<()> {
    each_setting::<f16>()?;
    each_setting::<bf16>()?;
    each_setting::<f32>()?;
    each_setting::<f64>()
}

#[test]
fn an_infinite_bound_measures_the_norm() -> Result<()> {
    let mut x = Array::<f32>::zeros(2)?;
    let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(f64::INFINITY);
    optimizer.step(&mut x, &Array::from_slice(&[3.0, 4.0], 2)?)?;
    assert_eq!(
        (x.to_vec()?, optimizer.last_norm()?),
        (vec![-3.0, -4.0], Some(5.0))
    );
    Ok(())
}

/// A schedule returns a plain number, so the step with this number returns the error.
#[test]
fn a_schedule_of_nan_is_refused_by_the_step() {
    type Schedule = fn(usize, usize, usize, f64, f64) -> f64;
    let cosine: Schedule = |step, warmup, total, max, min| {
        let rate = Cosine {
            warmup,
            total,
            max,
            min,
        };
        rate.at(step)
    };
    let linear: Schedule = |step, warmup, total, max, min| {
        let rate = LinearDecay {
            warmup,
            total,
            max,
            min,
        };
        rate.at(step)
    };
    for schedule in [cosine, linear] {
        for (max, min) in [(f64::NAN, 0.0), (1.0, f64::NAN)] {
            assert!(schedule(5, 0, 10, max, min).is_nan());
        }
        for step in [0, 5, 10, 11, usize::MAX] {
            for (warmup, total) in [(0, 0), (5, 0), (0, 10), (10, 10), (usize::MAX, usize::MAX)] {
                let rate = schedule(step, warmup, total, 1.0, 0.25);
                assert!(
                    (0.0..=1.0).contains(&rate),
                    "{step} of ({warmup}, {total}): {rate}"
                );
            }
        }
    }
}
