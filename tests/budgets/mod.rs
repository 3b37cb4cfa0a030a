//! Activation budgets: released values are recomputed, and the bits of gradients do not change.

mod limits;
mod random;

use std::fmt::Debug;

use cachescope::grad::nn::{Attention, Conv2d, LayerNorm, Linear, RmsNorm, dropout};
use cachescope::grad::optim::{AdamW, Sgd};
use cachescope::grad::{
    BudgetReport, Parameters, Tape, activation_budget, checkpoint, hvp, jvp, value_and_grad,
    value_and_step,
};
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, ErrorKind, FaultPlan, MetaOptions, PoolKind, Result,
    attention, cache_scope, concat, dry_run, manual_seed,
};

/// A model with an operation of each family.
#[derive(Parameters)]
struct Model {
    filters: Conv2d,
    words: Array<f32>,
    norms: (LayerNorm, RmsNorm),
    attention: Attention,
    up: Linear,
    down: Linear,
}

impl Model {
    fn new() -> Result<Self> {
        manual_seed(7);
        Ok(Self {
            filters: Conv2d::new((1, 4), [3, 3], ConvOptions::default())?,
            words: Array::randn([11, 16])?,
            norms: (LayerNorm::new(16)?, RmsNorm::new(16)?),
            attention: Attention::new(16, 2, true)?,
            up: Linear::new(16, 64)?,
            down: Linear::new(64, 16)?,
        })
    }

    /// Returns the loss for images of `[N, 1, 10, 10]` and words of `[N, 8]`.
    fn loss(&self, images: &Array<f32>, words: &Array<i64>) -> Result<Array<f32>> {
        let seen = self.filters.forward(images)?.relu().eval()?;
        let seen = seen.max_pool2d([2, 2], [2, 2])?;
        let count = seen.shape()[0];
        let seen = seen.reshape([count, 4, 16])?;
        let read = self.words.take(words, 0)?;
        let mut x = concat(&[&seen, &read], 1)?;
        for _ in 0..3 {
            let y = self.attention.forward(&self.norms.0.forward(&x)?)?;
            x = (&x + y).eval()?;
            let y = self.up.forward(&self.norms.1.forward(&x)?)?.gelu().eval()?;
            let y = self.down.forward(&dropout(&y, 0.25)?)?;
            x = (x + y).eval()?;
        }
        let weights = x.softmax(-1)?;
        let sums = (weights * &x).sum_axis(-1)?.cumsum(1)?.cumprod(0)?;
        sums.square().mean()
    }
}

fn batch() -> Result<(Array<f32>, Array<i64>)> {
    manual_seed(3);
    Ok((Array::rand([5, 1, 10, 10])?, Array::randint(0, 11, [5, 8])?))
}

/// Returns the elements of the loss and of all gradients, and the report of the budget.
fn gradients(budget_bytes: Option<u64>) -> Result<(Vec<Vec<f32>>, Option<BudgetReport>)> {
    let model = Model::new()?;
    let (images, words) = batch()?;
    manual_seed(11);
    let budget = budget_bytes.map(activation_budget);
    let (loss, gradients) = value_and_grad(&model, |model| model.loss(&images, &words))?;
    let mut numbers = vec![loss.to_vec()?];
    gradients.map_arrays(&mut Numbers(&mut numbers))?;
    // A budget leaves the state of the generator unchanged.
    numbers.push(Array::rand(4)?.to_vec()?);
    Ok((numbers, budget.map(|budget| budget.report())))
}

/// A visitor that collects the elements of arrays.
struct Numbers<'a>(&'a mut Vec<Vec<f32>>);

impl cachescope::grad::MapArrays for Numbers<'_> {
    fn map<T: cachescope::Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0.push(array.cast::<f32>().eval()?.to_vec()?);
        Ok(array.clone())
    }
}

