//! Losses that are scaled to represent gradients in `f16`.

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::{
    Accumulated, Adam, AdamW, Clipped, Groups, LossScaled, Sgd, Stateful,
};
use cachescope::grad::{Optimizer, Parameters, files, value_and_grad, value_and_step};
use cachescope::{Array, ErrorKind, Float, Result};
use half::{bf16, f16};

use super::half::{Network, batch, numbers};

/// Returns a loss whose gradient for `x` is `slope`, computed in `f16`. The gradient of the
/// intermediate product is a sixteenth of the scale.
fn line(x: &Array<f32>, slope: f32) -> Result<Array<f32>> {
    let y = (x.cast::<f16>().eval()? * f16::from_f32(16.0 * slope)).eval()?;
    (y.cast::<f32>() / 16.0).sum()
}

#[test]
fn a_scale_that_is_a_power_of_two_changes_no_bit() -> Result<()> {
    let (x, classes) = batch::<f32>(8, 6)?;
    let train = |optimizer: &mut dyn FnMut(&mut Network) -> Result<()>| {
        let mut network = Network::new(6)?;
        (0..5).try_for_each(|_| optimizer(&mut network))?;
        numbers(&network)
    };
    let mut plain = AdamW::new(0.01);
    let expected =
        train(&mut |own| value_and_step(own, &mut plain, |own| own.loss(&x, &classes)).map(drop))?;
    let mut scaled = LossScaled::new(AdamW::new(0.01));
    let own =
        train(&mut |own| value_and_step(own, &mut scaled, |own| own.loss(&x, &classes)).map(drop))?;
    assert_eq!(own, expected);
    // The program scales the loss itself, and makes the step by a separate call.
    let mut scaled = LossScaled::new(AdamW::new(0.01));
    let own = train(&mut |own| {
        let scale = scaled.scale() as f32;
        let (_, gradients) = value_and_grad(own, |own| Ok(own.loss(&x, &classes)? * scale))?;
        scaled.step(own, &gradients)
    })?;
    assert_eq!(own, expected);
    assert_eq!((scaled.steps(), scaled.skipped_steps()), (5, 0));
    Ok(())
}

#[test]
fn a_scale_keeps_gradients_that_f16_cannot_represent() -> Result<()> {
    // The gradient has two factors of 10⁻⁴, whose product is 0 in f16.
    let small = |x: &Array<f32>| -> Result<Array<f32>> {
        let y = (x.cast::<f16>().eval()? * f16::from_f32(1e-4)).eval()?;
        (y.cast::<f32>() * 1e-4).sum()
    };
    let mut x = Array::<f32>::zeros(2)?;
    value_and_step(&mut x, &mut Sgd::new(1e8), small)?;
    assert_eq!(x.to_vec()?, [0.0; 2]);
    value_and_step(&mut x, &mut LossScaled::new(Sgd::new(1e8)), small)?;
    assert!(x.to_vec()?.iter().all(|own| (own + 1.0).abs() < 1e-3));
    // bf16 and f32 have equal ranges of exponents.
    let (_, gradient) = value_and_grad(&x, |x| {
        let y = (x.cast::<bf16>().eval()? * bf16::from_f32(1e-4)).eval()?;
        (y.cast::<f32>() * 1e-4).sum()
    })?;
    assert!((gradient.to_vec()?[0] * 1e8 - 1.0).abs() < 1e-2);
    Ok(())
}

#[test]
fn a_step_with_an_infinite_gradient_moves_nothing() -> Result<()> {
    let mut x = (Array::<f32>::ones(2)?, Array::<f32>::ones(2)?);
    let mut optimizer = LossScaled::new(Adam::new(0.1)).interval(2)?;
    // One of two gradients overflows, because it is 2 · 65536.
    let loss = value_and_step(&mut x, &mut optimizer, |(x, y)| {
        Ok(line(x, 2.0)? + line(y, 0.5)?)
    })?;
    assert_eq!(loss.item()?, 5.0, "the loss is not scaled");
    assert_eq!(numbers(&x)?, [1.0; 4]);
    assert_eq!((optimizer.steps(), optimizer.skipped_steps()), (0, 1));
    let states = numbers(&optimizer.state(&x)?.arrays)?;
    assert_eq!(states, [0.0; 8]);
    for (scale, steps) in [(16384.0, 0), (16384.0, 1), (32768.0, 2), (16384.0, 2)] {
        value_and_step(&mut x, &mut optimizer, |(x, y)| {
            Ok(line(x, 2.0)? + line(y, 0.5)?)
        })?;
        assert_eq!((optimizer.scale(), optimizer.steps()), (scale, steps));
    }
    assert!(numbers(&x)?.iter().all(|own| *own < 1.0));
    Ok(())
}

