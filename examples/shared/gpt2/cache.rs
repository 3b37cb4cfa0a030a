//! Generation of tokens with a cache of the keys and values of earlier tokens.

use cachescope::ndarray::s;
use cachescope::{Array, Policy, Result, cache_scope, select};

use super::Gpt2;

/// The keys and values of the tokens so far. The memory for later tokens is allocated in advance.
#[derive(Debug)]
pub struct KeyValueCache {
    /// The keys and values of each block, of shape `[batch, heads, capacity, width / heads]`.
    layers: Vec<[Array<f32>; 2]>,
    /// All positions, in ascending order.
    places: Array<i64>,
    /// The number of tokens so far.
    length: usize,
}

/// The sampling options of the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The temperature. 0 chooses the token with the highest score. Other values sample at random.
    /// Above 1, unlikely tokens become more likely.
    pub temperature: f32,
    /// The number of candidates. Only the tokens with the highest scores are candidates. `None`
    /// samples from all tokens.
    pub top_k: Option<usize>,
}

impl KeyValueCache {
    /// Makes an empty cache for `capacity` tokens of each text in a batch.
    pub fn new(network: &Gpt2, batch: usize, capacity: usize) -> Result<Self> {
        let size = network.size();
        let shape = [batch, size.heads, capacity, size.width / size.heads];
        let layers = (0..size.layers).map(|_| Ok([Array::zeros(shape)?, Array::zeros(shape)?]));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            places: Array::arange(0, capacity as i64, 1)?,
            length: 0,
        })
    }
}

impl Gpt2 {
    /// Returns the scores, of shape `[batch, vocabulary]`, of the token after `tokens`. `tokens`
    /// has the shape `[batch, length]`. The tokens follow the tokens in the cache, and are added to
    /// the cache.
    ///
    /// Attention is computed over the whole cache, with a mask over the empty positions. Therefore
    /// every call with one token allocates arrays of equal sizes. Memory that is planned once fits
    /// all these calls.
    pub fn next(&self, tokens: &Array<i64>, cache: &mut KeyValueCache) -> Result<Array<f32>> {
        let (first, end) = (cache.length, cache.length + tokens.shape()[1]);
        let own = Array::arange(first as i64, end as i64, 1)?.unsqueeze(1)?;
        let is_visible = cache.places.le(&own).eval()?;
        let mut x = self.embedded(tokens, first)?;
        for (block, [keys, values]) in self.h.iter().zip(&mut cache.layers) {
            x = block.forward(&x, self.size.heads, |[q, k, v]| {
                keys.slice_mut(s![.., .., first..end, ..])?.assign(&k)?;
                values.slice_mut(s![.., .., first..end, ..])?.assign(&v)?;
                let scale = 1.0 / (q.shape()[3] as f32).sqrt();
                let scores = q.matmul(&keys.swap_axes(-2, -1)?)? * scale;
                select(&is_visible, scores, f32::NEG_INFINITY)
                    .softmax(-1)?
                    .matmul(values)
            })?;
        }
        cache.length = end;
        self.scores(&x.slice(s![.., -1, ..])?)
    }

    /// Continues a text by `count` tokens, or by fewer if the context is full.
    pub fn generate(&self, text: &[i64], count: usize, choice: Choice) -> Result<Vec<i64>> {
        let count = count.min(self.size.context.saturating_sub(text.len()));
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut cache = KeyValueCache::new(self, 1, text.len() + count)?;
        let text = Array::from_slice(text, [1, text.len()])?;
        let mut token = cache_scope!("prompt", policy = Policy::Release, {
            choice.of(&self.next(&text, &mut cache)?)
        })?;
        let mut written = vec![token];
        while written.len() < count {
            token = cache_scope!("token", policy = Policy::Plan, {
                let token = Array::full([1, 1], token)?;
                choice.of(&self.next(&token, &mut cache)?)
            })?;
            written.push(token);
        }
        Ok(written)
    }
}

impl Choice {
    /// Chooses a token by its score. The scores have the shape `[1, vocabulary]`.
    fn of(&self, scores: &Array<f32>) -> Result<i64> {
        if self.temperature == 0.0 {
            return scores.argmax_axis(-1)?.item();
        }
        let scores = (scores / self.temperature).eval()?;
        let Some(k) = self.top_k else {
            return scores.categorical()?.item();
        };
        let (scores, tokens) = scores.topk(k.min(scores.len()), -1)?;
        let drawn = scores.categorical()?.unsqueeze(-1)?;
        tokens.gather(&drawn, -1)?.item()
    }
}
