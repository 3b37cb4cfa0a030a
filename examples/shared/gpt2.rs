//! GPT-2 in the form that Hugging Face publishes (Radford et al., "Language Models are Unsupervised
//! Multitask Learners", 2019). The path of an array's fields equals the name of the array in the
//! file. Therefore `files::save` writes the published form.

mod cache;
mod reading;
mod tokens;

use cachescope::grad::Parameters;
use cachescope::grad::nn::{Embedding, LayerNorm};
use cachescope::ndarray::s;
use cachescope::{Array, INFER, Result, attention};

pub use cache::{Choice, KeyValueCache};
pub use tokens::Tokens;

/// The sizes of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// The maximum number of tokens in one pass of the network.
    pub context: usize,
    /// The length of the vector at each position of a text.
    pub width: usize,
    /// The number of heads of each attention, which divides the width.
    pub heads: usize,
    /// The number of blocks.
    pub layers: usize,
}

/// The whole network. Its head is tied: the embedding of the tokens also computes the scores.
#[derive(Debug, Parameters)]
pub struct Gpt2 {
    /// The embedding of tokens.
    pub wte: Embedding,
    /// The embedding of positions.
    pub wpe: Embedding,
    /// The blocks.
    pub h: Vec<Block>,
    /// The last norm.
    pub ln_f: LayerNorm,
    #[parameters(skip)]
    size: Size,
}

/// A transformer block: an attention and a network of two layers, each after a norm.
#[derive(Debug, Parameters)]
pub struct Block {
    /// The norm before the attention.
    pub ln_1: LayerNorm,
    /// The projections of the attention.
    pub attn: Attention,
    /// The norm before the two layers.
    pub ln_2: LayerNorm,
    /// The two layers.
    pub mlp: Mlp,
}

/// The projections of an attention.
#[derive(Debug, Parameters)]
pub struct Attention {
    /// The projection to queries, keys and values.
    pub c_attn: Conv1d,
    /// The projection of the result.
    pub c_proj: Conv1d,
}

/// The feed-forward network of a block. The output of its first layer is four times as wide as the
/// input.
#[derive(Debug, Parameters)]
pub struct Mlp {
    /// The first layer.
    pub c_fc: Conv1d,
    /// The second layer.
    pub c_proj: Conv1d,
}

/// A linear layer x W + b, with the name that the published code uses. Unlike the weight of
/// `nn::Linear`, W has the shape `[inputs, outputs]`.
#[derive(Debug, Parameters)]
pub struct Conv1d {
    /// The weight W.
    pub weight: Array<f32>,
    /// The bias b.
    pub bias: Array<f32>,
}

/// A function that returns an array by its name in the file and its shape.
pub type GetArray<'a, E> = dyn FnMut(&str, &[usize]) -> Result<Array<f32>, E> + 'a;

impl Gpt2 {
    /// Makes a network from the arrays that `get` returns by name and shape.
    pub fn build<E>(size: Size, get: &mut GetArray<'_, E>) -> Result<Self, E> {
        let width = size.width;
        Ok(Self {
            wte: Embedding {
                weight: get("wte.weight", &[size.vocabulary, width])?,
            },
            wpe: Embedding {
                weight: get("wpe.weight", &[size.context, width])?,
            },
            h: (0..size.layers)
                .map(|layer| {
                    Block::build(width, &mut |name, shape| {
                        get(&format!("h.{layer}.{name}"), shape)
                    })
                })
                .collect::<Result<_, E>>()?,
            ln_f: norm(width, "ln_f", get)?,
            size,
        })
    }

    /// Returns the sizes of the network.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the scores of the next token at each position of `tokens`. `tokens` have the shape
    /// `[batch, length]`. The scores have the shape `[batch, length, vocabulary]`.
    pub fn forward(&self, tokens: &Array<i64>) -> Result<Array<f32>> {
        let mut x = self.embedded(tokens, 0)?;
        for block in &self.h {
            x = block.forward(&x, self.size.heads, |[q, k, v]| attention(&q, &k, &v, true))?;
        }
        self.scores(&x)
    }