#[test]
fn a_loss_that_is_never_finite_is_an_error() -> Result<()> {
    let mut x = Array::<f32>::ones(2)?;
    let mut optimizer = LossScaled::new(Sgd::new(0.1));
    let mut step = || value_and_step(&mut x, &mut optimizer, |x| line(x, f32::INFINITY)).map(drop);
    for _ in 0..32 {
        step()?;
    }
    let error = step().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    assert!(
        text.contains("after 32 skipped steps: the loss itself is infinite or NaN"),
        "{text}"
    );
    assert_eq!((x.to_vec()?, optimizer.skipped_steps()), (vec![1.0; 2], 32));
    // The error does not persist: a finite loss moves the parameters.
    value_and_step(&mut x, &mut optimizer, |x| line(x, 1.0))?;
    assert!(x.to_vec()?[0] < 1.0);
    Ok(())
}

#[test]
fn rejects_scales_that_are_no_positive_numbers() -> Result<()> {
    let new = || LossScaled::new(Sgd::new(0.1));
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = new().first_scale(scale).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = format!("first_scale: the scale is {scale}, expected a positive, finite number");
        assert!(error.to_string().contains(&text), "{error}");
        let state = (Array::full([], scale)?, Array::zeros([])?);
        assert!(new().set_scale_state(&state).is_err());
    }
    assert!(new().interval(0).is_err());
    let mut optimizer = new();
    let error = optimizer.set_scale_state(&(Array::full([], 8.0)?, Array::full([], 0.5)?));
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("set_scale_state: the number of steps is 0.5"),
        "{text}"
    );
    assert_eq!(optimizer.scale(), 65536.0);
    Ok(())
}

/// An optimizer that forwards only steps.
struct Forgetful<O>(O);

impl<O: Optimizer> Optimizer for Forgetful<O> {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn step_one<T: Float>(
        &mut self,
        at: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        self.0.step_one(at, own, gradient)
    }
}

#[test]
fn a_wrapper_that_forwards_no_norm_is_an_error() -> Result<()> {
    let mut x = Array::<f32>::ones(2)?;
    let mut optimizer = Forgetful(LossScaled::new(Sgd::new(0.1)));
    let error = value_and_step(&mut x, &mut optimizer, |x| line(x, 1.0)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("forward needs_norm, set_norm and loss_scale"),
        "{error}"
    );
    assert_eq!(x.to_vec()?, [1.0; 2]);
    Ok(())
}

#[test]
fn gradients_are_clipped_at_their_own_norm() -> Result<()> {
    let step = |optimizer: &mut dyn FnMut(&mut Array<f32>) -> Result<()>| {
        let mut x = Array::<f32>::zeros(4)?;
        optimizer(&mut x)?;
        x.to_vec()
    };
    // The norm of the gradient is 0.5, and is clipped to 0.25.
    let mut inside = LossScaled::new(Clipped::new(Sgd::new(1.0)).norm(0.25));
    let own = step(&mut |x| value_and_step(x, &mut inside, |x| line(x, 0.25)).map(drop))?;
    assert_eq!(
        (own, inside.optimizer.last_norm()?),
        (vec![-0.125; 4], Some(0.5))
    );
    let mut outside = Clipped::new(LossScaled::new(Sgd::new(1.0)))
        .norm(0.25)
        .value(0.0625);
    let own = step(&mut |x| value_and_step(x, &mut outside, |x| line(x, 0.25)).map(drop))?;
    assert_eq!((own, outside.last_norm()?), (vec![-0.0625; 4], Some(0.5)));
    Ok(())
}

#[test]
fn groups_have_one_scale() -> Result<()> {
    let mut x = (Array::<f32>::zeros(2)?, Array::<f32>::zeros(2)?);
    let groups = Groups::new(&x, Sgd::new(1.0))?.with(Sgd::new(0.5), |name| name == "1")?;
    let mut optimizer = LossScaled::new(groups);
    value_and_step(&mut x, &mut optimizer, |(x, y)| {
        Ok(line(x, 0.25)? + line(y, 0.25)?)
    })?;
    assert_eq!(numbers(&x)?, [-0.25, -0.25, -0.125, -0.125]);
    let scaled = || LossScaled::new(Sgd::new(1.0));
    let error = Groups::new(&x, scaled())?
        .with(scaled(), |name| name == "1")
        .unwrap_err();
    assert!(
        error.to_string().contains("LossScaled::new(groups)"),
        "{error}"
    );
    Ok(())
}

