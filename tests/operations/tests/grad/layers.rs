//! Layers, checkpoints, optimizers of matrices, and NaN.

use std::cell::Cell;

use cachescope::grad::nn::{Attention, Conv2d, Embedding, LayerNorm, Linear, RmsNorm, dropout};
use cachescope::grad::optim::{AdamW, Average, Muon};
use cachescope::grad::{Parameters, checkpoint, detect_anomaly, value_and_grad};
use cachescope::testing::{assert_no_growth, peak_of};
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, ErrorKind, Result, cache_scope, manual_seed, select,
};

use crate::grad::differences::{check, numbers};

#[test]
fn layers_of_double_precision() -> Result<()> {
    manual_seed(3);
    let (linear, norm) = (Linear::<f64>::new(4, 3)?, LayerNorm::<f64>::new(3)?);
    let (attention, rms) = (Attention::<f64>::new(4, 2, true)?, RmsNorm::<f64>::new(4)?);
    check(&numbers(&[2, 5, 4], 1.0), |x| {
        let seen = attention.forward(&rms.forward(x)?)?;
        let y = norm.forward(&linear.forward(&seen)?)?;
        (y * numbers(&[2, 5, 3], 1.0)).sum()
    });
    let options = ConvOptions {
        padding: [1, 1],
        ..ConvOptions::default()
    };
    let convolution = Conv2d::<f64>::new((2, 3), [3, 3], options)?;
    check(&numbers(&[1, 2, 4, 4], 1.0), |x| {
        (convolution.forward(x)? * numbers(&[1, 3, 4, 4], 1.0)).sum()
    });
    Ok(())
}

#[derive(Parameters)]
struct Words {
    words: Embedding,
    blocks: Vec<Block>,
    out: Linear,
}

#[derive(Clone, Parameters)]
struct Block {
    norm: LayerNorm,
    attention: Attention,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new() -> Result<Self> {
        Ok(Self {
            norm: LayerNorm::new(8)?,
            attention: Attention::new(8, 2, true)?,
            wide: Linear::new(8, 16)?,
            narrow: Linear::new(16, 8)?,
        })
    }

    fn forward(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let x = (x + self.attention.forward(&self.norm.forward(x)?)?).eval()?;
        let wide = self.wide.forward(&x)?.gelu().eval()?;
        (x + self.narrow.forward(&dropout(&wide, 0.25)?)?).eval()
    }
}

impl Words {
    fn new() -> Result<Self> {
        Ok(Self {
            words: Embedding::new(5, 8)?,
            blocks: vec![Block::new()?, Block::new()?],
            out: Linear::without_bias(8, 5)?,
        })
    }

    fn loss(&self, text: &Array<i64>, keeps: bool) -> Result<Array<f32>> {
        let mut x = self.words.forward(text)?;
        for block in &self.blocks {
            x = if keeps {
                block.forward(&x)?
            } else {
                checkpoint(&(x.clone(), block.clone()), |(x, block)| block.forward(x))?
            };
        }
        let next = text.roll(-1, 1)?.flatten()?;
        self.out.forward(&x)?.reshape([20, 5])?.cross_entropy(&next)
    }
}

fn text() -> Result<Array<i64>> {
    Array::from_vec((0..20).map(|place| place * place % 5).collect(), [2, 10])
}

#[test]
fn checkpoints_change_no_gradient() -> Result<()> {
    manual_seed(5);
    let (words, text) = (Words::new()?, text()?);
    let run = |keeps: bool| {
        manual_seed(6);
        value_and_grad(&words, |words| words.loss(&text, keeps))
    };
    let ((kept, whole), (again, parts)) = (run(true)?, run(false)?);
    assert_eq!(kept.item()?, again.item()?);
    let all = |own: &Words| -> Result<Vec<f32>> {
        let block = &own.blocks[0];
        Ok([
            own.words.weight.to_vec()?,
            block.attention.qkv.weight.to_vec()?,
            block.norm.weight.to_vec()?,
            own.blocks[1].wide.weight.to_vec()?,
        ]
        .concat())
    };
    assert_eq!(all(&whole)?, all(&parts)?);
    // Passes with and without checkpoints leave the generator in equal states.
    let next = Array::<f32>::rand(3)?;
    run(true)?;
    assert_eq!(Array::<f32>::rand(3)?, next);
    Ok(())
}

