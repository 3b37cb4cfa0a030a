//! Scaled dot-product attention.
//!
//! The scores of all heads are the largest array of a transformer's step. So the gradient rule of
//! attention saves the three operands, and computes the scores again. CUDA devices have fused
//! kernels that never store scores (`fused`). Otherwise, scores are stored in blocks. On the host,
//! each of the rule's three arrays for a block has at most 1 MiB.

mod fused;
mod gradients;

use std::ops::Range;

use ndarray::SliceInfoElem;
use smallvec::SmallVec;

use crate::array::{AnyArray, Array, DType, Float, MAX_RANK, Shape, Writer, broadcast_shapes};
use crate::context::{Device, Timed};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::{RuledOperation, is_any_tracked, work_of, zeros_on};
use crate::ops::descriptors::AttentionSizes;
use crate::ops::dispatch::same_device;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::index::check_size;

/// The maximum size of a block's scores on the host, in bytes. The scores of one query may exceed
/// this size. The weights of a block have as many bytes as the scores. Larger blocks are not faster
/// on the host.
const SCORES_BYTES: usize = 4 << 20;
/// The maximum size of a block's scores on a GPU without fused kernels for the operands, in bytes.
/// A block must occupy the whole GPU.
const CUDA_SCORES_BYTES: usize = 32 << 20;

/// Returns softmax(q kᵀ / √d) v, the attention of queries `q` to keys `k` with values `v`. The
/// result for a query is a weighted mean of the values. The weight of a value grows with the
/// similarity of its key to the query.
///
/// `q` has the shape `[.., lq, d]`, `k` `[.., lk, d]` and `v` `[.., lk, dv]`. The leading axes
/// index heads, and broadcast. The result has the shape `[.., lq, dv]`. If `causal` is set, the
/// query `i` only attends to the keys `j <= i`. The mask begins at the first query and the first
/// key, even if there are fewer keys than queries. PyTorch's `is_causal` has an equal mask.
///
/// The scores of all heads are never stored together:
///
/// - Fused kernels never store scores. The gradient saves 8 bytes per query beside the operands and
///   the result. Sums and the softmax are in `f32`. Tensor cores multiply `f16` and `bf16`, and
///   round the weights and their gradients to the operands' type first. `f32` is rounded only if
///   [`DeviceConfig::tf32`](crate::DeviceConfig::tf32) allows it. Results are equal in every run.
///   CUDA devices have fused kernels for `f32`, and from compute capability 8.0 on for `f16` and
///   `bf16`. Heads have at most 256 columns, or fewer if the device has little shared memory.
/// - Otherwise, the computation is divided into blocks of heads, and of queries if one head has too
///   many queries. The scores and weights of a block together have at most 64 MiB, unless a single
///   query has more. `f16` and `bf16` are computed in `f32`. The blocks do not depend on the
///   threads or the free memory. Second derivatives are computed in this way on every device. A
///   recording has the scratch memory of the blocks. On a CUDA device, a warning in builds with
///   debug assertions names the reason, unless the type is `f64`.
///
/// If the heads of `q` lie inside of its rows in memory, so do the heads of a fused result. Then
/// `swap_axes` and `reshape` join the heads without a copy.
///
/// Vaswani et al., ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762), 2017. The
/// kernels are as in Dao, ["FlashAttention-2"](https://arxiv.org/abs/2307.08691), 2023, the blocks
/// of queries as in Rabe and Staats, ["Self-attention Does Not Need O(n²)
/// Memory"](https://arxiv.org/abs/2112.05682), 2021.
///
/// # Examples
///
/// ```
/// use cachescope::ndarray::s;
/// use cachescope::{Array, attention};
///
/// let (heads, length, width) = (4, 10, 8);
/// let q = Array::<f32>::randn([heads, length, width])?;
/// let k = Array::<f32>::randn([heads, length, width])?;
/// let v = Array::<f32>::randn([heads, length, width])?;
/// let y = attention(&q, &k, &v, true)?;
/// assert_eq!(y.shape(), [heads, length, width]);
///
/// // The first query sees the first key alone.
/// assert_eq!(y.slice(s![.., 0, ..])?, v.slice(s![.., 0, ..])?);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if a rank is below 2, or if the leading axes do not
/// broadcast. [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the widths of `q` and `k`, or the
/// lengths of `k` and `v`, differ. [`InvalidShape`](ErrorKind::InvalidShape) if the size overflows.
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) and [`OutOfMemory`](ErrorKind::OutOfMemory).
#[track_caller]
pub fn attention<T: Float>(
    q: &Array<T>,
    k: &Array<T>,
    v: &Array<T>,
    causal: bool,
) -> Result<Array<T>> {
    attend([q, k, v].map(Array::erased), causal).map(Array::from_erased)
}

