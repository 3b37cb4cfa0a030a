//! Tests of dry runs, compared with runs on the emulated device. The bytes of each line must be
//! equal.

use cachescope::grad::nn::{Attention, Conv2d, LayerNorm, Linear};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{Parameters, activation_budget, value_and_grad};
use cachescope::record::SiteSummary;
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, Generator, MetaKind, MetaOptions, Policy, Result,
    cache_scope, dry_run, graph,
};
use shared::dataset::Dataset;
use shared::digits::PIXELS;
use shared::model::Model;

/// The memory size of the emulated device and of the dry-run device.
const DEVICE_BYTES: u64 = 16 << 30;

/// Asserts that a dry run and a run on the device have equal peaks, and equal allocations per line.
#[track_caller]
fn agrees(policy: Policy, program: fn() -> Result<()>) {
    agrees_like(MetaKind::Cuda, policy, program);
}

#[track_caller]
fn agrees_like(like: MetaKind, policy: Policy, program: fn() -> Result<()>) {
    let config = DeviceConfig {
        policy,
        ..Default::default()
    };
    let real = match like {
        MetaKind::Cuda => Device::cuda_with(0, config.clone()),
        _ => Device::host_with(config.clone()),
    };
    let real = real.unwrap();
    let recording = real.record(Default::default()).unwrap();
    {
        let _current = real.enter();
        program().unwrap();
    }
    let stats = real.memory_stats();
    let options = MetaOptions {
        like,
        capacity_bytes: DEVICE_BYTES,
        config,
        ..Default::default()
    };
    let dry = dry_run(options, program).unwrap();
    assert_eq!(lines(dry.by_call_site()), lines(recording.by_call_site()));
    let peaks = (stats.peak_live_bytes, stats.peak_reserved_bytes);
    assert_eq!((dry.peak_live_bytes, dry.peak_reserved_bytes), peaks);
}

/// Returns the sorted allocations of all allocating lines.
fn lines(sites: Vec<SiteSummary>) -> Vec<String> {
    let sites = sites.into_iter().filter(|site| site.allocations > 0);
    let figures = sites.map(|site| (site.call_site, site.allocations, site.total_bytes));
    let mut lines: Vec<String> = figures.map(|figures| format!("{figures:?}")).collect();
    lines.sort();
    lines
}

#[test]
fn operations_need_their_workspaces() {
    agrees(Policy::Recycle, || {
        let x = Array::<f32>::rand([300, 4000])?;
        let y = (&x * 2.0 + 1.0).sin().eval()?.softmax(1)?;
        y.sum()?.item()?;
        y.sum_axis(0)?.max()?.item()?;
        y.cumsum(1)?.reshape(1_200_000)?.sort(0)?;
        y.argsort(-1)?;
        x.matmul(&y.t()?)?;
        x.var()?.item()?;
        x.topk(5, 1)?;
        Array::<f32>::randn([100, 100])?
            .transpose()?
            .to_uncached()?;
        let picked = y.take(&Array::<i64>::arange(0, 200, 1)?, 0)?;
        cachescope::concat(&[&picked, &picked], 0)?;
        Ok(())
    });
}

#[derive(Parameters)]
struct Network {
    filters: Conv2d,
    norm: LayerNorm,
    attention: Attention,
    out: Linear,
}

impl Network {
    fn new() -> Result<Self> {
        Ok(Self {
            filters: Conv2d::new((1, 4), [3, 3], ConvOptions::default())?,
            norm: LayerNorm::new(36)?,
            attention: Attention::new(36, 4, true)?,
            out: Linear::new(36, 10)?,
        })
    }

    fn loss(&self, x: &Array<f32>, classes: &Array<i64>) -> Result<Array<f32>> {
        let x = self.filters.forward(x)?.relu().eval()?;
        let x = x.reshape([x.shape()[0], 4, 36])?;
        let x = self.attention.forward(&self.norm.forward(&x)?)?;
        self.out.forward(&x.mean_axis(1)?)?.cross_entropy(classes)
    }
}

fn training() -> Result<()> {
    let mut network = Network::new()?;
    let mut optimizer = AdamW::new(0.01);
    let _budget = activation_budget(100 << 10);
    for batch in [8, 8, 12] {
        let x = Array::<f32>::rand([batch, 1, 8, 8])?;
        let classes = Array::<i64>::zeros([batch])?;
        cache_scope!("step", {
            let (_loss, gradients) = value_and_grad(&network, |own| own.loss(&x, &classes))?;
            optimizer.step(&mut network, &gradients)?;
        });
    }
    Ok(())
}

#[test]
fn trainings_need_what_they_need_under_every_policy() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        agrees(policy, training);
    }
}

#[test]
fn a_captured_graph_pins_what_it_pins_on_a_device() {
    agrees(Policy::Plan, || {
        let x = Array::<f32>::rand([64, 8])?;
        let mut y = Array::<f32>::zeros([64, 8])?;
        let step = graph::capture(&Device::current(), || {
            y.assign((&x * 2.0).exp().eval()?.softmax(1)? + 1.0)
        })?;
        step.launch()?;
        Ok(())
    });
}

/// The program executes the steps of the example `train_digits`.
#[test]
fn the_steps_of_the_digits_need_what_they_need_in_a_run() {
    let program = || {
        let mut model = Model::new(16, &mut Generator::new(1))?;
        let batch = Dataset {
            images: Array::rand([32, PIXELS])?,
            labels: Array::zeros(32)?,
        };
        for _ in 0..3 {
            cache_scope!("step", { model.step(&batch)? });
        }
        model.accuracy(&batch).map(drop)
    };
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        agrees_like(MetaKind::Cuda, policy, program);
        agrees_like(MetaKind::Host, policy, program);
    }
}
