//! The launches of a training step in `bf16`.

use std::collections::BTreeMap;

use cachescope::grad::nn::{Attention, LayerNorm, Linear};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{CastParameters, Parameters, value_and_step};
use cachescope::{Array, Device, DeviceConfig, Float, Result};
use half::bf16;

use crate::costs::EmulatorLock;

/// A transformer's block.
#[derive(Parameters, CastParameters)]
struct Block<T: Float = f32> {
    norms: (LayerNorm<T>, LayerNorm<T>),
    attention: Attention<T>,
    up: Linear<T>,
    down: Linear<T>,
}

impl<T: Float> Block<T> {
    fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let x = (x + self.attention.forward(&self.norms.0.forward(x)?)?).eval()?;
        let y = self.up.forward(&self.norms.1.forward(&x)?)?.gelu().eval()?;
        (x + self.down.forward(&y)?).eval()
    }
}

#[test]
fn a_step_in_bf16_converts_no_operand_of_a_product() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let width = 64;
    let mut block = Block::<f32> {
        norms: (LayerNorm::new(width)?, LayerNorm::new(width)?),
        attention: Attention::new(width, 2, true)?,
        up: Linear::new(width, 4 * width)?,
        down: Linear::new(4 * width, width)?,
    };
    let mut optimizer = AdamW::new(0.01);
    let x = Array::<bf16>::randn([2, 32, width])?;
    let mut step = || {
        value_and_step(&mut block, &mut optimizer, |own| {
            let y = own.cast::<bf16>()?.forward(&x)?;
            y.cast::<f32>().eval()?.square().mean()
        })
    };
    step()?.item()?;
    let before = lock.control.launches();
    step()?.item()?;
    let of = |name: &str| {
        let after = lock.control.launches();
        after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0)
    };
    // Twelve parameters are rounded, and the gradients of two sums of branches.
    assert_eq!(of("cs_cast_f32_"), 12 + 2);
    // The result is converted for the loss.
    assert_eq!(of("cs_cast_bf16_"), 1);
    for kernel in [
        "cs_attention_of_bf16",
        "cs_the_gradient_of_attention_s_queries_of_bf16",
        "cs_the_gradients_of_attention_s_keys_and_values_of_bf16",
    ] {
        assert_eq!(of(kernel), 1, "{kernel}");
    }
    let sum = |launches: &BTreeMap<String, u64>| launches.values().sum::<u64>();
    let all = sum(&lock.control.launches()) - sum(&before);
    assert!(all <= 48, "{all} launches");
    Ok(())
}