#[track_caller]
fn attend(operands: [&AnyArray; 3], causal: bool) -> Result<AnyArray> {
    let [q, _, v] = operands;
    let keys = v.dims().iter().rev().nth(1).copied();
    let flops = work_of(&[4, q.len(), keys.unwrap_or(1)]);
    let step = RuledOperation::begin("attention", &operands)?.computed_by(flops, move |operands| {
        let operands = [0, 1, 2].map(|at: usize| &operands[at]);
        let (result, _) = attended(operands, &sizes_of(operands)?, causal)?;
        let is_inside = !result.layout.is_contiguous();
        with_heads_inside(result, is_inside)
    });
    let sizes = sizes_of(operands)?;
    let (result, softmax) = attended(operands, &sizes, causal)?;
    // A tracked value is row-major. So the value has its heads inside of its rows, if the result
    // has, and the result is a view.
    let is_inside = !result.layout.is_contiguous();
    let value = with_heads_inside(result, is_inside)?;
    let whole = value.share();
    let value = step.finish(value, |saved| {
        let operands = operands.map(|operand| saved.save_releasable(operand));
        let softmax = softmax.map(|softmax| {
            let result = saved.save_releasable(&whole);
            (result, saved.save_recomputed(&softmax))
        });
        move |gradient: AnyArray| {
            let [q, k, v] = operands;
            let [q, k, v] = &[q.fetch()?, k.fetch()?, v.fetch()?];
            let gradient = with_heads_inside(gradient, is_inside)?;
            match softmax {
                // The products of blocks are tracked, and fused kernels are not.
                Some((result, softmax)) if !is_any_tracked(&[q, k, v, &gradient])? => {
                    let result = with_heads_inside(result.fetch()?, is_inside)?;
                    let gradient = gradient.converted(q.dtype)?;
                    let arrays = [q, k, v, &result, &softmax, &gradient];
                    fused::gradients(arrays, &sizes, causal)
                }
                _ => gradients::of_operands([q, k, v], &sizes, &gradient, causal),
            }
        }
    });
    with_heads_inside(value, is_inside)
}

/// If `is_inside`, exchanges the axis of rows and the axis of heads before it.
#[track_caller]
fn with_heads_inside(array: AnyArray, is_inside: bool) -> Result<AnyArray> {
    match is_inside {
        false => Ok(array),
        true => Ok(array.viewed(array.layout.swap_axes(-2, -3)?)),
    }
}

/// Returns the attention, computed in the accumulation type. If a fused kernel computed it, also
/// returns the array that the kernel's gradients need.
#[track_caller]
fn attended(
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    causal: bool,
) -> Result<(AnyArray, Option<AnyArray>)> {
    let shape = sizes.shape(sizes.queries, sizes.width);
    check_size("attention", &shape, operands[0].dtype)?;
    if shape.checked_len()? == 0 {
        return Ok((operands[0].zeros(&shape)?, None));
    }
    if let Some([result, softmax]) = fused::attended(operands, sizes, causal)? {
        return Ok((result, Some(softmax)));
    }
    Ok((attended_by_blocks(operands, sizes, causal)?, None))
}

/// Returns the attention, computed from blocks of scores.
#[track_caller]
fn attended_by_blocks(
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    causal: bool,
) -> Result<AnyArray> {
    let [q, k, v] = operands;
    let (device, dtype) = (q.device(), q.dtype);
    let _timed = Timed::in_blocks(device);
    let shape = sizes.shape(sizes.queries, sizes.width);
    let most = most_bytes(device, SCORES_BYTES);
    let blocks = ScoreBlocks::of(sizes, dtype.computed_in(), causal, most);
    let mut result = None;
    for first_query in (0..sizes.queries).step_by(blocks.queries) {
        let queries = first_query..sizes.queries.min(first_query + blocks.queries);
        let (keys, mask) = seen_keys(device, sizes, queries.clone(), causal)?;
        let mut heads = blocks.first(&sizes.heads);
        loop {
            let q = part(q, &heads, queries.clone())?;
            let k = part(k, &heads, keys.clone())?;
            let v = part(v, &heads, keys.clone())?;
            let weights = weights(&q, &k, mask.as_ref(), sizes.scale())?;
            let means = weights.matmul(&v)?;
            if means.shape() == &shape {
                return means.converted(dtype);
            }
            let target = match &mut result {
                Some(result) => result,
                None => result.insert(zeros_on(device, &shape, dtype)?),
            };
            let means = means.lazy().cast(dtype);
            let mut place = target.slice_mut(&selection(&heads, queries.clone()))?;
            place.assign(&means)?;
            if !blocks.advance(&mut heads, &sizes.heads) {
                break;
            }
        }
    }
    Ok(result.expect("a result that is not empty has a block"))
}

