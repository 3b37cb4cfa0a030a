//! Attention by kernels that never store the scores. Only CUDA devices have such kernels.

use crate::array::AnyArray;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::descriptors::AttentionSizes;

/// Returns the result of an attention, and an array from which [`gradients`] computes the weights.
/// Returns `None` if the device has no kernels for the operands.
#[cfg_attr(
    not(feature = "cuda"),
    expect(unused_variables, reason = "the host has no fused attention")
)]
#[track_caller]
pub(super) fn attended(
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    causal: bool,
) -> Result<Option<[AnyArray; 2]>> {
    let [q, k, v] = operands;
    let lengths = [sizes.queries, sizes.keys, sizes.depth, sizes.width];
    if q.device().backend().cuda().is_none() || lengths.contains(&0) {
        return Ok(None);
    }
    on_device!(
        q.device(),
        touching &[&q.buffer, &k.buffer, &v.buffer],
        _order => Ok(None),
        cuda::attended(_order, operands, sizes, causal)
    )
}

/// Returns the gradients of q, k and v. `arrays` are these three arrays, the two results of
/// [`attended`], and the gradient of the first result.
#[cfg_attr(
    not(feature = "cuda"),
    expect(unused_variables, reason = "the host has no fused attention")
)]
#[track_caller]
pub(super) fn gradients(
    arrays: [&AnyArray; 6],
    sizes: &AttentionSizes,
    causal: bool,
) -> Result<Vec<AnyArray>> {
    let buffers = arrays.map(|array| &array.buffer);
    on_device!(
        arrays[0].device(),
        touching &buffers,
        _order => unreachable!("the host has no fused attention"),
        cuda::gradients_of_attention(_order, arrays, sizes, causal).map(Vec::from)
    )
}