/// Returns the number in the error's "expected at least N bytes".
#[track_caller]
fn least_bytes(error: impl Debug) -> u64 {
    let text = format!("{error:?}");
    let (_, rest) = text.split_once("expected at least ").expect(&text);
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn gradients_have_the_same_bits_with_every_budget() -> Result<()> {
    let (expected, _) = gradients(None)?;
    let (measured, report) = gradients(Some(u64::MAX))?;
    let all = report.unwrap();
    assert_eq!(measured, expected);
    assert_eq!((all.recomputed_operations, all.recomputed_bytes), (0, 0));
    let least = least_bytes(gradients(Some(0)).unwrap_err());
    assert!(least < all.saved_bytes / 5, "{least} of {all}");
    let mut recomputed = 0;
    for part in [95, 75, 50, 33, 20] {
        let budget = (all.saved_bytes * part / 100).max(least);
        let (some, report) = gradients(Some(budget))?;
        let report = report.unwrap();
        assert_eq!(some, expected, "{part} %");
        assert!(report.saved_bytes <= budget, "{part} %: {report}");
        assert!(report.recomputed_bytes >= recomputed, "{part} %: {report}");
        recomputed = report.recomputed_bytes;
        let text = report.to_string();
        assert!(text.contains("tests/budgets/mod.rs"), "{report}");
        // The report names lines of the program and of layers, but no lines of derivatives.
        assert!(!text.contains("derivatives"), "{report}");
    }
    let (some, report) = gradients(Some(least))?;
    assert_eq!(some, expected);
    assert!(report.unwrap().saved_bytes <= least);
    Ok(())
}

#[test]
fn a_budget_that_cannot_be_met_says_the_least_that_can() -> Result<()> {
    let x = Array::<f32>::ones([100, 100])?;
    let mask = Array::<f32>::ones([100, 100])?;
    let loss = |x: &Array<f32>| (x * &mask).exp().eval()?.square().eval()?.sum();
    let budget = activation_budget(0);
    let error = value_and_grad(&x, loss).unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::InvalidArgument, "CS0510")
    );
    assert!(error.to_string().contains(file!()), "{error}");
    let least = least_bytes(error);
    assert_eq!(least, 40_000); // The mask has 40,000 bytes.
    drop(budget);
    let _budget = activation_budget(least);
    value_and_grad(&x, loss)?;
    let _smaller = activation_budget(least - 1);
    value_and_grad(&x, loss).unwrap_err();
    Ok(())
}

#[test]
fn budgets_nest_and_the_smallest_one_counts() -> Result<()> {
    let x = Array::<f32>::ones(1000)?;
    let chain = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..8 {
            y = y.sin().eval()?;
        }
        y.sum()
    };
    let outer = activation_budget(10_000);
    let inner = activation_budget(1 << 20);
    value_and_grad(&x, chain)?;
    assert!(inner.report().saved_bytes <= 10_000);
    assert_eq!(inner.report().budget_bytes, 1 << 20);
    drop(outer); // Budgets may be dropped in any order.
    let outer_bytes = inner.report().recomputed_bytes;
    value_and_grad(&x, chain)?;
    assert_eq!(inner.report().recomputed_bytes, outer_bytes);
    assert!(inner.report().saved_bytes > 10_000);
    Ok(())
}

#[test]
fn functions_are_computed_again_before_products() -> Result<()> {
    let w = Array::<f32>::rand([64, 64])?;
    let x = Array::<f32>::rand([64, 64])?;
    let loss = |w: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..4 {
            y = y.matmul(w)?;
            y = y.tanh().eval()?;
            y = y.square().eval()?;
        }
        y.sum()
    };
    let all = activation_budget(u64::MAX);
    let (_, expected) = value_and_grad(&w, loss)?;
    let bytes = all.report().saved_bytes;
    let budget = activation_budget(bytes * 2 / 3);
    let (_, gradient) = value_and_grad(&w, loss)?;
    assert_eq!(gradient, expected);
    let report = budget.report();
    let text = report.to_string();
    let line_of_product = line!() - 14;
    assert!(report.recomputed_operations > 0, "{text}");
    assert!(
        !text.contains(&format!("budgets/mod.rs:{line_of_product}:")),
        "{text}"
    );
    Ok(())
}

#[test]
fn arrays_that_the_program_writes_in_place_count_as_they_were() -> Result<()> {
    let start = Array::<f32>::rand([50, 50])?;
    let loss = |x: &Array<f32>| -> Result<Array<f32>> {
        manual_seed(5);
        let mut noise = Array::<f32>::rand([50, 50])?;
        let mut scale = Array::<f32>::full([50, 50], 0.5)?;
        let mut y = x.clone();
        for _ in 0..6 {
            y = (&y * &noise).sin().eval()?;
            noise.update(|noise| noise * 0.9)?;
            noise
                .slice_mut(cachescope::ndarray::s![0..3, ..])?
                .fill(0.25)?;
            y = (y * &scale).exp().eval()?;
            scale.update(|scale| scale + 0.1)?;
            y.update(|y| y + 1.0)?;
            y.slice_mut(cachescope::ndarray::s![.., 0])?.assign(2.0)?;
        }
        y.sum()
    };
    let (value, expected) = value_and_grad(&start, loss)?;
    let budget = activation_budget(0);
    let least = least_bytes(value_and_grad(&start, loss).unwrap_err());
    drop(budget);
    for budget_bytes in [1 << 30, 200_000, least] {
        let _budget = activation_budget(budget_bytes.max(least));
        let (own, gradient) = value_and_grad(&start, loss)?;
        assert_eq!((&own, &gradient), (&value, &expected));
    }
    Ok(())
}