    /// Returns the mean cross-entropy of all tokens of `text` except the first token of each row.
    /// `text` has the shape `[batch, length]`.
    pub fn loss(&self, text: &Array<i64>) -> Result<Array<f32>> {
        let scores = self.forward(&text.slice(s![.., ..-1])?)?;
        let next = text.slice(s![.., 1..])?.flatten()?;
        scores
            .reshape([next.len(), self.size.vocabulary])?
            .cross_entropy(&next)
    }

    /// Returns the embeddings of `tokens`. The first token has the position `first`.
    fn embedded(&self, tokens: &Array<i64>, first: usize) -> Result<Array<f32>> {
        let places = first..first + tokens.shape()[1];
        let places = self.wpe.weight.slice(s![places, ..])?;
        (self.wte.forward(tokens)? + places).eval()
    }

    fn scores(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let x = self.ln_f.forward(x)?;
        x.matmul(&self.wte.weight.transpose()?)
    }
}

impl Block {
    fn build<E>(width: usize, get: &mut GetArray<'_, E>) -> Result<Self, E> {
        Ok(Self {
            ln_1: norm(width, "ln_1", get)?,
            attn: Attention {
                c_attn: Conv1d::build([width, 3 * width], "attn.c_attn", get)?,
                c_proj: Conv1d::build([width, width], "attn.c_proj", get)?,
            },
            ln_2: norm(width, "ln_2", get)?,
            mlp: Mlp {
                c_fc: Conv1d::build([width, 4 * width], "mlp.c_fc", get)?,
                c_proj: Conv1d::build([4 * width, width], "mlp.c_proj", get)?,
            },
        })
    }

    /// Applies the block to `x`, of shape `[batch, length, width]`. `attend` receives queries, keys
    /// and values of shape `[batch, heads, length, width / heads]`.
    fn forward(
        &self,
        x: &Array<f32>,
        heads: usize,
        attend: impl FnOnce([Array<f32>; 3]) -> Result<Array<f32>>,
    ) -> Result<Array<f32>> {
        let [batch, length] = [x.shape()[0], x.shape()[1]];
        let parts = self.attn.c_attn.forward(&self.ln_1.forward(x)?)?;
        let parts = parts.reshape([batch, length, 3, heads, INFER])?;
        let part = |which: usize| parts.slice(s![.., .., which, .., ..])?.swap_axes(1, 2);
        let seen = attend([part(0)?, part(1)?, part(2)?])?;
        let seen = seen.swap_axes(1, 2)?.reshape(x.shape())?;
        let x = (x + self.attn.c_proj.forward(&seen)?).eval()?;
        let wide = self.mlp.c_fc.forward(&self.ln_2.forward(&x)?)?;
        (&x + self.mlp.c_proj.forward(&gelu_new(&wide)?)?).eval()
    }
}

impl Conv1d {
    fn build<E>(shape: [usize; 2], name: &str, get: &mut GetArray<'_, E>) -> Result<Self, E> {
        Ok(Self {
            weight: get(&format!("{name}.weight"), &shape)?,
            bias: get(&format!("{name}.bias"), &shape[1..])?,
        })
    }

    fn forward(&self, x: &Array<f32>) -> Result<Array<f32>> {
        let mut product = x.matmul(&self.weight)?;
        product.update(|product| product + &self.bias)?;
        Ok(product)
    }
}

fn norm<E>(width: usize, name: &str, get: &mut GetArray<'_, E>) -> Result<LayerNorm, E> {
    Ok(LayerNorm {
        weight: get(&format!("{name}.weight"), &[width])?,
        bias: get(&format!("{name}.bias"), &[width])?,
        epsilon: 1e-5,
    })
}

/// Applies the `tanh` approximation of `gelu` (Hendrycks and Gimpel 2016) that GPT-2 was trained
/// with.
fn gelu_new(x: &Array<f32>) -> Result<Array<f32>> {
    let scale = (2.0 / std::f32::consts::PI).sqrt();
    let inner = (x + x.square() * x * 0.044_715) * scale;
    (x * 0.5 * (inner.tanh() + 1.0)).eval()
}