/// Returns the keys that `queries` may attend to, and the mask of these keys if the attention is
/// `causal`.
#[track_caller]
fn seen_keys(
    device: &Device,
    sizes: &AttentionSizes,
    queries: Range<usize>,
    causal: bool,
) -> Result<(Range<usize>, Option<Array<bool>>)> {
    if !causal {
        return Ok((0..sizes.keys, None));
    }
    let keys = 0..sizes.keys.min(queries.end);
    let mask = mask(device, queries.start, [queries.len(), keys.len()])?;
    Ok((keys, Some(mask)))
}

/// Returns the maximum size of a block's scores in bytes. On the host, this size is `host_bytes`.
fn most_bytes(device: &Device, host_bytes: usize) -> usize {
    match device.backend().cuda().is_some() {
        true => CUDA_SCORES_BYTES,
        false => host_bytes,
    }
}

/// Returns softmax(q kᵀ · scale), over the keys at which the mask is true.
#[track_caller]
fn weights(q: &AnyArray, k: &AnyArray, mask: Option<&Array<bool>>, scale: f64) -> Result<AnyArray> {
    let scores = q.matmul(&k.swap_axes(-2, -1)?)?;
    let scaled = scores.lazy() * scale;
    match mask {
        None => scaled.softmax(-1),
        Some(mask) => {
            let hidden = AnyLazy::number(scores.dtype, f64::NEG_INFINITY);
            AnyLazy::select(mask.erased().lazy(), scaled, hidden).softmax(-1)
        }
    }
}

/// Returns the causal mask of shape `shape`, for the queries from `first` on and the keys from 0
/// on.
#[track_caller]
fn mask(device: &Device, first: usize, shape: [usize; 2]) -> Result<Array<bool>> {
    let mut writer = Writer::new(device, &Shape::SCALAR)?;
    writer.repeat(true, 1)?;
    writer.finish()?.broadcast_to(shape)?.tril(first as isize)
}

/// Returns the rows `rows` of the heads `heads`, in the accumulation type.
#[track_caller]
fn part(array: &AnyArray, heads: &[Range<usize>], rows: Range<usize>) -> Result<AnyArray> {
    // Axes of length 1 broadcast, so they are selected whole. Axes that the array lacks are
    // skipped.
    let own = &array.dims()[..array.layout.ndim() - 2];
    let heads = &heads[heads.len() - own.len()..];
    let heads = own.iter().zip(heads);
    let heads: SmallVec<[Range<usize>; MAX_RANK]> = heads
        .map(|(&length, heads)| if length == 1 { 0..1 } else { heads.clone() })
        .collect();
    let part = array.slice(&selection(&heads, rows))?;
    part.converted(array.dtype.computed_in())
}

/// Returns the selection of `heads` along the leading axes, of `rows` along the next axis, and of
/// the whole last axis.
fn selection(heads: &[Range<usize>], rows: Range<usize>) -> SmallVec<[SliceInfoElem; MAX_RANK]> {
    let range = |range: &Range<usize>| SliceInfoElem::Slice {
        start: range.start as isize,
        end: Some(range.end as isize),
        step: 1,
    };
    let whole = SliceInfoElem::Slice {
        start: 0,
        end: None,
        step: 1,
    };
    heads
        .iter()
        .chain([&rows])
        .map(range)
        .chain([whole])
        .collect()
}

/// Returns the sizes of `[q, k, v]`, which must fit.
#[track_caller]
fn sizes_of(operands: [&AnyArray; 3]) -> Result<AttentionSizes> {
    let [q, k, v] = operands;
    same_device("attention", ("q", q), ("k", k))?;
    same_device("attention", ("q", q), ("v", v))?;
    let shapes = operands.map(AnyArray::shape);
    let ends = operands.map(|array| array.dims().last_chunk::<2>().copied());
    let [
        Some([queries, depth]),
        Some([keys, others]),
        Some([values, width]),
    ] = ends
    else {
        return Err(mismatch(shapes, "expected at least two axes in each"));
    };
    if depth != others {
        let why = format!(
            "the last axis of q has length {depth}, the last axis of k has length {others}"
        );
        return Err(mismatch(shapes, &why));
    }
    if keys != values {
        let why = format!("axis -2 of k has length {keys}, axis -2 of v has length {values}");
        return Err(mismatch(shapes, &why));
    }
    let leading = operands.map(|array| Shape::from(&array.dims()[..array.layout.ndim() - 2]));
    let [first, second, third] = &leading;
    let Ok(heads) = broadcast_shapes("attention", &[first, second, third]) else {
        let why = format!(
            "the axes before the last two, {first}, {second} and {third}, do not broadcast"
        );
        return Err(mismatch(shapes, &why));
    };
    Ok(AttentionSizes {
        heads,
        queries,
        keys,
        depth,
        width,
    })
}

