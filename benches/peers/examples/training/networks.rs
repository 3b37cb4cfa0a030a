// The networks in this library, with this library's layers. The elements of a network are `f32`,
// or a copy of them in another type.

use ::cachescope::grad::nn::{Attention, Conv2d, Embedding, LayerNorm, Linear};
use ::cachescope::grad::{CastParameters, Parameters};
use ::cachescope::half::bf16;
use ::cachescope::{Array, ConvOptions, Float, Result};

use crate::cases::{CLASSES, Cnn, FEATURES, Gpt, SIDE};
use crate::values::{EMBEDDED, Values, bound_of};

/// The tokens and the targets of a GPT.
pub type Tokens = (Array<i64>, Array<i64>);
/// The images and the classes of a CNN.
pub type Pictures = (Array<f32>, Array<i64>);

/// A network with a loss.
pub trait Loss: Parameters {
    type Inputs;

    fn loss(&self, inputs: &Self::Inputs) -> Result<Array<f32>>;

    /// Returns the loss of a copy of the parameters in `bf16`. The loss itself is `f32`.
    fn loss_in_bf16(&self, inputs: &Self::Inputs) -> Result<Array<f32>>;
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

#[derive(CastParameters, Parameters)]
struct Block<T: Float = f32> {
    norms: [LayerNorm<T>; 2],
    attention: Attention<T>,
    wide: Linear<T>,
    narrow: Linear<T>,
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
}

impl<T: Float> Block<T> {
    fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let [first, second] = &self.norms;
        let x = (x + self.attention.forward(&first.forward(x)?)?).eval()?;
        let wide = self.wide.forward(&second.forward(&x)?)?;
        (&x + self.narrow.forward(&wide.gelu().eval()?)?).eval()
    }
}

#[derive(CastParameters, Parameters)]
pub struct Text<T: Float = f32> {
    tokens: Embedding<T>,
    positions: Embedding<T>,
    blocks: Vec<Block<T>>,
    last: LayerNorm<T>,
    /// The head. `None` for a head that is tied to the embedding of the tokens.
    head: Option<Linear<T>>,
}

/// Creates a GPT with its inputs and targets.
pub fn text(gpt: Gpt, values: &mut Values) -> Result<(Text, Tokens)> {
    let Gpt {
        width,
        length,
        batch,
        vocabulary,
        ..
    } = gpt;
    let tokens = embedding(values, vocabulary, width)?;
    let positions = embedding(values, length, width)?;
    let blocks: Result<_> = (0..gpt.layers).map(|_| Block::new(gpt, values)).collect();
    let blocks = blocks?;
    let head = match gpt.tied {
        true => None,
        false => Some(Linear {
            weight: uniform(values, [vocabulary, width], bound_of(width))?,
            bias: None,
        }),
    };
    let (inputs, targets) = values.text(batch, length, vocabulary);
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

impl<T: Float> Text<T> {
    fn scored(&self, inputs: &Array<i64>, targets: &Array<i64>) -> Result<Array<f32>> {
        let mut x = (self.tokens.forward(inputs)? + &self.positions.weight).eval()?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let x = self.last.forward(&x)?;
        let scores = match &self.head {
            Some(head) => head.forward(&x)?,
            None => x.matmul(&self.tokens.weight.transpose()?)?,
        };
        let vocabulary = self.tokens.weight.shape()[0];
        let scores = scores.reshape([targets.len(), vocabulary])?;
        CastParameters::cast::<f32>(&scores)?.cross_entropy(targets)
    }
}

impl Loss for Text {
    type Inputs = Tokens;

    fn loss(&self, (inputs, targets): &Self::Inputs) -> Result<Array<f32>> {
        self.scored(inputs, targets)
    }

    fn loss_in_bf16(&self, (inputs, targets): &Self::Inputs) -> Result<Array<f32>> {
        self.cast::<bf16>()?.scored(inputs, targets)
    }
}

#[derive(CastParameters, Parameters)]
pub struct Images<T: Float = f32> {
    convolutions: [Conv2d<T>; 2],
    hidden: Linear<T>,
    out: Linear<T>,
}

/// Creates a CNN with its images and classes.
pub fn images(cnn: Cnn, values: &mut Values) -> Result<(Images, Pictures)> {
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

impl<T: Float> Images<T> {
    fn scored(&self, images: &Array<f32>, classes: &Array<i64>) -> Result<Array<f32>> {
        let mut x = CastParameters::cast::<T>(images)?;
        for convolution in &self.convolutions {
            x = convolution
                .forward(&x)?
                .relu()
                .eval()?
                .max_pool2d([2, 2], [2, 2])?;
        }
        let flat = x.reshape([classes.len(), x.len() / classes.len()])?;
        let hidden = self.hidden.forward(&flat)?.relu().eval()?;
        let scores = self.out.forward(&hidden)?;
        CastParameters::cast::<f32>(&scores)?.cross_entropy(classes)
    }
}

impl Loss for Images {
    type Inputs = Pictures;

    fn loss(&self, (images, classes): &Self::Inputs) -> Result<Array<f32>> {
        self.scored(images, classes)
    }

    fn loss_in_bf16(&self, (images, classes): &Self::Inputs) -> Result<Array<f32>> {
        self.cast::<bf16>()?.scored(images, classes)
    }
}
