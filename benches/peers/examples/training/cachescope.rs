//! The networks in this library, with this library's layers.

use ::cachescope::grad::nn::{Attention, Conv2d, Embedding, LayerNorm, Linear};
use ::cachescope::grad::optim::AdamW;
use ::cachescope::grad::{Parameters, activation_budget, value_and_grad};
use ::cachescope::{
    Array, CacheConfig, ConvOptions, Device, MemoryStats, Policy, Result, cache_scope,
};

use crate::cases::{CLASSES, Cnn, DECAY, FEATURES, Gpt, Network, RATE, SIDE, VOCABULARY};
use crate::measure::{Error, Training};
use crate::values::{EMBEDDED, Values, bound_of};

type Started = std::result::Result<Box<dyn Training>, Error>;

trait Loss: Parameters {
    type Inputs;

    fn loss(&self, inputs: &Self::Inputs) -> Result<Array<f32>>;
}

struct Trained<N: Loss> {
    network: N,
    inputs: N::Inputs,
    optimizer: AdamW,
    /// The activation budget, as a fraction of `saved_bytes`.
    part: Option<f64>,
    /// The bytes that a step without a budget saves, once measured.
    saved_bytes: Option<u64>,
}

impl<N: Loss> Training for Trained<N> {
    fn step(&mut self) -> std::result::Result<f32, Error> {
        let Self {
            network,
            inputs,
            optimizer,
            part,
            saved_bytes,
        } = self;
        let budget = part.map(|part| {
            let saved_bytes = saved_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
            activation_budget((part * saved_bytes) as u64)
        });
        let loss = cache_scope!("step", {
            let (loss, gradients) = value_and_grad(&*network, |network| network.loss(inputs))?;
            optimizer.step(network, &gradients)?;
            loss.item()?
        });
        if let Some(budget) = budget
            && saved_bytes.is_none()
        {
            *saved_bytes = Some(budget.report().saved_bytes);
            // The first step has no budget, so it must not count in the peak.
            Device::current().reset_peaks();
        }
        Ok(loss)
    }

    fn device_bytes(&self) -> (u64, u64) {
        let MemoryStats {
            live_bytes,
            peak_live_bytes,
            ..
        } = Device::current().memory_stats();
        (live_bytes, peak_live_bytes)
    }
}

/// Creates a network with its optimizer and its inputs.
pub fn start(network: Network, values: &mut Values) -> Started {
    start_in(None, network, values)
}

/// Starts like [`start`], with an activation budget of 75 % of the saved bytes.
pub fn start_75(network: Network, values: &mut Values) -> Started {
    start_in(Some(0.75), network, values)
}

/// Starts like [`start`], with an activation budget of 50 % of the saved bytes.
pub fn start_50(network: Network, values: &mut Values) -> Started {
    start_in(Some(0.5), network, values)
}

/// Starts like [`start`], with an activation budget of 33 % of the saved bytes.
pub fn start_33(network: Network, values: &mut Values) -> Started {
    start_in(Some(0.33), network, values)
}

fn start_in(part: Option<f64>, network: Network, values: &mut Values) -> Started {
    fn trained<N: Loss + 'static>(
        part: Option<f64>,
        (network, inputs): (N, N::Inputs),
    ) -> Box<dyn Training> {
        Box::new(Trained {
            network,
            inputs,
            optimizer: AdamW::new(RATE).weight_decay(DECAY),
            part,
            saved_bytes: None,
        })
    }
    Ok(match network {
        Network::Gpt(gpt) => trained(part, text(gpt, values)?),
        Network::Cnn(cnn) => trained(part, images(cnn, values)?),
    })
}

/// Starts like [`start`], in a scope with the policy Plan.
pub fn start_planned(network: Network, values: &mut Values) -> Started {
    let config = CacheConfig {
        policy: Policy::Plan,
        ..CacheConfig::default()
    };
    Device::current().configure_cache("step", config);
    start(network, values)
}

fn uniform<const N: usize>(
    values: &mut Values,
    shape: [usize; N],
    bound: f32,
) -> Result<Array<f32>> {
    Array::from_vec(values.uniform(shape.iter().product(), bound), shape)
}

fn linear(values: &mut Values, inputs: usize, outputs: usize) -> Result<Linear> {
    let bound = bound_of(inputs);
    Ok(Linear {
        weight: uniform(values, [outputs, inputs], bound)?,
        bias: Some(uniform(values, [outputs], bound)?),
    })
}

