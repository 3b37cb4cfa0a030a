//! The gradients of attention. The scores are recomputed block by block, so that memory never holds
//! all scores (Dao et al., "FlashAttention", 2022).

use super::{ScoreBlocks, most_bytes, part, seen_keys, selection, weights};
use crate::array::AnyArray;
use crate::context::Timed;
use crate::error::Result;
use crate::ops::derivatives::zeros_on;
use crate::ops::descriptors::AttentionSizes;

/// The maximum size of a block's scores on the host, in bytes. The backward pass allocates three
/// arrays of this size while other activations are still saved. So these arrays add to the peak
/// memory.
const SCORES_BYTES: usize = 1 << 20;

/// Returns the gradients of q, k and v. Their leading axes are the common axes that the operands
/// broadcast to.
#[track_caller]
pub(super) fn of_operands(
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    gradient: &AnyArray,
    causal: bool,
) -> Result<Vec<AnyArray>> {
    let [q, k, v] = operands;
    let (device, dtype, wide) = (q.device(), q.dtype, q.dtype.computed_in());
    let _timed = Timed::in_blocks(device);
    let blocks = ScoreBlocks::of(sizes, wide, causal, most_bytes(device, SCORES_BYTES));
    let zeros = |rows: usize, width: usize| zeros_on(device, &sizes.shape(rows, width), wide);
    let (rows, keys) = (sizes.queries, sizes.keys);
    let mut sum_q = zeros(rows, sizes.depth)?;
    let mut sum_k = zeros(keys, sizes.depth)?;
    let mut sum_v = zeros(keys, sizes.width)?;
    let blocks_of_queries = match gradient.len() {
        0 => 0,
        _ => rows.div_ceil(blocks.queries),
    };
    for first in (0..blocks_of_queries).map(|block| block * blocks.queries) {
        let queries = first..rows.min(first + blocks.queries);
        let (keys, hidden) = seen_keys(device, sizes, queries.clone(), causal)?;
        let mut heads = blocks.first(&sizes.heads);
        loop {
            let q = part(q, &heads, queries.clone())?;
            let k = part(k, &heads, keys.clone())?;
            let v = part(v, &heads, keys.clone())?;
            let gradient = part(gradient, &heads, queries.clone())?;
            let weights = weights(&q, &k, hidden.as_ref(), sizes.scale())?;
            let of_weights = gradient.matmul(&v.swap_axes(-2, -1)?)?;
            let of_v = weights.swap_axes(-2, -1)?.matmul(&gradient)?;
            let mean = (of_weights.lazy() * weights.lazy()).sum_keepdims(-1)?;
            // The mean is subtracted in two steps, because it is rounded. If one weight is nearly
            // 1, the second step keeps the digits.
            let apart = || of_weights.lazy() - mean.lazy();
            let rest = (apart() * weights.lazy()).sum_keepdims(-1)?;
            let of_scores = (weights.lazy() * (apart() - rest.lazy()) * sizes.scale()).eval()?;
            drop((weights, of_weights, mean, rest));
            let of_q = of_scores.matmul(&k)?;
            let of_k = of_scores.swap_axes(-2, -1)?.matmul(&q)?;
            let at_queries = selection(&heads, queries.clone());
            let at_keys = selection(&heads, keys.clone());
            sum_q.slice_mut(&at_queries)?.assign(&of_q.lazy())?;
            sum_k.slice_mut(&at_keys)?.add(&of_k)?;
            sum_v.slice_mut(&at_keys)?.add(&of_v)?;
            if !blocks.advance(&mut heads, &sizes.heads) {
                break;
            }
        }
    }
    let sums = [sum_q, sum_k, sum_v].into_iter();
    sums.map(|sum| sum.converted(dtype)).collect()
}
