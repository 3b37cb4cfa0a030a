//! Settings of optimizers outside of their domains.

use cachescope::grad::optim::{Adam, AdamW, Groups, Lbfgs, Lion, Muon, Sgd};
use cachescope::grad::{Optimizer, value_and_step};
use cachescope::{Array, ErrorKind, Float, Result};
use half::{bf16, f16};

const NAN: f64 = f64::NAN;
const INFINITE: f64 = f64::INFINITY;
/// Values that no setting can have.
const NEVER: [f64; 5] = [NAN, INFINITE, -INFINITE, -1.0, -1e-9];

/// Checks that the first step returns an error that names the setting, before a parameter changes.
#[track_caller]
fn refused<O: Optimizer>(setting: &str, value: f64, make: impl Fn() -> O) {
    let start = || vec![Array::<f32>::ones(2).unwrap(), Array::ones([2, 2]).unwrap()];
    let mut by_step = start();
    let mut optimizer = make();
    let gradients = start();
    let error = optimizer.step(&mut by_step, &gradients).unwrap_err();
    let mut by_pass = start();
    let squares = |x: &Vec<Array<f32>>| (x[0].square().sum()? + x[1].square().sum()?).eval();
    let other = value_and_step(&mut by_pass, &mut make(), squares).unwrap_err();
    let mut by_one = start();
    optimizer.begin();
    let third = optimizer.step_one(0, &mut by_one[0], &gradients[0]);
    for error in [error, other, third.unwrap_err()] {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        assert!(text.contains(setting), "{setting} {value}: {text}");
        let location = error.location().expect("it has a line");
        assert!(location.file().ends_with("settings.rs"), "{text}");
    }
    for x in [by_step, by_pass, by_one].iter().flatten() {
        assert!(x.to_vec().unwrap().iter().all(|&x| x == 1.0));
    }
}

#[test]
fn settings_outside_of_their_domains_are_refused() {
    for value in NEVER.into_iter().chain([1e39, 1e300]) {
        refused("rate", value, || Sgd::new(value));
        refused("rate", value, || Sgd::new(value).momentum(0.9));
        refused("rate", value, || Adam::new(value));
        refused("rate", value, || Adam::new(value).capturable());
        refused("rate", value, || AdamW::new(value));
        refused("rate", value, || Lion::new(value));
        refused("rate", value, || Muon::new(value));
        refused("others", value, || {
            let mut muon = Muon::new(0.1);
            muon.others.rate = value;
            muon
        });
        // The decay is at most one divided by the rate.
        refused("weight_decay", value, || {
            AdamW::new(0.1).weight_decay(value)
        });
        refused("weight_decay", value, || Lion::new(0.1).weight_decay(value));
        refused("weight_decay", value, || Muon::new(0.1).weight_decay(value));
    }
    for value in NEVER.into_iter().chain([1.000_001, 2.0, 1e300]) {
        refused("momentum", value, || Sgd::new(0.1).momentum(value));
        refused("momentum", value, || Muon::new(0.1).momentum(value));
    }
    for value in NEVER.into_iter().chain([1.0, 2.0, 1e300]) {
        refused("betas", value, || Adam::new(0.1).betas(value, 0.9));
        refused("betas", value, || Adam::new(0.1).betas(0.9, value));
        refused("betas", value, || {
            Adam::new(0.1).betas(0.9, value).capturable()
        });
        refused("betas", value, || AdamW::new(0.1).betas(value, 0.9));
        refused("betas", value, || AdamW::new(0.1).betas(0.9, value));
        refused("betas", value, || Lion::new(0.1).betas(value, 0.9));
        refused("betas", value, || Lion::new(0.1).betas(0.9, value));
        refused("betas", value, || {
            let mut muon = Muon::new(0.1);
            muon.others = AdamW::new(0.1).betas(0.9, value);
            muon
        });
    }
}

#[test]
fn groups_check_all_settings_first() {
    let like = vec![Array::<f32>::ones(2).unwrap(), Array::ones([2, 2]).unwrap()];
    for bad in NEVER {
        for name in ["0", "1"] {
            refused("rate", bad, || {
                let groups = Groups::new(&like, Sgd::new(0.1)).unwrap();
                groups.with(Sgd::new(bad), |own| own == name).unwrap()
            });
        }
    }
}

#[test]
fn settings_of_searches_are_refused() {
    for value in NEVER {
        let cases = [
            ("rate", Lbfgs::new(value)),
            ("tolerances", Lbfgs::new(1.0).tolerances(value, 1e-9)),
            ("tolerances", Lbfgs::new(1.0).tolerances(1e-7, value)),
        ];
        for (setting, mut optimizer) in cases {
            let mut x = Array::<f64>::ones(2).unwrap();
            let error = optimizer.step(&mut x, |x| x.square().sum()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(setting), "{value}: {error}");
            assert_eq!(x.to_vec().unwrap(), [1.0, 1.0]);
        }
    }
}

