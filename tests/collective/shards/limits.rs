//! The errors of sharded optimizers, and the memory of their states.

use cachescope::cache_scope;
use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::{Adam, Clipped, Sgd, Stateful, clip_norm};
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Policy, Result};

use super::{Shapes, loss, random};

#[track_caller]
fn refused<T>(outcome: Result<T>, texts: &[&str]) {
    let line = std::panic::Location::caller().line();
    let error = outcome.err().expect("it is refused");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
    for expected in texts {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let location = error.location().expect("it has a line");
    assert!(location.file().ends_with("limits.rs"), "{text}");
    assert!(line.abs_diff(location.line()) < 4, "{text}");
}

#[derive(Debug, Parameters)]
struct Named {
    first: Array<f64>,
    second: Array<f64>,
}

#[derive(Debug, Parameters)]
struct OtherNames {
    second: Array<f64>,
    first: Array<f64>,
}

/// The refused models have as many elements, or as many parameters, as the first model.
#[test]
fn another_model_of_equal_length_is_refused() -> Result<()> {
    Group::threads(2, |group| {
        let ones = |shape: &[usize]| Array::<f64>::ones(shape);
        let mut parallel = DataParallel::new(&group);
        let mut optimizer = Sharded::new(&group, Adam::new(0.5))?;
        let mut own = (ones(&[2, 3])?, ones(&[4])?);
        parallel.value_and_step(&mut own, &mut optimizer, |own| loss(own, 1.0))?;
        let before = own.1.to_vec()?;

        let mut other = (ones(&[3, 2])?, ones(&[4])?);
        let texts = ["`0`", "[3, 2]", "[2, 3]"];
        let mut fresh = DataParallel::new(&group);
        let step = fresh.value_and_step(&mut other, &mut optimizer, |own| loss(own, 1.0));
        refused(step, &texts);
        let gradients = parallel.value_and_grad(&other, |own| loss(own, 1.0));
        refused(gradients, &texts);
        refused(optimizer.state(&other), &texts);
        let state = Adam::new(0.5).state(&other)?;
        refused(optimizer.set_state(&state), &texts);
        let mut wide = vec![ones(&[2, 3])?, ones(&[4])?, ones(&[1])?];
        let step = fresh.value_and_step(&mut wide, &mut optimizer, |own| loss(own, 1.0));
        refused(step, &["3 parameters", "2"]);
        assert_eq!((own.1.to_vec()?, other.1.to_vec()?), (before, vec![1.0; 4]));

        // The shapes are equal, but the names are not.
        let mut named = Named {
            first: ones(&[4])?,
            second: ones(&[4])?,
        };
        let mut optimizer = Sharded::new(&group, Sgd::new(0.5).momentum(0.5))?;
        fresh.value_and_step(&mut named, &mut optimizer, |own| loss(own, 1.0))?;
        let mut other = OtherNames {
            first: ones(&[4])?,
            second: ones(&[4])?,
        };
        let mut fresh = DataParallel::new(&group);
        let step = fresh.value_and_step(&mut other, &mut optimizer, |own| loss(own, 1.0));
        refused(step, &["`first`", "`second`"]);

        // The first step detects that the state is for other parameters.
        let mut optimizer = Sharded::new(&group, Adam::new(0.5))?;
        optimizer.set_state(&state)?;
        let step = fresh.value_and_step(&mut own, &mut optimizer, |own| loss(own, 1.0));
        refused(step, &texts);
        Ok(())
    })
    .map(drop)
}

#[test]
fn whole_states_and_other_groups_are_refused() -> Result<()> {
    Group::threads(2, |group| {
        let mut x = Array::<f64>::ones(64)?;
        let mut stepped = Sgd::new(0.5).momentum(0.5);
        let (_, gradient) = value_and_grad(&x, |x| x.square().sum())?;
        stepped.step(&mut x, &gradient)?;
        refused(Sharded::new(&group, stepped), &["Sgd", "1 steps"]);

        let alone = group.split(group.rank(), 0)?;
        let mut optimizer = Sharded::new(&alone, Sgd::new(0.5))?;
        let mut parallel = DataParallel::new(&group);
        let step = parallel.value_and_step(&mut x, &mut optimizer, |x| x.square().sum());
        refused(step, &["of 2", "rank 0 of 1"]);

        let mut optimizer = Sharded::new(&group, Sgd::new(0.5))?;
        let mut state = optimizer.state(&x);
        assert!(state.is_err());
        parallel.value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
        state = optimizer.state(&x);
        let mut state = state?;
        for wrong in [-1.0, 0.5, f64::NAN, f64::INFINITY] {
            state.steps = Array::full([], wrong)?;
            refused(
                optimizer.set_state(&state),
                &["Sharded::set_state", "steps"],
            );
        }
        Ok(())
    })
    .map(drop)
}

/// Sharded states, loaded states and accumulated gradients outlive the scope that makes them, under
/// each policy.
#[test]
fn what_outlives_a_scope_is_outside_of_its_cache() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        Group::threads(2, |group| {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let mut x = Array::<f32>::ones(1 << 12)?;
            let mut parallel = DataParallel::new(&group);
            let adam = || Sharded::new(&group, Clipped::new(Adam::new(0.1)).norm(1.0));
            let mut optimizer = adam()?;
            let escaped = || device.cache_stats("step").unwrap().escaped_blocks;
            for iteration in 0..6 {
                cache_scope!("step", policy = policy, {
                    parallel.accumulate(&x, |x| x.square().sum())?;
                });
                assert_eq!(escaped(), 0, "{policy:?}");
                cache_scope!("step", policy = policy, {
                    parallel.value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
                    if iteration == 3 {
                        let state = optimizer.state(&x)?;
                        optimizer = adam()?;
                        optimizer.set_state(&state)?;
                    }
                });
                group.barrier()?;
                assert_eq!(escaped(), 0, "{policy:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_norm_is_the_norm_of_all_ranks() -> Result<()> {
    let shapes = [Shapes {
        wide: vec![3, 2],
        narrow: Some(vec![5]),
        half: vec![],
    }];
    Group::threads(3, |group| {
        let (mut own, mut whole) = (random(&shapes, 1)?, random(&shapes, 1)?);
        let (mut parallel, mut other) = (DataParallel::new(&group), DataParallel::new(&group));
        let mut optimizer = Sharded::new(&group, Clipped::new(Sgd::new(0.1)).norm(0.5))?;
        let mut behind = Sgd::new(0.1);
        for step in 0..3 {
            let weight = (1 + group.rank() + step) as f64;
            parallel.value_and_step(&mut own, &mut optimizer, |own| loss(own, weight))?;
            let (_, gradients) = other.value_and_grad(&whole, |own| loss(own, weight))?;
            let (gradients, norm) = clip_norm(gradients, 0.5)?;
            behind.step(&mut whole, &gradients)?;
            let found = optimizer
                .optimizer_mut()
                .last_norm()?
                .expect("it has a bound");
            assert!((found - norm).abs() < 1e-6 * norm, "{found} and {norm}");
            for (own, whole) in own.iter().zip(&whole) {
                let difference = (&own.wide - &whole.wide).abs().max()?.item()?;
                assert!(difference < 1e-7, "{difference}");
            }
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn norms_of_ranks_are_beyond_the_range_of_squares() -> Result<()> {
    for size in [1e200, 1e-200] {
        Group::threads(2, |group| {
            let (mut x, factor) = (Array::<f64>::zeros(4)?, size);
            let mut parallel = DataParallel::new(&group);
            let mut optimizer = Sharded::new(&group, Clipped::new(Sgd::new(1.0)).norm(size))?;
            parallel.value_and_step(&mut x, &mut optimizer, |x| (x * factor).sum())?;
            let found = optimizer.optimizer_mut().last_norm()?;
            let found = found.expect("it has a bound");
            assert!((found / size - 2.0).abs() < 1e-14, "{found}");
            for moved in x.to_vec()? {
                assert!((moved / size + 0.5).abs() < 1e-14, "{moved}");
            }
            Ok(())
        })?;
    }
    Ok(())
}
