//! Activation budgets: what is released is computed again, and gradients keep their bits.

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

/// Returns the loss and all gradients as numbers, and the report of a budget.
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

/// Collects the elements of arrays.
struct Numbers<'a>(&'a mut Vec<Vec<f32>>);

impl cachescope::grad::MapArrays for Numbers<'_> {
    fn map<T: cachescope::Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0.push(array.cast::<f32>().eval()?.to_vec()?);
        Ok(array.clone())
    }
}

/// Returns the number in the error's "the least budget is N bytes".
#[track_caller]
fn least_bytes(error: impl Debug) -> u64 {
    let text = format!("{error:?}");
    let (_, rest) = text.split_once("the least budget is ").expect(&text);
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
        assert!(text.contains("tests/budgets.rs"), "{report}");
        // A line is of the program, or of a layer.
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
    assert_eq!(least, 40_000); // The mask.
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
    drop(outer); // In any order.
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
        !text.contains(&format!("budgets.rs:{line_of_product}:")),
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
    let x = tape.follow(&w)?;
    let by_tape = tape.gradients(loss(&x)?, x)?;
    let _budget = activation_budget(600);
    assert_eq!(hvp(&w, &v, loss)?, product);
    assert_eq!(
        jvp(&w, &v, |w| w.matmul(w)?.exp().eval()?.sin().eval())?,
        forward
    );
    let mut tape = Tape::begin()?;
    let x = tape.follow(&w)?;
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
    // An error in the middle drops the tape.
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

#[test]
fn an_allocation_that_fails_while_computing_again_is_an_error() -> Result<()> {
    let expected = gradients(Some(60_000))?.0;
    for failing in (1..).step_by(7) {
        let config = DeviceConfig {
            fault: Some(FaultPlan::From(failing)),
            pool: PoolKind::Direct,
            ..Default::default()
        };
        let device = Device::host_with(config)?;
        let current = device.enter();
        match gradients(Some(60_000)) {
            Ok((numbers, _)) => {
                assert_eq!(numbers, expected);
                assert!(failing > 1);
                break;
            }
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
        assert_eq!(device.memory_stats().live_bytes, 0);
        drop(current);
        assert_eq!(gradients(Some(60_000))?.0, expected);
    }
    Ok(())
}

#[test]
fn a_step_beyond_a_memory_limit_releases_what_it_can_compute_again() -> Result<()> {
    let x = Array::<f32>::full([1000, 100], 0.5)?;
    let chain = |x: &Array<f32>| {
        let mut y = x.clone();
        for _ in 0..24 {
            y = y.sin().eval()?;
        }
        y.sum()
    };
    let (_, expected) = value_and_grad(&x, chain)?;
    for expandable_segments in [true, false] {
        let config = DeviceConfig {
            memory_limit: Some(5 << 20),
            expandable_segments,
            ..Default::default()
        };
        let device = Device::host_with(config)?;
        let _current = device.enter();
        let x = x.to_device(&device)?;
        for _ in 0..3 {
            let (_, gradient) = cache_scope!("step", { value_and_grad(&x, chain)? });
            assert_eq!(gradient.to_vec()?, expected.to_vec()?);
        }
        let stats = device.memory_stats();
        assert!(stats.recomputed_bytes > 0);
        assert!(stats.peak_reserved_bytes <= 5 << 20);
        // Constants that cannot be computed again do not fit.
        let masks = |x: &Array<f32>| {
            let mut y = x.clone();
            for _ in 0..16 {
                let mask = Array::<f32>::rand([1000, 100])?
                    .gt(0.5)
                    .cast::<f32>()
                    .eval()?;
                y = (y * mask).eval()?;
            }
            y.sum()
        };
        let error = value_and_grad(&x, masks).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        value_and_grad(&x, chain)?;
    }
    Ok(())
}

/// The middle one of three parts.
const MIDDLE: std::ops::Range<usize> = 100_000..200_000;

/// Operands that no step saves are not kept to compute a result again.
#[test]
fn a_budget_keeps_nothing_that_no_step_saves() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        memory_limit: Some(4 << 20),
        ..Default::default()
    })?;
    let _current = device.enter();
    let x = Array::<f32>::ones(100_000)?;
    let mut running = Array::<f32>::zeros(100_000)?;
    let address = running.address();
    let mut loss = |x: &Array<f32>| {
        let mut y = x.clone();
        for number in 0..30 {
            let constant = Array::full(100_000, number as f32)?;
            y = (&y + &constant).eval()?;
            y = concat(&[&constant, &y, &constant], 0)?.slice(cachescope::ndarray::s![MIDDLE])?;
        }
        let y = (y - &running).eval()?;
        running.update(|running| running * 0.9 + 1.0)?;
        y.sum()
    };
    value_and_grad(&x, &mut loss)?; // under the limit
    let budget = activation_budget(0);
    value_and_grad(&x, &mut loss)?;
    assert_eq!(budget.report().saved_bytes, 0);
    assert_eq!(running.address(), address);
    Ok(())
}