#[test]
fn checkpoints_keep_only_their_inputs() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _entered = device.enter();
    let x = Array::<f32>::rand([256, 256])?;
    let bytes = x.size_bytes() as u64;
    fn long(x: &Array<f32>) -> Result<Array<f32>> {
        (0..16).try_fold(x.clone(), |x, _| x.matmul(&x)?.tanh().eval())
    }
    let peak = |keeps: bool| -> Result<u64> {
        let loss = |x: &Array<f32>| {
            let mut y = x.clone();
            for _ in 0..4 {
                y = if keeps {
                    long(&y)?
                } else {
                    checkpoint(&y, long)?
                };
            }
            y.sum()
        };
        let (_, peak) = peak_of(&device, || value_and_grad(&x, loss))?;
        Ok(peak / bytes)
    };
    let (kept, again) = (peak(true)?, peak(false)?);
    assert!(
        again * 2 < kept,
        "{again} arrays with checkpoints, {kept} without"
    );
    Ok(())
}

#[test]
fn a_checkpoint_of_another_shape_is_refused() -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(1);
    let x = numbers(&[4], 1.0);
    let error = value_and_grad(&x, |x| {
        let part = checkpoint(x, |x| {
            let length = CALLS.fetch_add(1, Ordering::Relaxed);
            (x.slice(ndarray::s![..length])? * 2.0).eval()
        })?;
        part.sum()
    })
    .unwrap_err();
    assert!(
        error.to_string().contains("[1]") && error.to_string().contains("[2]"),
        "{error}"
    );
    assert!(error.to_string().contains("grad/layers.rs"), "{error}");
    Ok(())
}

#[test]
fn a_checkpoint_of_other_values_is_refused_where_that_is_looked_for() -> Result<()> {
    let x = Array::from_slice(&[1.0, f64::NAN, -2.0], 3)?;
    let run = |changes: bool| {
        value_and_grad(&x, move |x| {
            let calls = Cell::new(1.0);
            let part = checkpoint(x, move |x| {
                calls.set(calls.get() + f64::from(u8::from(changes)));
                (x * calls.get()).eval()
            })?;
            // No gradient passes back to NaN elements.
            select(part.is_nan(), 0.0, &part).sum()
        })
    };
    let gradient = run(true)?.1.to_vec()?;
    assert_eq!(gradient, [3.0, 0.0, 3.0], "nobody looked");
    let _anomalies = detect_anomaly();
    let line = line!() + 1;
    let error = run(true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    assert!(text.contains("other values"), "{text}");
    let told = error.location().unwrap().line();
    assert!(told < line && line - told < 20, "{text}");
    run(false)?;
    Ok(())
}

#[test]
fn steps_of_training_do_not_grow() -> Result<()> {
    manual_seed(7);
    let device = Device::host_with(DeviceConfig::default())?;
    let _entered = device.enter();
    let (mut words, text) = (Words::new()?, text()?);
    let (mut muon, mut adam) = (Muon::new(0.02), AdamW::new(0.01));
    let mut average = Average::new(&words, 0.9)?;
    let first = words.loss(&text, true)?.item()?;
    assert_no_growth!("grad-layers", 40, {
        cache_scope!("grad-layers", {
            let (_, gradients) = value_and_grad(&words, |words| words.loss(&text, false))?;
            muon.step(&mut words, &gradients)?;
            adam.step(&mut words, &gradients)?;
            average.update(&words)?;
            Ok::<(), cachescope::Error>(())
        })?;
    });
    let last = average.parameters().loss(&text, true)?.item()?;
    assert!(last < 0.6 * first, "{first} to {last}");
    Ok(())
}

#[test]
fn nan_is_found_by_its_line() -> Result<()> {
    let x = Array::from_slice(&[0.0, 1.0], 2)?;
    let line = line!() + 4;
    let loss = |x: &Array<f64>| {
        let root = x.sqrt().eval()?;
        let product = (&root * x).eval()?;
        (product / root).sum()
    };
    assert!(value_and_grad(&x, loss).is_ok());
    let guard = detect_anomaly();
    let error = value_and_grad(&x, loss).unwrap_err();
    assert!(error.to_string().contains("NaN"), "{error}");
    let place = error.location().expect("it has a line");
    assert!(place.file().ends_with("layers.rs"), "{place}");
    assert_eq!(place.line(), line, "{place}");
    drop(guard);
    assert!(value_and_grad(&x, loss).is_ok());
    Ok(())
}
