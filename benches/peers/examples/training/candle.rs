//! The networks in candle, with the layers of candle-nn that have gradients.
//!
//! According to their documentation, three layers have no gradient: `LayerNorm` (its fused
//! operation silently stops the gradient), `softmax_last_dim` and the flash attention for the CPU.
//! Here, `layer_norm_slow`, `softmax` and attention in single operations replace these layers.
//! Max-pooling has candle's gradient, although this gradient contains the mean of the mask of
//! maxima as a factor. For 2 × 2 windows, it is a quarter of the correct gradient. AdamW hides this
//! error, because its steps are almost independent of the scale of gradients.

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::ops::{layer_norm_slow, softmax};
use candle_nn::{
    AdamW, Conv2d, Conv2dConfig, Embedding, Linear, Module, Optimizer, ParamsAdamW, loss,
};

use crate::cases::{CLASSES, Cnn, DECAY, EPSILON, FEATURES, Gpt, Network, RATE, SIDE, VOCABULARY};
use crate::measure::{Error, Training};
use crate::values::{EMBEDDED, Values, bound_of};

struct Trained<N> {
    network: N,
    optimizer: AdamW,
}

trait Loss {
    fn loss(&self) -> Result<Tensor>;
}

impl<N: Loss> Training for Trained<N> {
    fn step(&mut self) -> std::result::Result<f32, Error> {
        let loss = self.network.loss()?;
        self.optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar()?)
    }
}

/// Creates a network with its optimizer and its inputs.
pub fn start(
    network: Network,
    values: &mut Values,
) -> std::result::Result<Box<dyn Training>, Error> {
    let mut parameters = Parameters {
        values,
        vars: Vec::new(),
    };
    if let Network::Gpt(Gpt { tied: true, .. }) = network {
        return Err("candle: no network with a tied head".into());
    }
    Ok(match network {
        Network::Gpt(gpt) => Box::new(trained(Text::new(gpt, &mut parameters)?, parameters)?),
        Network::Cnn(cnn) => Box::new(trained(Images::new(cnn, &mut parameters)?, parameters)?),
    })
}

fn trained<N>(network: N, parameters: Parameters<'_>) -> Result<Trained<N>> {
    let rates = ParamsAdamW {
        lr: RATE,
        weight_decay: DECAY,
        ..ParamsAdamW::default()
    };
    let optimizer = AdamW::new(parameters.vars, rates)?;
    Ok(Trained { network, optimizer })
}

/// The trained variables, in order of their creation.
struct Parameters<'a> {
    values: &'a mut Values,
    vars: Vec<Var>,
}

impl Parameters<'_> {
    fn keep(&mut self, tensor: &Tensor) -> Result<Tensor> {
        let var = Var::from_tensor(tensor)?;
        let tensor = var.as_tensor().clone();
        self.vars.push(var);
        Ok(tensor)
    }

    fn uniform(&mut self, shape: &[usize], bound: f32) -> Result<Tensor> {
        let values = self.values.uniform(shape.iter().product(), bound);
        self.keep(&Tensor::from_vec(values, shape, &Device::Cpu)?)
    }

    fn embedding(&mut self, rows: usize, width: usize) -> Result<Embedding> {
        Ok(Embedding::new(
            self.uniform(&[rows, width], EMBEDDED)?,
            width,
        ))
    }

    fn linear(&mut self, inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = bound_of(inputs);
        let weight = self.uniform(&[outputs, inputs], bound)?;
        Ok(Linear::new(weight, Some(self.uniform(&[outputs], bound)?)))
    }

    fn convolution(&mut self, inputs: usize, outputs: usize) -> Result<Conv2d> {
        let padded = Conv2dConfig {
            padding: 1,
            ..Conv2dConfig::default()
        };
        let bound = bound_of(inputs * 9);
        let weight = self.uniform(&[outputs, inputs, 3, 3], bound)?;
        Ok(Conv2d::new(
            weight,
            Some(self.uniform(&[outputs], bound)?),
            padded,
        ))
    }

    fn norm(&mut self, width: usize) -> Result<Norm> {
        Ok(Norm {
            weight: self.keep(&Tensor::from_vec(vec![1_f32; width], width, &Device::Cpu)?)?,
            bias: self.keep(&Tensor::from_vec(vec![0_f32; width], width, &Device::Cpu)?)?,
        })
    }
}

/// A layer normalization with a gradient.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm_slow(x, &self.weight, &self.bias, EPSILON as f32)
    }
}

struct Block {
    norms: [Norm; 2],
    qkv: Linear,
    out: Linear,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new(width: usize, parameters: &mut Parameters<'_>) -> Result<Self> {
        Ok(Self {
            qkv: parameters.linear(width, 3 * width)?,
            out: parameters.linear(width, width)?,
            wide: parameters.linear(width, 4 * width)?,
            narrow: parameters.linear(4 * width, width)?,
            norms: [parameters.norm(width)?, parameters.norm(width)?],
        })
    }