#[test]
fn accumulated_gradients_are_of_the_scaled_loss() -> Result<()> {
    let mut x = Array::<f32>::zeros(1)?;
    let mut optimizer = LossScaled::new(Sgd::new(1.0));
    let scale = optimizer.scale() as f32;
    let mut gradients = Accumulated::new();
    for slope in [0.25, 0.75] {
        gradients.add(&x, |x| Ok(line(x, slope)? * scale))?;
    }
    optimizer.step(&mut x, &gradients.take_mean()?)?;
    assert_eq!(x.to_vec()?, [-0.5]);
    Ok(())
}

#[test]
fn another_run_continues_with_the_saved_scale() -> Result<()> {
    let path = std::env::temp_dir().join(format!("cachescope-half-{}.npz", std::process::id()));
    let (x, classes) = batch::<f16>(8, 6)?;
    let optimizer = || LossScaled::new(Adam::new(0.01)).interval(3);
    let train = |network: &mut Network, optimizer: &mut LossScaled<Adam>, steps: usize| {
        (0..steps).try_for_each(|_| {
            value_and_step(network, optimizer, |own| own.loss(&x, &classes)).map(drop)
        })
    };
    let (mut network, mut first) = (Network::new(6)?, optimizer()?);
    train(&mut network, &mut first, 4)?;
    files::save(&(first.state(&network)?, first.scale_state()?), &path)?;
    let mut again = network.map_arrays(&mut Copies)?;
    train(&mut network, &mut first, 4)?;
    let mut second = optimizer()?;
    let like = (second.state(&again)?, second.scale_state()?);
    let (state, scale) = files::load(&like, &path)?;
    second.set_state(&again, &state)?;
    second.set_scale_state(&scale)?;
    train(&mut again, &mut second, 4)?;
    assert_eq!(numbers(&again)?, numbers(&network)?);
    assert_eq!(second.scale(), first.scale());
    std::fs::remove_file(path).unwrap();
    Ok(())
}

struct Copies;

impl cachescope::grad::MapArrays for Copies {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        array.lazy().eval()
    }
}

#[test]
fn ranks_skip_a_step_together() -> Result<()> {
    let moved = Group::threads(2, |group| {
        let mut x = vec![Array::<f32>::ones(5)?, Array::ones(3)?];
        let optimizer = LossScaled::new(Adam::new(0.1));
        let mut optimizer = Sharded::new(&group, optimizer)?;
        let mut ranks = DataParallel::new(&group);
        // The gradient of rank 1 overflows with the first scale.
        let slope = if group.rank() == 1 { 1.5 } else { 0.5 };
        for expected in [1.0, 0.9] {
            ranks.value_and_step(&mut x, &mut optimizer, |x| {
                Ok(line(&x[0], slope)? + line(&x[1], slope)?)
            })?;
            assert!(numbers(&x)?.iter().all(|own| (own - expected).abs() < 1e-6));
        }
        let optimizer = optimizer.optimizer_mut();
        Ok((
            optimizer.scale(),
            optimizer.skipped_steps(),
            optimizer.steps(),
        ))
    })?;
    assert_eq!(moved, [(32768.0, 1, 1); 2]);
    Ok(())
}

#[test]
fn half_parameters_take_steps_of_their_own() -> Result<()> {
    // Without a scaled loss, `Sgd` also updates a parameter in f16.
    let mut x = Array::<f16>::ones(2)?;
    value_and_step(&mut x, &mut Sgd::new(0.25), |x| x.square().sum())?;
    assert_eq!(x.to_vec()?, [f16::from_f32(0.5); 2]);
    // `f16` cannot represent the gradient 65536, so `LossScaled` skips the first step and halves
    // the scale.
    let mut optimizer = LossScaled::new(Sgd::new(0.25));
    for _ in 0..3 {
        value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
    }
    assert_eq!((optimizer.skipped_steps(), optimizer.scale()), (1, 32768.0));
    assert_eq!(x.to_vec()?, [f16::from_f32(0.125); 2]);
    Ok(())
}