/// A budget that a tape sets itself, under a memory limit, is no promise that can be broken.
#[test]
fn pressure_without_a_budget_is_no_error_of_a_budget() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        memory_limit: Some(8 << 20),
        ..Default::default()
    })?;
    let _current = device.enter();
    let x = Array::<f32>::full(100_000, 0.5)?;
    let (_, gradient) = value_and_grad(&x, |x| {
        let mut y = x.clone();
        for _ in 0..14 {
            y = y.sin().eval()?;
        }
        drop(Array::<u8>::zeros(2_600_000)?);
        for number in 0..8 {
            // Cannot be computed again.
            let mask = Array::full(100_000, number as f32)?;
            y = (y * mask).sin().eval()?;
        }
        drop(Array::<u8>::zeros(4_000_000)?);
        y.sum()
    })?;
    assert_eq!(gradient.len(), 100_000);
    assert!(device.memory_stats().recomputed_bytes > 0);
    Ok(())
}

/// A value that was computed in the memory of a part of another one begins inside of it.
#[test]
fn values_in_the_memory_of_others_have_second_derivatives() -> Result<()> {
    let x = Array::<f64>::rand(100)?;
    let v = Array::<f64>::rand(100)?;
    let loss = |x: &Array<f64>| {
        let whole = x.sin().eval()?;
        let mut part = whole.slice(cachescope::ndarray::s![50..])?;
        drop(whole);
        part.update(|part| part + 1.0)?;
        part.sin().eval()?.square().sum()
    };
    let expected = hvp(&x, &v, loss)?;
    // The first pass names its least budget, and the second pass a larger one.
    let mut least = 0;
    let product = loop {
        let _budget = activation_budget(least);
        match hvp(&x, &v, loss) {
            Ok(product) => break product,
            Err(error) => {
                let larger = least_bytes(error);
                assert!(larger > least);
                least = larger;
            }
        }
    };
    assert_eq!(product, expected);
    Ok(())
}

/// Pressure on one device releases values of that device, whatever the cost of others.
#[test]
fn pressure_releases_values_of_its_device() -> Result<()> {
    let limited = Device::host_with(DeviceConfig {
        memory_limit: Some(6 << 20),
        ..Default::default()
    })?;
    let (x, other) = {
        let _current = limited.enter();
        (
            Array::<f32>::rand([512, 512])?,
            Array::<f32>::rand([16, 512])?,
        )
    };
    let _budget = activation_budget(u64::MAX);
    let (_, gradient) = value_and_grad(&x, |x| {
        let far = x.to_device(&Device::host())?;
        let mut cheap = far.clone();
        for _ in 0..8 {
            cheap = cheap.sin().eval()?;
        }
        let mut y = x.clone();
        for _ in 0..8 {
            y = (y.matmul(x)? * 0.01).eval()?;
        }
        other
            .matmul(&y)?
            .sum()?
            .to_device(&Device::host())?
            .lazy()
            .eval()
            .and_then(|y| (y + cheap.sum()?).eval())
    })?;
    assert!(gradient.sum()?.item()?.is_finite());
    Ok(())
}

#[test]
fn a_view_of_any_length_is_counted_without_overflow() -> Result<()> {
    let x = Array::<f32>::ones([])?;
    let _budget = activation_budget(1 << 20);
    let (_, gradient) = value_and_grad(&x, |x| {
        let long = (x * 2.0).eval()?.broadcast_to([1 << 30, 1 << 30])?;
        let part = long.slice(cachescope::ndarray::s![0..2, 0..3])?;
        part.square().sum()
    })?;
    assert_eq!(gradient.item()?, 48.0);
    let (_, gradient) = value_and_grad(&x, |x| {
        let long = x.broadcast_to([1 << 40, 0])?;
        (x + (long * 2.0).eval()?.sum()?).eval()
    })?;
    assert_eq!(gradient.item()?, 1.0);
    Ok(())
}

#[test]
fn sgd_with_a_budget_writes_parameters_in_place() -> Result<()> {
    let mut w = Array::<f32>::rand([32, 32])?;
    let address = w.address();
    let _budget = activation_budget(2 * 32 * 32 * 4);
    for _ in 0..3 {
        value_and_step(&mut w, &mut Sgd::new(0.1), |w| {
            let y = w.sin().eval()?.matmul(w)?.tanh().eval()?;
            y.matmul(w)?.exp().eval()?.mean()
        })?;
    }
    assert_eq!(w.address(), address);
    Ok(())
}

