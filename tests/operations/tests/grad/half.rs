//! Training in half precision, with parameters in `f32` and converted structures.

use cachescope::grad::nn::{
    Attention, BatchNorm, Conv2d, ConvTranspose2d, Embedding, GroupNorm, Gru, LayerNorm, Linear,
    Lstm, RmsNorm,
};
use cachescope::grad::optim::{AdamW, Clipped, LossScaled, Muon, Sgd};
use cachescope::grad::{
    CastParameters, Parameters, activation_budget, value_and_grad, value_and_step,
};
use cachescope::testing::{assert_no_growth, peak_of};
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, ErrorKind, Float, MetaOptions, Policy, Result,
    cache_scope, dry_run, manual_seed,
};
use half::{bf16, f16};

/// Layers whose activations need more memory than the parameters.
#[derive(Parameters, CastParameters)]
pub(super) struct Network<T: Float = f32> {
    layers: Vec<Linear<T>>,
    norm: LayerNorm<T>,
    out: Option<Linear<T>>,
}

impl Network {
    pub(super) fn new(width: usize) -> Result<Self> {
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
    pub(super) fn loss<T: Float>(&self, x: &Array<T>, classes: &Array<i64>) -> Result<Array<f32>> {
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

pub(super) fn batch<T: Float>(count: usize, width: usize) -> Result<(Array<T>, Array<i64>)> {
    manual_seed(9);
    let x = Array::<f32>::randn([count, width])?.cast().eval()?;
    Ok((x, Array::randint(0, 3, count)?))
}

pub(super) fn numbers<P: Parameters>(parameters: &P) -> Result<Vec<f64>> {
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
fn running_statistics_are_mixed_in_the_accumulation_type() -> Result<()> {
    manual_seed(1);
    let (wide, narrow) = (BatchNorm::<f32>::new(3)?, BatchNorm::<f32>::new(3)?);
    let x = (Array::<f32>::randn([64, 3])? * 2.0 + 1.0)
        .cast::<bf16>()
        .eval()?;
    for _ in 0..50 {
        wide.forward(&x.cast().eval()?)?;
        let own = narrow.cast::<bf16>()?;
        own.forward(&x)?;
        assert_eq!(own.statistics.arrays(), narrow.statistics.arrays());
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
    manual_seed(1);
    // The square of 400 is infinite in f16.
    let x = (Array::<f32>::randn([8, 4, 6])? * 400.0)
        .cast::<f16>()
        .eval()?;
    let wide = x.cast::<f32>().eval()?;
    let near = |own: Array<f16>, expected: Array<f32>| -> Result<()> {
        let apart = (own.cast::<f32>() - &expected) / expected.abs().maximum(1.0);
        let apart = apart.abs().max()?.item()?;
        assert!(apart < 1e-3, "{apart}"); // One rounding has an error of 4.9e-4.
        Ok(())
    };
    let (own, other) = (GroupNorm::new(2, 4)?, GroupNorm::new(2, 4)?);
    near(own.forward(&x)?, other.forward(&wide)?)?;
    let other = BatchNorm::<f32>::new(4)?;
    let own = BatchNorm::<f32>::new(4)?.cast::<f16>()?;
    near(own.forward(&x)?, other.forward(&wide)?)?;
    near(own.forward_inference(&x)?, other.forward_inference(&wide)?)?;
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
    // At the peak, the gradient of the last weight is `f32` instead of `f16`.
    let of_last_weight = 32 * 3 * 2;
    assert_eq!(bf16, f16 + of_last_weight);
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
