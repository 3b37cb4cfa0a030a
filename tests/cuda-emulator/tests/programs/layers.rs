//! Tests of layers, optimizers and random samples on the emulated device, compared with the host.

use cachescope::grad::data::Prefetch;
use cachescope::grad::nn::{
    BatchNorm, ConvTranspose2d, GroupNorm, Gru, Lstm, PoolOptions, Rotary, Upsampling,
    adaptive_avg_pool2d, max_pool2d, upsample,
};
use cachescope::grad::optim::{AdamW, Clipped, Groups, Lbfgs};
use cachescope::grad::{value_and_grad, value_and_step};
use cachescope::prelude::*;
use cachescope::{DeviceConfig, Generator};

use crate::programs::turn;

#[derive(Parameters)]
struct Images {
    batch: BatchNorm,
    larger: ConvTranspose2d,
    group: GroupNorm,
}

impl Images {
    fn loss(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let x = self.larger.forward(&self.batch.forward(x)?)?;
        let x = upsample(&self.group.forward(&x)?, [7, 9], Upsampling::Bilinear)?;
        let options = PoolOptions {
            padding: [1, 1],
            ..PoolOptions::of([2, 3])
        };
        adaptive_avg_pool2d(&max_pool2d(&x, options)?, [2, 2])?
            .square()
            .mean()
    }
}

#[derive(Parameters)]
struct Texts {
    gru: Gru,
    lstm: Lstm,
}

impl Texts {
    fn loss(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let (states, _) = self.gru.forward(x, None)?;
        let (states, _) = self.lstm.forward(&states, None)?;
        Rotary::default().forward(&states, 3)?.square().mean()
    }
}

/// Returns losses and random samples, which must not depend on the device.
fn run(device: Device) -> Result<(Vec<f32>, Vec<i64>)> {
    let _guard = device.enter();
    manual_seed(3);
    let options = ConvOptions {
        stride: [2, 2],
        ..ConvOptions::default()
    };
    let mut images = Images {
        batch: BatchNorm::new(4)?,
        larger: ConvTranspose2d::new((4, 4), [3, 2], options)?,
        group: GroupNorm::new(2, 4)?,
    };
    let mut texts = Texts {
        gru: Gru::new(3, 4)?,
        lstm: Lstm::new(4, 4)?,
    };
    let adam = || AdamW::new(0.05);
    let groups = Groups::new(&images, adam())?.with(adam(), |name| name.ends_with("bias"))?;
    let mut optimizer = Clipped::new(groups).norm(0.1);
    let mut losses = Vec::new();
    let batches =
        (0..3).map(|batch| Array::<f32>::rand_with(&mut Generator::new(batch), [2, 4, 3, 4]));
    for batch in Prefetch::new(1, batches)? {
        let batch = batch?;
        let loss = value_and_step(&mut images, &mut optimizer, |own| own.loss(&batch))?;
        losses.push(loss.item()?);
    }
    let x = Array::<f32>::rand_with(&mut Generator::new(9), [2, 3, 3])?;
    let (loss, gradients) = value_and_grad(&texts, |own| own.loss(&x))?;
    losses.extend([
        loss.item()?,
        gradients.gru.weight_hh_l0.abs().sum()?.item()?,
    ]);
    let mut fitted = Lbfgs::new(1.0).iterations(2);
    losses.push(fitted.step(&mut texts, |own| own.loss(&x))? as f32);
    losses.push(texts.loss(&x)?.item()?);
    let drawn = x.categorical()?.to_vec()?;
    let several = x.multinomial(2, false)?.shuffle()?.to_vec()?;
    Ok((losses, [drawn, several].concat()))
}

#[test]
fn layers_compute_what_they_do_on_the_host() -> Result<()> {
    let _turn = turn();
    let (host, drawn) = run(Device::host_with(DeviceConfig::default())?)?;
    let (cuda, there) = run(Device::cuda_with(0, DeviceConfig::default())?)?;
    for (cuda, host) in cuda.iter().zip(&host) {
        assert!(
            (cuda - host).abs() < 1e-4 * host.abs().max(1e-3),
            "{cuda} and {host}"
        );
    }
    assert_eq!(cuda.len(), host.len());
    assert_eq!(there, drawn);
    Ok(())
}
