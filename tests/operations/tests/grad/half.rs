//! Training in half precision with parameters in `f32`: converted structures and scaled losses.

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::nn::{
    Attention, BatchNorm, Conv2d, ConvTranspose2d, Embedding, GroupNorm, Gru, LayerNorm, Linear,
    Lstm, RmsNorm,
};
use cachescope::grad::optim::{
    Accumulated, Adam, AdamW, Clipped, Groups, LossScaled, Muon, Sgd, Stateful,
};
use cachescope::grad::{
    CastParameters, Optimizer, Parameters, activation_budget, files, value_and_grad, value_and_step,
};
use cachescope::testing::{assert_no_growth, peak_of};
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, ErrorKind, Float, MetaOptions, Policy, Result,
    cache_scope, dry_run, manual_seed,
};
use half::{bf16, f16};

/// Layers whose activations need more memory than the parameters.
#[derive(Parameters, CastParameters)]
struct Network<T: Float = f32> {
    layers: Vec<Linear<T>>,
    norm: LayerNorm<T>,
    out: Option<Linear<T>>,
}

impl Network {
    fn new(width: usize) -> Result<Self> {
        manual_seed(5);
        Ok(Self {
            layers: (0..4)
                .map(|_| Linear::new(width, width))
                .collect::<Result<_>>()?,
            norm: LayerNorm::new(width)?,
            out: Some(Linear::new(width, 3)?),
        })
    }

    /// Returns the loss in `f32`, computed in `T`.
    fn loss<T: Float>(&self, x: &Array<T>, classes: &Array<i64>) -> Result<Array<f32>> {
        let scores = self.cast::<T>()?.scores(x)?;
        scores.cast::<f32>().eval()?.cross_entropy(classes)
    }
}

impl<T: Float> Network<T> {
    fn scores(&self, x: &Array<T>) -> Result<Array<T>> {
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward(&x)?.gelu().eval()?;
        }
        let x = self.norm.forward(&x)?;
        self.out
            .as_ref()
            .map_or(Ok(x.clone()), |out| out.forward(&x))
    }
}

fn batch<T: Float>(count: usize, width: usize) -> Result<(Array<T>, Array<i64>)> {
    manual_seed(9);
    let x = Array::<f32>::randn([count, width])?.cast().eval()?;
    Ok((x, Array::randint(0, 3, count)?))
}

fn numbers<P: Parameters>(parameters: &P) -> Result<Vec<f64>> {
    struct Numbers(Vec<f64>);
    impl cachescope::grad::MapArrays for Numbers {
        fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
            self.0.extend(array.cast::<f64>().eval()?.to_vec()?);
            Ok(array.clone())
        }
    }
    let mut numbers = Numbers(Vec::new());
    parameters.map_arrays(&mut numbers)?;
    Ok(numbers.0)
}

/// Returns a loss whose gradient for `x` is `slope`, computed in `f16`. The gradient of the product
/// is a sixteenth of the scale.
fn line(x: &Array<f32>, slope: f32) -> Result<Array<f32>> {
    let y = (x.cast::<f16>().eval()? * f16::from_f32(16.0 * slope)).eval()?;
    (y.cast::<f32>() / 16.0).sum()
}

#[derive(Parameters, CastParameters)]
struct Every<'a, T: Float, const N: usize> {
    attention: Attention<T>,
    norms: (BatchNorm<T>, GroupNorm<T>, RmsNorm<T>),
    convolutions: Box<(Conv2d<T>, ConvTranspose2d<T>)>,
    recurrent: (Gru<T>, Lstm<T>),
    words: [Embedding<T>; N],
    wide: LayerNorm,
    #[parameters(skip)]
    name: &'a str,
}

#[test]
fn every_layer_is_converted_and_its_gradients_are_of_the_parameters() -> Result<()> {
    let options = ConvOptions::default();
    let every = Every::<f32, 1> {
        attention: Attention::new(4, 2, true)?,
        norms: (BatchNorm::new(2)?, GroupNorm::new(1, 2)?, RmsNorm::new(4)?),
        convolutions: Box::new((
            Conv2d::new((1, 2), [1, 1], options)?,
            ConvTranspose2d::new((2, 1), [1, 1], options)?,
        )),
        recurrent: (Gru::new(4, 4)?, Lstm::new(4, 4)?),
        words: [Embedding::new(3, 4)?],
        wide: LayerNorm::new(4)?,
        name: "every",
    };
    let (value, gradients) = value_and_grad(&every, |own| {
        let own: Every<'_, bf16, 1> = own.cast()?;
        assert_eq!(own.name, "every");
        let x = own.words[0].forward(&Array::from_slice(&[0_i64, 2, 1, 0], [2, 2])?)?;
        let x = own.attention.forward(&own.norms.2.forward(&x)?)?;
        let (x, _) = own
            .recurrent
            .1
            .forward(&own.recurrent.0.forward(&x, None)?.0, None)?;
        let x = own.convolutions.0.forward(&x.unsqueeze(1)?)?;
        let x = own.norms.1.forward(&own.norms.0.forward(&x)?)?;
        let x = own.convolutions.1.forward(&x)?.cast::<f32>().eval()?;
        (own.wide.forward(&x)? * Array::<f32>::arange(0.0, 4.0, 1.0)?)
            .square()
            .mean()
    })?;
    assert!(value.item()?.is_finite());
    let gradients = numbers(&gradients)?;
    assert_eq!(gradients.len(), numbers(&every)?.len());
    assert!(gradients.iter().all(|own| own.is_finite()));
    assert!(gradients.iter().any(|own| *own != 0.0));
    let statistics = every.norms.0.statistics.arrays();
    assert_ne!(
        statistics.0.to_vec()?,
        [0.0; 2],
        "the layer in f32 has the statistics"
    );
    Ok(())
}

