//! Norms by one kernel in each direction. Only CUDA devices have such kernels.

use super::RowMoments;
use crate::array::AnyArray;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;

/// Returns the norm of `[x, weight, bias]`, or of `[x, weight]` without means, and the moments of
/// its rows. Returns `None` if the device has no kernel for the operands.
#[cfg_attr(
    not(feature = "cuda"),
    expect(unused_variables, reason = "the host has no fused norms")
)]
#[track_caller]
pub(super) fn normalized(
    operands: &[&AnyArray],
    epsilon: f64,
) -> Result<Option<(AnyArray, RowMoments)>> {
    let device = operands[0].device();
    if device.backend().cuda().is_none() {
        return Ok(None);
    }
    let [x, weight] = [operands[0], operands[1]];
    // Without a bias, the last operand is the weight again.
    let bias = operands[operands.len() - 1];
    on_device!(
        device,
        touching & [&x.buffer, &weight.buffer, &bias.buffer],
        _order => Ok(None),
        {
            let norm = cuda::norm_of_rows(_order, operands, epsilon)?;
            Ok(norm.map(|(result, means, factors)| (result, (means, factors))))
        }
    )
}

/// Returns the gradients of x, the weight and, if there are means, the bias. `arrays` are x, the
/// weight and the gradient of the result. Returns `None` if the device has no kernel for them.
#[track_caller]
pub(super) fn gradients(
    arrays: [&AnyArray; 3],
    (means, factors): (Option<&AnyArray>, &AnyArray),
) -> Result<Option<Vec<AnyArray>>> {
    let device = arrays[0].device();
    if device.backend().cuda().is_none() {
        return Ok(None);
    }
    let [x, weight, gradient] = arrays;
    let read = [x, weight, gradient, factors, means.unwrap_or(factors)];
    on_device!(
        device,
        touching & read.map(|array| &array.buffer),
        _order => Ok(None),
        cuda::gradients_of_norm(_order, arrays, (means, factors))
    )
}