    fn forward(&self, x: &Tensor, heads: usize, mask: &Tensor) -> Result<Tensor> {
        let [first, second] = &self.norms;
        let qkv = self.qkv.forward(&first.forward(x)?)?;
        let x = (x + self.out.forward(&attention(&qkv, heads, mask)?)?)?;
        let wide = self.wide.forward(&second.forward(&x)?)?;
        &x + self.narrow.forward(&wide.gelu_erf()?)?
    }
}

/// Computes attention. `qkv` contains queries, keys and values side by side. The features of a head
/// are adjacent.
fn attention(qkv: &Tensor, heads: usize, mask: &Tensor) -> Result<Tensor> {
    let (batch, length, features) = qkv.dims3()?;
    let head = features / 3 / heads;
    let split = qkv.reshape((batch, length, 3, heads, head))?;
    let part = |number: usize| {
        let part = split.narrow(2, number, 1)?.squeeze(2)?;
        part.transpose(1, 2)?.contiguous()
    };
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let scores = (q.matmul(&k.t()?)? * (1.0 / (head as f64).sqrt()))?;
    let weights = softmax(&scores.broadcast_add(mask)?, D::Minus1)?;
    let joined = weights.matmul(&v)?.transpose(1, 2)?;
    joined.reshape((batch, length, features / 3))
}

/// Returns the mask that is added to scores: 0 up to the current position, −∞ for later positions.
fn causal(length: usize) -> Result<Tensor> {
    let score = |from: usize, to: usize| if to > from { f32::NEG_INFINITY } else { 0.0 };
    let scores = (0..length).flat_map(|from| (0..length).map(move |to| score(from, to)));
    Tensor::from_vec(scores.collect(), (length, length), &Device::Cpu)
}

struct Text {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    last: Norm,
    head: Linear,
    heads: usize,
    mask: Tensor,
    inputs: Tensor,
    places: Tensor,
    targets: Tensor,
}

impl Text {
    fn new(gpt: Gpt, parameters: &mut Parameters<'_>) -> Result<Self> {
        let Gpt {
            width,
            length,
            batch,
            ..
        } = gpt;
        let tokens = parameters.embedding(VOCABULARY, width)?;
        let positions = parameters.embedding(length, width)?;
        let blocks: Result<_> = (0..gpt.layers)
            .map(|_| Block::new(width, parameters))
            .collect();
        let blocks = blocks?;
        let last = parameters.norm(width)?;
        let head = parameters.uniform(&[VOCABULARY, width], bound_of(width))?;
        let (inputs, targets) = parameters.values.text(batch, length, VOCABULARY);
        Ok(Self {
            tokens,
            positions,
            blocks,
            last,
            head: Linear::new(head, None),
            heads: gpt.heads,
            mask: causal(length)?,
            inputs: Tensor::from_vec(inputs, (batch, length), &Device::Cpu)?,
            places: Tensor::arange(0, u32::try_from(length)?, &Device::Cpu)?,
            targets: Tensor::from_vec(targets, batch * length, &Device::Cpu)?,
        })
    }
}

impl Loss for Text {
    fn loss(&self) -> Result<Tensor> {
        let tokens = self.tokens.forward(&self.inputs)?;
        let mut x = tokens.broadcast_add(&self.positions.forward(&self.places)?)?;
        for block in &self.blocks {
            x = block.forward(&x, self.heads, &self.mask)?;
        }
        let logits = self.head.forward(&self.last.forward(&x)?)?;
        loss::cross_entropy(&logits.flatten(0, 1)?, &self.targets)
    }
}

struct Images {
    convolutions: [Conv2d; 2],
    linear: [Linear; 2],
    images: Tensor,
    classes: Tensor,
}

impl Images {
    fn new(cnn: Cnn, parameters: &mut Parameters<'_>) -> Result<Self> {
        let Cnn { channels, batch } = cnn;
        let flat = 2 * channels * (SIDE / 4) * (SIDE / 4);
        let convolutions = [
            parameters.convolution(1, channels)?,
            parameters.convolution(channels, 2 * channels)?,
        ];
        let linear = [
            parameters.linear(flat, FEATURES)?,
            parameters.linear(FEATURES, CLASSES)?,
        ];
        let images = parameters.values.uniform(batch * SIDE * SIDE, 1.0);
        let classes = parameters.values.below(batch, CLASSES);
        Ok(Self {
            convolutions,
            linear,
            images: Tensor::from_vec(images, (batch, 1, SIDE, SIDE), &Device::Cpu)?,
            classes: Tensor::from_vec(classes, batch, &Device::Cpu)?,
        })
    }
}

impl Loss for Images {
    fn loss(&self) -> Result<Tensor> {
        let mut x = self.images.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?.max_pool2d(2)?;
        }
        let [features, classes] = &self.linear;
        let x = features.forward(&x.flatten_from(1)?)?.relu()?;
        loss::cross_entropy(&classes.forward(&x)?, &self.classes)
    }
}