#[test]
fn running_statistics_are_mixed_in_the_type_of_the_parameters() -> Result<()> {
    let (wide, narrow) = (BatchNorm::<f32>::new(3)?, BatchNorm::<f32>::new(3)?);
    let x = (Array::<f32>::randn([64, 3])? * 2.0 + 1.0)
        .cast::<bf16>()
        .eval()?;
    for _ in 0..50 {
        wide.forward(&x.cast().eval()?)?;
        let own = narrow.cast::<bf16>()?;
        own.forward(&x)?;
        let rounded = narrow.statistics.arrays().1.cast::<bf16>().eval()?;
        assert_eq!(own.statistics.arrays().1, rounded);
    }
    let both = [wide, narrow].map(|own| own.statistics.arrays());
    for (own, other) in [(&both[0].0, &both[1].0), (&both[0].1, &both[1].1)] {
        let apart = (own - other).abs().max()?.item()?;
        assert!(apart < 1e-5, "{apart}");
    }
    let layer = BatchNorm::<f32>::new(3)?;
    layer.cast::<f32>()?.forward(&x.cast().eval()?)?;
    assert_ne!(layer.statistics.arrays().0.to_vec()?, [0.0; 3]);
    let halves = layer.cast::<bf16>()?.statistics;
    let error = halves.set(halves.arrays()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    Ok(())
}

#[test]
fn norms_of_f16_do_not_overflow() -> Result<()> {
    // The square of 400 is infinite in f16.
    let x = (Array::<f32>::randn([8, 4, 6])? * 400.0)
        .cast::<f16>()
        .eval()?;
    let wide = x.cast::<f32>().eval()?;
    let near = |own: Array<f16>, expected: Array<f32>| -> Result<()> {
        let apart = (own.cast::<f32>() - expected).abs().max()?.item()?;
        assert!(apart < 3e-3, "{apart}");
        Ok(())
    };
    let (own, other) = (GroupNorm::new(2, 4)?, GroupNorm::new(2, 4)?);
    near(own.forward(&x)?, other.forward(&wide)?)?;
    let other = BatchNorm::<f32>::new(4)?;
    let own = BatchNorm::<f32>::new(4)?.cast::<f16>()?;
    near(own.forward(&x)?, other.forward(&wide)?)?;
    near(own.infer(&x)?, other.infer(&wide)?)?;
    let (_, gradient) = value_and_grad(&x, |x| (own.forward(x)? * x).mean())?;
    let (_, expected) = value_and_grad(&wide, |x| (other.forward(x)? * x).mean())?;
    let apart = (gradient.cast::<f32>() - &expected).norm()?.item()?;
    assert!(apart < 2e-3 * expected.norm()?.item()?, "{apart}");
    Ok(())
}

#[test]
fn products_and_sums_of_many_terms_are_added_in_f32() -> Result<()> {
    // In bf16, 256 + 1 is 256.
    let ones = Array::<bf16>::ones([1, 5000])?;
    let exact = bf16::from_f32(5000.0);
    assert_eq!(ones.sum()?.item()?, exact);
    assert_eq!(ones.matmul(&ones.t()?)?.item()?, exact);
    let (_, gradient) = value_and_grad(&Array::<bf16>::zeros(1)?, |bias| {
        (bias + Array::<bf16>::ones([5000, 1])?).eval()?.sum()
    })?;
    assert_eq!(gradient.item()?, exact);
    let image = Array::<bf16>::ones([1, 5000, 1, 1])?;
    assert_eq!(image.conv2d(&image, ConvOptions::default())?.item()?, exact);
    let classes = Array::<i64>::zeros(1)?;
    let loss = Array::<bf16>::zeros([1, 5000])?.cross_entropy(&classes)?;
    assert_eq!(loss.item()?, bf16::from_f32(5000_f32.ln()));
    Ok(())
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
    // Gradients of the loss times the scale, for a step of their own.
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
    // Two factors of 10⁻⁴: their product is 0 in f16.
    let small = |x: &Array<f32>| -> Result<Array<f32>> {
        let y = (x.cast::<f16>().eval()? * f16::from_f32(1e-4)).eval()?;
        (y.cast::<f32>() * 1e-4).sum()
    };
    let mut x = Array::<f32>::zeros(2)?;
    value_and_step(&mut x, &mut Sgd::new(1e8), small)?;
    assert_eq!(x.to_vec()?, [0.0; 2]);
    value_and_step(&mut x, &mut LossScaled::new(Sgd::new(1e8)), small)?;
    assert!(x.to_vec()?.iter().all(|own| (own + 1.0).abs() < 1e-3));
    // bf16 has the exponents of f32.
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
    // One of two gradients overflows: 2 · 65536.
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
    // The error is no state: a finite loss moves the parameters.
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

/// An optimizer that forwards steps only.
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
    // A gradient of norm 0.5, clipped to 0.25.
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
    // A parameter in f16 without a scale: its optimizer computes in f16.
    let mut x = Array::<f16>::ones(2)?;
    value_and_step(&mut x, &mut Sgd::new(0.25), |x| x.square().sum())?;
    assert_eq!(x.to_vec()?, [f16::from_f32(0.5); 2]);
    // A loss in f16 represents no gradient of 65536, and so lowers the scale.
    let mut optimizer = LossScaled::new(Sgd::new(0.25));
    for _ in 0..3 {
        value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
    }
    assert_eq!((optimizer.skipped_steps(), optimizer.scale()), (1, 32768.0));
    assert_eq!(x.to_vec()?, [f16::from_f32(0.125); 2]);
    Ok(())
}

#[test]
fn activations_take_half_of_the_memory() -> Result<()> {
    fn peak<T: Float>() -> Result<u64> {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let mut network = Network::new(32)?;
        let (x, classes) = batch::<T>(4096, 32)?;
        let mut optimizer = LossScaled::new(Sgd::new(0.1));
        let mut step =
            || value_and_step(&mut network, &mut optimizer, |own| own.loss(&x, &classes));
        step()?;
        Ok(peak_of(&device, step)?.1)
    }
    let (wide, bf16, f16) = (peak::<f32>()?, peak::<bf16>()?, peak::<f16>()?);
    assert_eq!(bf16, f16);
    assert!(bf16 * 100 < wide * 60, "{bf16} of {wide} bytes");
    Ok(())
}

#[test]
fn a_dry_run_has_the_peak_of_a_real_run() -> Result<()> {
    let program = || -> Result<()> {
        let mut network = Network::new(32)?;
        let (x, classes) = batch::<f16>(256, 32)?;
        let mut optimizer = LossScaled::new(Clipped::new(AdamW::new(0.1)).norm(1.0));
        for _ in 0..3 {
            cache_scope!("dry", {
                value_and_step(&mut network, &mut optimizer, |own| own.loss(&x, &classes))?;
            });
        }
        Ok(())
    };
    let device = Device::host_with(DeviceConfig::default())?;
    {
        let _current = device.enter();
        program()?;
    }
    let dry = dry_run(MetaOptions::default(), program)?;
    let real = device.memory_stats();
    assert_eq!(dry.peak_live_bytes, real.peak_live_bytes);
    Ok(())
}

#[test]
fn a_budget_keeps_the_bits_of_the_gradients() -> Result<()> {
    let (network, (x, classes)) = (Network::new(32)?, batch::<bf16>(64, 32)?);
    let gradients = |budget_bytes: u64| {
        let budget = activation_budget(budget_bytes);
        let (_, gradients) = value_and_grad(&network, |own| own.loss(&x, &classes))?;
        Ok((numbers(&gradients)?, budget.report()))
    };
    let (expected, all): (_, cachescope::grad::BudgetReport) = gradients(u64::MAX)?;
    let (own, report) = gradients(all.saved_bytes / 2)?;
    assert_eq!(own, expected);
    assert!(
        report.recomputed_bytes > 0 && report.saved_bytes <= all.saved_bytes / 2,
        "{report}"
    );
    Ok(())
}

#[test]
fn steps_in_a_scope_need_no_more_memory_over_time() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Plan] {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        device.configure_cache(
            "half",
            cachescope::CacheConfig {
                policy,
                ..Default::default()
            },
        );
        let mut network = Network::new(8)?;
        let (x, classes) = batch::<f16>(16, 8)?;
        let mut optimizer = LossScaled::new(Clipped::new(Muon::new(0.01)).norm(1.0)).interval(7)?;
        let mut step =
            || value_and_step(&mut network, &mut optimizer, |own| own.loss(&x, &classes));
        for _ in 0..3 {
            cache_scope!("half", {
                step()?;
            });
        }
        assert_no_growth!("half", 100, {
            step()?;
        });
        let stats = device.cache_stats("half").unwrap();
        assert_eq!(stats.escaped_blocks, 0);
    }
    Ok(())
}
