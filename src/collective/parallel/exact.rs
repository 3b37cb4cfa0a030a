//! The exact elements of optimizer states, which optimizers store beside the rounded elements.

use half::{bf16, f16};

use crate::array::{AnyArray, Array, DType, Float};
use crate::error::Result;
use crate::grad::MapArrays;
use crate::grad::optim::rounded::{exact, is_narrow, rounded};

/// Like [`exact`], but for a type-erased array.
#[track_caller]
pub(super) fn exact_erased(state: &AnyArray) -> Result<AnyArray> {
    let state = state.share();
    Ok(match state.dtype {
        DType::F16 => AnyArray::of(&exact::<f16>(&state.into_array())?),
        DType::Bf16 => AnyArray::of(&exact::<bf16>(&state.into_array())?),
        _ => state,
    })
}

/// Traversal that copies states, with their exact elements.
pub(super) struct CopyStates;

impl MapArrays for CopyStates {
    fn map<T: Float>(&mut self, state: &Array<T>) -> Result<Array<T>> {
        match is_narrow::<T>() {
            true => rounded(&exact(state)?),
            false => state.lazy().eval_unfused(),
        }
    }
}
