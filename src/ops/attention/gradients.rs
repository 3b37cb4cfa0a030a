//! The gradients of attention: the scores are recomputed, block by block, and are never all in
//! memory (Dao et al., "FlashAttention", 2022).

use super::{ScoreBlocks, Sizes, most_bytes, part, seen_keys, selection, weights};
use crate::array::{Array, Float, Shape};
use crate::context::Timed;
use crate::error::Result;
use crate::ops::derivatives::AnyArray;

/// The bytes of the scores of a block on the host. There are three arrays of this size, beside the
/// activations that the backward pass still needs: they add to the peak.
const SCORES_BYTES: usize = 1 << 20;

/// Returns the gradients of q, k and v, of the shape that their leading axes broadcast to.
#[track_caller]
pub(super) fn of_operands<T: Float>(
    operands: [&Array<T>; 3],
    gradient: &Array<T>,
    causal: bool,
) -> Result<Vec<AnyArray>> {
    let gradients = in_blocks::<T, T::Computed>(operands, gradient, causal)?;
    Ok(gradients.iter().map(AnyArray::of).collect())
}

#[track_caller]
fn in_blocks<T: Float, A: Float>(
    operands: [&Array<T>; 3],
    gradient: &Array<T>,
    causal: bool,
) -> Result<[Array<T>; 3]> {
    let sizes = Sizes::of(operands)?;
    let [q, k, v] = operands;
    let device = q.device();
    let _timed = Timed::in_blocks(device);
    let blocks = ScoreBlocks::of::<A>(&sizes, causal, most_bytes(device, SCORES_BYTES));
    let scale = A::from_f64(1.0 / (sizes.depth as f64).sqrt());
    let shape = |rows: usize, width: usize| -> Shape {
        let heads = sizes.heads.dims().iter().copied();
        heads.chain([rows, width]).collect()
    };
    let (rows, keys) = (sizes.queries, sizes.keys);
    let mut sums = GradientSums {
        q: Array::zeros_on(device, &shape(rows, sizes.depth))?,
        k: Array::zeros_on(device, &shape(keys, sizes.depth))?,
        v: Array::zeros_on(device, &shape(keys, sizes.width))?,
    };
    if gradient.is_empty() {
        return sums.narrowed();
    }
    for first in (0..rows).step_by(blocks.queries) {
        let queries = first..rows.min(first + blocks.queries);
        let (keys, hidden) = seen_keys(device, &sizes, queries.clone(), causal)?;
        let mut heads = blocks.first(&sizes.heads);
        loop {
            let q = part::<T, A>(q, &heads, queries.clone())?;
            let k = part::<T, A>(k, &heads, keys.clone())?;
            let v = part::<T, A>(v, &heads, keys.clone())?;
            let gradient = part::<T, A>(gradient, &heads, queries.clone())?;
            let weights = weights(&q, &k, hidden.as_ref(), scale)?;
            let of_weights = gradient.matmul(&v.swap_axes(-2, -1)?)?;
            let of_v = weights.swap_axes(-2, -1)?.matmul(&gradient)?;
            let mean = (&of_weights * &weights).sum_keepdims(-1)?.downcast::<A>();
            let of_scores = (weights * (of_weights - mean) * scale).eval_unfused()?;
            let of_q = of_scores.matmul(&k)?;
            let of_k = of_scores.swap_axes(-2, -1)?.matmul(&q)?;
            let at_queries = selection(&heads, queries.clone());
            let at_keys = selection(&heads, keys.clone());
            sums.q.slice_mut(at_queries)?.assign(&of_q)?;
            sums.k.slice_mut(&at_keys)?.update(|sum| sum + of_k)?;
            sums.v.slice_mut(&at_keys)?.update(|sum| sum + of_v)?;
            if !blocks.advance(&mut heads, &sizes.heads) {
                break;
            }
        }
    }
    sums.narrowed()
}

struct GradientSums<A: Float> {
    q: Array<A>,
    k: Array<A>,
    v: Array<A>,
}

impl<A: Float> GradientSums<A> {
    #[track_caller]
    fn narrowed<T: Float>(self) -> Result<[Array<T>; 3]> {
        let Self { q, k, v } = self;
        Ok([q.converted()?, k.converted()?, v.converted()?])
    }
}