/// Numbers for the choices of a random program.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

/// Computes a loss by some forty operations, which `seed` chooses, on values of `[12, 12]`.
fn random_program(x: &Array<f32>, seed: u64) -> Result<Array<f32>> {
    let mut choices = Choices(seed);
    let constant = Array::<f32>::rand([12, 12])?;
    let indices = Array::<i64>::randint(0, 12, [12])?;
    let mut values = vec![x.clone(), constant, (x * 0.5).eval()?];
    for _ in 0..40 {
        let one = values[choices.below(values.len())].clone();
        let other = values[choices.below(values.len())].clone();
        let next = match choices.below(18) {
            0 => one.sin().eval()?,
            1 => one.tanh().eval()?,
            2 => (&one + &other).eval()?,
            3 => (one * other * 0.5).eval()?,
            4 => (one.matmul(&other)? * 0.1).eval()?,
            5 => one.softmax(choices.below(2) as isize)?,
            6 => (&other - one.mean_axis(1)?.unsqueeze(1)?).eval()?,
            7 => one.t()?.lazy().eval()?,
            8 => concat(&[&one, &other], 0)?.slice(cachescope::ndarray::s![3..15, ..])?,
            9 => (one * Array::<f32>::dropout_mask(0.5, [12, 12])?).eval()?,
            10 => one.layer_norm(&other.select_row(0)?, &other.select_row(1)?, 1e-5)?,
            11 => (one.cumsum(0)? * 0.1).eval()?,
            12 => one.take(&indices, 0)?,
            13 => {
                let heads = [&one, &other, &one].map(|own| own.reshape([2, 6, 12]));
                let [q, k, v] = heads;
                attention(&q?, &k?, &v?, true)?.reshape([12, 12])?
            }
            14 => {
                let images = one.reshape([1, 1, 12, 12])?;
                let pooled = images.max_pool2d([3, 3], [1, 1])?.reshape([10, 10])?;
                pooled.pad(&[(1, 1), (1, 1)], 0.0)?
            }
            15 => {
                let mut written = one;
                written.update(|own| own + &other)?;
                written
            }
            16 => {
                let mut written = one;
                written
                    .slice_mut(cachescope::ndarray::s![2..5, ..])?
                    .assign(0.5)?;
                written
            }
            _ => checkpoint(&one, |own| own.cos().eval()?.exp().eval()?.tanh().eval())?,
        };
        match choices.below(3) {
            // The program holds the value no more.
            0 => {
                let place = choices.below(values.len());
                values[place] = next;
            }
            _ => values.push(next),
        }
    }
    let last = values.iter().skip(values.len() / 2);
    let last = last.map(|own| own.tanh().mean());
    let mut sum = Array::<f32>::zeros([])?;
    for own in last {
        sum = (sum + own?).eval()?;
    }
    (sum + x.mean()?).eval()
}

/// Rows of a matrix.
trait SelectRow {
    fn select_row(&self, row: isize) -> Result<Array<f32>>;
}

impl SelectRow for Array<f32> {
    fn select_row(&self, row: isize) -> Result<Array<f32>> {
        self.slice(cachescope::ndarray::s![row, ..])
    }
}

#[test]
fn random_programs_have_the_same_gradients_with_a_budget() -> Result<()> {
    let mut recomputed = 0;
    for seed in 0..50 {
        manual_seed(seed);
        let x = Array::<f32>::rand([12, 12])?;
        let run = |budget_bytes: Option<u64>| {
            manual_seed(seed + 1000);
            let budget = budget_bytes.map(activation_budget);
            let done = value_and_grad(&x, |x| random_program(x, seed));
            done.map(|(value, gradient)| {
                let numbers = (value.to_vec(), gradient.to_vec());
                (format!("{numbers:?}"), budget.map(|budget| budget.report()))
            })
        };
        let (expected, _) = run(None)?;
        let all = run(Some(u64::MAX))?;
        assert_eq!(all.0, expected, "{seed}");
        let least = match run(Some(0)) {
            Ok(_) => 0,
            Err(error) => least_bytes(error),
        };
        let half = all.1.expect("there was a budget").saved_bytes / 2;
        for budget in [least, half.max(least)] {
            let (some, report) = run(Some(budget))?;
            let report = report.expect("there was a budget");
            assert_eq!(some, expected, "{seed} with {budget}");
            assert!(
                report.saved_bytes <= budget,
                "{seed} with {budget}: {report}"
            );
            recomputed += report.recomputed_operations;
        }
    }
    assert!(recomputed > 1000, "{recomputed}");
    Ok(())
}