fn embedding(values: &mut Values, rows: usize, width: usize) -> Result<Embedding> {
    let weight = uniform(values, [rows, width], EMBEDDED)?;
    Ok(Embedding { weight })
}

fn convolution(values: &mut Values, inputs: usize, outputs: usize) -> Result<Conv2d> {
    let bound = bound_of(inputs * 9);
    Ok(Conv2d {
        weight: uniform(values, [outputs, inputs, 3, 3], bound)?,
        bias: Some(uniform(values, [outputs], bound)?),
        options: ConvOptions {
            padding: [1, 1],
            ..ConvOptions::default()
        },
    })
}

#[derive(Parameters)]
struct Block {
    norms: [LayerNorm; 2],
    attention: Attention,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new(gpt: Gpt, values: &mut Values) -> Result<Self> {
        let width = gpt.width;
        Ok(Self {
            attention: Attention {
                qkv: linear(values, width, 3 * width)?,
                out: linear(values, width, width)?,
                heads: gpt.heads,
                causal: true,
            },
            wide: linear(values, width, 4 * width)?,
            narrow: linear(values, 4 * width, width)?,
            norms: [LayerNorm::new(width)?, LayerNorm::new(width)?],
        })
    }

    fn forward(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let [first, second] = &self.norms;
        let x = (x + self.attention.forward(&first.forward(x)?)?).eval()?;
        let wide = self.wide.forward(&second.forward(&x)?)?;
        (&x + self.narrow.forward(&wide.gelu().eval()?)?).eval()
    }
}

#[derive(Parameters)]
struct Text {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    last: LayerNorm,
    head: Linear,
}

fn text(gpt: Gpt, values: &mut Values) -> Result<(Text, (Array<i64>, Array<i64>))> {
    let Gpt {
        width,
        length,
        batch,
        ..
    } = gpt;
    let tokens = embedding(values, VOCABULARY, width)?;
    let positions = embedding(values, length, width)?;
    let blocks: Result<_> = (0..gpt.layers).map(|_| Block::new(gpt, values)).collect();
    let blocks = blocks?;
    let head = Linear {
        weight: uniform(values, [VOCABULARY, width], bound_of(width))?,
        bias: None,
    };
    let (inputs, targets) = values.text(batch, length, VOCABULARY);
    let array = |tokens: Vec<u32>| tokens.into_iter().map(i64::from).collect();
    let inputs = Array::from_vec(array(inputs), [batch, length])?;
    let targets = Array::from_vec(array(targets), batch * length)?;
    let network = Text {
        tokens,
        positions,
        blocks,
        last: LayerNorm::new(width)?,
        head,
    };
    Ok((network, (inputs, targets)))
}

impl Loss for Text {
    type Inputs = (Array<i64>, Array<i64>);

    fn loss(&self, (inputs, targets): &Self::Inputs) -> Result<Array<f32>> {
        let mut x = (self.tokens.forward(inputs)? + &self.positions.weight).eval()?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let scores = self.head.forward(&self.last.forward(&x)?)?;
        scores
            .reshape([targets.len(), VOCABULARY])?
            .cross_entropy(targets)
    }
}

#[derive(Parameters)]
struct Images {
    convolutions: [Conv2d; 2],
    hidden: Linear,
    out: Linear,
}

fn images(cnn: Cnn, values: &mut Values) -> Result<(Images, (Array<f32>, Array<i64>))> {
    let Cnn { channels, batch } = cnn;
    let network = Images {
        convolutions: [
            convolution(values, 1, channels)?,
            convolution(values, channels, 2 * channels)?,
        ],
        hidden: linear(values, 2 * channels * (SIDE / 4) * (SIDE / 4), FEATURES)?,
        out: linear(values, FEATURES, CLASSES)?,
    };
    let images = uniform(values, [batch, 1, SIDE, SIDE], 1.0)?;
    let classes = values
        .below(batch, CLASSES)
        .into_iter()
        .map(i64::from)
        .collect();
    Ok((network, (images, Array::from_vec(classes, batch)?)))
}

impl Loss for Images {
    type Inputs = (Array<f32>, Array<i64>);

    fn loss(&self, (images, classes): &Self::Inputs) -> Result<Array<f32>> {
        let mut x = images.clone();
        for convolution in &self.convolutions {
            x = convolution
                .forward(&x)?
                .relu()
                .eval()?
                .max_pool2d([2, 2], [2, 2])?;
        }
        let flat = x.reshape([classes.len(), x.len() / classes.len()])?;
        let hidden = self.hidden.forward(&flat)?.relu().eval()?;
        self.out.forward(&hidden)?.cross_entropy(classes)
    }
}
