//! Settings of optimizers outside of their domains.

use cachescope::grad::optim::{Adam, AdamW, Groups, Lbfgs, Lion, Muon, Sgd};
use cachescope::grad::{Optimizer, value_and_step};
use cachescope::{Array, ErrorKind, Result};

const NAN: f64 = f64::NAN;
const INFINITE: f64 = f64::INFINITY;
/// Values that no setting can have.
const NEVER: [f64; 5] = [NAN, INFINITE, -INFINITE, -1.0, -1e-9];

/// Checks that the first step returns an error that names the setting, before anything moves.
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

/// If a group has an error, no other group moves.
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

/// The domains include their ends.
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
    assert_eq!(x.to_vec()?, [0.0; 4]); // Decayed to 0.
    Ok(())
}