#[cold]
#[track_caller]
fn mismatch([q, k, v]: [&Shape; 3], why: &str) -> Error {
    Error::new(
        ErrorKind::ShapeMismatch,
        format!("attention: q {q}, k {k} and v {v} do not fit: {why}"),
    )
}

/// The sizes of a block.
#[derive(Debug, PartialEq)]
struct ScoreBlocks {
    queries: usize,
    /// The heads along each axis.
    heads: SmallVec<[usize; MAX_RANK]>,
}

impl ScoreBlocks {
    /// Returns the size of blocks whose scores have the type `wide`.
    fn of(sizes: &AttentionSizes, wide: DType, causal: bool, most_bytes: usize) -> Self {
        let row_bytes = sizes.keys.saturating_mul(wide.size_bytes()).max(1);
        let fit = (most_bytes / row_bytes).max(1);
        // A causal mask divides queries into several blocks. Each block skips the keys after its
        // queries.
        let most = if causal {
            sizes.queries.div_ceil(CAUSAL_BLOCKS).max(LEAST_CAUSAL)
        } else {
            sizes.queries
        };
        let queries = evenly(sizes.queries, fit.min(most));
        let mut fit = fit / queries;
        let dims = sizes.heads.dims();
        let mut heads = SmallVec::from_elem(1, dims.len());
        for (own, &length) in heads.iter_mut().zip(dims).rev() {
            *own = evenly(length, fit);
            // If a block has a part of one axis, it has one index of each axis before it.
            fit = if *own == length { fit / length } else { 1 };
        }
        Self { queries, heads }
    }

    fn first(&self, all: &Shape) -> SmallVec<[Range<usize>; MAX_RANK]> {
        let lengths = self.heads.iter().zip(all.dims());
        lengths.map(|(&own, &all)| 0..own.min(all)).collect()
    }

    /// Advances to the next block of heads, and returns whether there is one.
    fn advance(&self, heads: &mut [Range<usize>], all: &Shape) -> bool {
        let axes = heads.iter_mut().zip(&self.heads).zip(all.dims());
        for ((range, &own), &length) in axes.rev() {
            if range.end < length {
                *range = range.end..length.min(range.end + own);
                return true;
            }
            *range = 0..own.min(length);
        }
        false
    }
}

/// The number of blocks of queries under a causal mask, and the minimum number of queries of a
/// block.
const CAUSAL_BLOCKS: usize = 4;
const LEAST_CAUSAL: usize = 256;

/// Divides `length` into the fewest equal parts of at most `most`, and returns the length of a
/// part.
fn evenly(length: usize, most: usize) -> usize {
    let parts = length.div_ceil(most.max(1)).max(1);
    length.div_ceil(parts).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(heads: &[usize], queries: usize, keys: usize) -> ScoreBlocks {
        let sizes = AttentionSizes {
            heads: heads.into(),
            queries,
            keys,
            depth: 64,
            width: 64,
        };
        ScoreBlocks::of(&sizes, DType::F32, false, CUDA_SCORES_BYTES)
    }

    #[test]
    fn blocks_are_as_large_as_the_bound() {
        let small = blocks(&[2, 3], 10, 20);
        assert_eq!((small.queries, &small.heads[..]), (10, &[2, 3][..]));
        // The scores of a head have 4 MiB.
        let heads = blocks(&[4, 12], 1024, 1024);
        assert_eq!((heads.queries, &heads.heads[..]), (1024, &[1, 6][..]));
        let queries = blocks(&[4, 12], 10_000, 10_000);
        assert_eq!((queries.queries, &queries.heads[..]), (834, &[1, 1][..]));
        let row = blocks(&[2], 3, 1 << 30);
        assert_eq!((row.queries, &row.heads[..]), (1, &[1][..]));
    }

    #[test]
    fn blocks_cover_all_heads_once() {
        let blocks = ScoreBlocks {
            queries: 1,
            heads: SmallVec::from_slice(&[1, 2]),
        };
        let all: Shape = [2, 3].into();
        let mut heads = blocks.first(&all);
        let mut seen = vec![heads.to_vec()];
        while blocks.advance(&mut heads, &all) {
            seen.push(heads.to_vec());
        }
        let wanted = [[0..1, 0..2], [0..1, 2..3], [1..2, 0..2], [1..2, 2..3]];
        assert_eq!(seen, wanted.map(|ranges| ranges.to_vec()));
    }
}