#[test]
fn settings_at_the_ends_of_their_domains_are_taken() -> Result<()> {
    let mut x = Array::<f32>::ones([2, 2])?;
    let zeros = Array::zeros([2, 2])?;
    Sgd::new(0.0).momentum(1.0).step(&mut x, &zeros)?;
    Sgd::new(0.0).momentum(0.0).step(&mut x, &zeros)?;
    Adam::new(0.0).betas(0.0, 0.0).step(&mut x, &zeros)?;
    Lion::new(0.0)
        .betas(0.0, 0.0)
        .weight_decay(0.0)
        .step(&mut x, &zeros)?;
    Muon::new(0.0).momentum(1.0).step(&mut x, &zeros)?;
    assert_eq!(x.to_vec()?, [1.0; 4]);
    AdamW::new(0.5).weight_decay(2.0).step(&mut x, &zeros)?;
    assert_eq!(x.to_vec()?, [0.0; 4]); // The decay sets `x` to 0.
    Ok(())
}

/// Rates up to the largest permitted rate.
const LARGE: [f64; 4] = [1e30, 1e37, 1e38, f32::MAX as f64];

/// Compares two steps at a large rate with steps in `f64`, where no product overflows.
fn steps_are_rounded<T: Float, O: Optimizer>(name: &str, tolerance: f64, make: impl Fn() -> O) {
    let gradients = [0.0, 1e-30, 1e-3, -5.0, 1e4, -1e-12, 0.0, 2.0];
    for shape in [vec![8], vec![4, 2], vec![2, 4], vec![8, 1]] {
        let gradient = Array::from_slice(&gradients, &*shape).unwrap();
        let (mut x, mut exact) = (Array::<T>::ones(&*shape), Array::<f64>::ones(&*shape));
        let (x, exact) = (x.as_mut().unwrap(), exact.as_mut().unwrap());
        let narrow = gradient.cast::<T>().eval().unwrap();
        let wide = narrow.cast::<f64>().eval().unwrap();
        let (mut optimizer, mut other) = (make(), make());
        for step in 0..2 {
            optimizer.step(x, &narrow).unwrap();
            other.step(exact, &wide).unwrap();
            let rounded = exact.cast::<T>().cast::<f64>().eval().unwrap();
            let (own, exact) = (x.cast::<f64>().eval().unwrap(), rounded);
            let pairs = own
                .to_vec()
                .unwrap()
                .into_iter()
                .zip(exact.to_vec().unwrap());
            let largest = pairs
                .clone()
                .fold(0.0, |most: f64, (_, exact)| most.max(exact.abs()));
            for (own, exact) in pairs {
                // Near the largest number, rounding decides whether a value is infinite.
                let is_near =
                    |value: f64| value.abs() >= 3.3e38 && value.signum() == exact.signum();
                let is_right = own == exact
                    || (is_near(own) && is_near(exact))
                    || (own - exact).abs() <= tolerance * largest.min(1e38);
                assert!(
                    is_right,
                    "{name}, {shape:?}, step {step}: {own:e}, not {exact:e}"
                );
            }
        }
    }
}

fn large_rates_are_rounded<T: Float>() {
    for rate in LARGE {
        let of_type = |name: &str| format!("{name} of {} at {rate:e}", T::DTYPE.name());
        steps_are_rounded::<T, _>(&of_type("Sgd"), 1e-2, || Sgd::new(rate));
        steps_are_rounded::<T, _>(&of_type("Sgd"), 1e-2, || Sgd::new(rate).momentum(1.0));
        for betas in [[0.9, 0.999], [0.0, 0.0], [0.999_999_999, 0.999_999_999]] {
            let [first, second] = betas;
            let adam = || Adam::new(rate).betas(first, second);
            steps_are_rounded::<T, _>(&of_type("Adam"), 1e-2, adam);
            steps_are_rounded::<T, _>(&of_type("capturable Adam"), 1e-2, || adam().capturable());
            let decaying = || {
                AdamW::new(rate)
                    .betas(first, second)
                    .weight_decay(0.5 / rate)
            };
            steps_are_rounded::<T, _>(&of_type("AdamW"), 1e-2, decaying);
            let lion = || {
                Lion::new(rate)
                    .betas(first, second)
                    .weight_decay(0.5 / rate)
            };
            steps_are_rounded::<T, _>(&of_type("Lion"), 1e-2, lion);
        }
        for momentum in [0.0, 0.95, 1.0] {
            steps_are_rounded::<T, _>(&of_type("Muon"), 5e-2, || {
                let mut muon = Muon::new(rate).momentum(momentum).weight_decay(0.5 / rate);
                muon.others.rate = rate;
                muon.others = muon.others.weight_decay(0.0);
                muon
            });
        }
    }
}

#[test]
fn steps_at_large_rates_are_rounded_and_never_nan() {
    large_rates_are_rounded::<f32>();
    large_rates_are_rounded::<bf16>();
    large_rates_are_rounded::<f16>();
}

#[test]
fn searches_at_large_rates_end_without_nan() -> Result<()> {
    for rate in LARGE {
        let mut optimizer = Lbfgs::new(rate);
        let mut x = Array::from_slice(&[1.0_f32, 0.0, -2.0], 3)?;
        for _ in 0..3 {
            let loss = optimizer.step(&mut x, |x| (x - 1.0).square().sum())?;
            assert!(!loss.is_nan(), "{rate:e}");
            assert!(x.to_vec()?.iter().all(|x| !x.is_nan()), "{rate:e}: {x:?}");
        }
    }
    Ok(())
}