#[test]
fn a_step_of_the_optimizer_in_the_backward_pass_is_the_same() -> Result<()> {
    let train = |budget: Option<u64>| -> Result<Vec<Vec<f32>>> {
        let mut model = Model::new()?;
        let (images, words) = batch()?;
        let mut optimizer = AdamW::new(0.01);
        manual_seed(11);
        let _budget = budget.map(activation_budget);
        for _ in 0..3 {
            cache_scope!("step", {
                value_and_step(&mut model, &mut optimizer, |model| {
                    model.loss(&images, &words)
                })?;
            });
        }
        let mut numbers = Vec::new();
        model.map_arrays(&mut Numbers(&mut numbers))?;
        Ok(numbers)
    };
    let expected = train(None)?;
    assert_eq!(train(Some(60_000))?, expected);
    Ok(())
}

#[test]
fn second_derivatives_and_tapes_are_the_same() -> Result<()> {
    let w = Array::<f64>::rand([6, 6])?;
    let v = Array::<f64>::rand([6, 6])?;
    let loss = |w: &Array<f64>| {
        let y = w.matmul(w)?.tanh().eval()?;
        let y = y.matmul(w)?.softmax(1)?;
        y.square().eval()?.matmul(w)?.exp().eval()?.sum()
    };
    let product = hvp(&w, &v, loss)?;
    let forward = jvp(&w, &v, |w| w.matmul(w)?.exp().eval()?.sin().eval())?;
    let mut tape = Tape::begin()?;
    let x = tape.track(&w)?;
    let by_tape = tape.gradients(loss(&x)?, x)?;
    let _budget = activation_budget(600);
    assert_eq!(hvp(&w, &v, loss)?, product);
    assert_eq!(
        jvp(&w, &v, |w| w.matmul(w)?.exp().eval()?.sin().eval())?,
        forward
    );
    let mut tape = Tape::begin()?;
    let x = tape.track(&w)?;
    assert_eq!(tape.gradients(loss(&x)?, x)?, by_tape);
    Ok(())
}

#[test]
fn checkpoints_count_and_work_inside_of_a_budget() -> Result<()> {
    let x = Array::<f32>::rand([40, 40])?;
    let loss = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..3 {
            y = y.sin().eval()?;
            y = checkpoint(&y, |y| y.exp().eval()?.tanh().eval()?.matmul(y))?;
            y = y.cos().eval()?;
        }
        y.sum()
    };
    let (_, expected) = value_and_grad(&x, loss)?;
    let budget = activation_budget(0);
    let least = least_bytes(value_and_grad(&x, loss).unwrap_err());
    drop(budget);
    assert!(least >= 3 * 6400, "{least}");
    let _budget = activation_budget(least);
    assert_eq!(value_and_grad(&x, loss)?.1, expected);
    Ok(())
}

#[test]
fn a_long_chain_needs_no_stack_and_few_runs() -> Result<()> {
    let length = 5000;
    let x = Array::<f32>::full(64, 0.5)?;
    let chain = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..length {
            y = y.sin().eval()?;
        }
        y.sum()
    };
    let (_, expected) = value_and_grad(&x, chain)?;
    let budget = activation_budget(256 * 300);
    assert_eq!(value_and_grad(&x, chain)?.1, expected);
    let operations = budget.report().recomputed_operations;
    assert!(operations < 3 * length, "{operations} of {length}");
    // An error in the middle of the loss drops the tape.
    let failing = |x: &Array<f32>| {
        let y = chain(x)?;
        y.reshape([3, 3])
    };
    value_and_grad(&x, failing).unwrap_err();
    Ok(())
}

#[test]
fn the_peak_falls_and_the_device_counts_what_is_computed_again() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let x = Array::<f32>::full([1000, 100], 0.5)?;
    let chain = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..16 {
            y = y.sin().eval()?;
        }
        y.sum()
    };
    value_and_grad(&x, chain)?;
    let peak = device.memory_stats().peak_live_bytes;
    device.reset_peaks();
    let budget = activation_budget(4 * 400_000);
    value_and_grad(&x, chain)?;
    let stats = device.memory_stats();
    assert!(
        stats.peak_live_bytes <= peak / 2,
        "{} of {peak}",
        stats.peak_live_bytes
    );
    assert_eq!(stats.recomputed_bytes, budget.report().recomputed_bytes);
    assert!(stats.recomputed_bytes > 0);
    Ok(())
}

#[test]
fn a_dry_run_has_the_peak_of_a_real_run() -> Result<()> {
    let step = || {
        let model = Model::new()?;
        let (images, words) = batch()?;
        let budget = activation_budget(60_000);
        value_and_grad(&model, |model| model.loss(&images, &words))?;
        Ok(budget.report().to_string())
    };
    let real = Device::host_with(DeviceConfig::default())?;
    let report = {
        let _current = real.enter();
        step()?
    };
    let dry = dry_run(MetaOptions::default(), step)?;
    assert_eq!(dry.value, report);
    assert_eq!(dry.peak_live_bytes, real.memory_stats().peak_live_bytes);
    Ok(())
}
