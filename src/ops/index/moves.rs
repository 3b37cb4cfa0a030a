//! Operations that move elements and compute nothing. They are compiled for each size of an element
//! instead of for each type.

use crate::array::{Array, Bits, Shape};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::aliasing::Target;
use crate::ops::derivatives::AnyArray;
use crate::ops::descriptors::{Copying, Picking, Triangle};
use crate::ops::order::UpdateTargets;

/// Evaluates `$run` with `$Word` as the type of words of `$bytes` bytes.
macro_rules! by_word {
    ($bytes:expr, $Word:ident => $run:expr) => {
        match $bytes {
            1 => $crate::ops::index::moves::by_word!(@of u8, $Word => $run),
            2 => $crate::ops::index::moves::by_word!(@of u16, $Word => $run),
            4 => $crate::ops::index::moves::by_word!(@of u32, $Word => $run),
            8 => $crate::ops::index::moves::by_word!(@of u64, $Word => $run),
            16 => $crate::ops::index::moves::by_word!(@of num_complex::Complex<f64>, $Word => $run),
            other => unreachable!("elements of {other} bytes"),
        }
    };
    (@of $T:ty, $Word:ident => $run:expr) => {{
        type $Word = $T;
        $run
    }};
}

use by_word;

/// Evaluates `$run`, an array of words, with `$array` as an array of words.
macro_rules! in_words {
    ($array:ident, $Word:ident => $run:expr) => {{
        let dtype = $array.dtype;
        by_word!(dtype.size_bytes(), $Word => {
            let $array = $array.words::<$Word>();
            $run.map(|moved| AnyArray::of_words(moved, dtype))
        })
    }};
}

/// Returns the elements of `array` that `copying` selects, in a new array of `shape`.
#[track_caller]
pub(in crate::ops) fn copied(
    array: &AnyArray,
    copying: Copying,
    shape: &Shape,
) -> Result<AnyArray> {
    in_words!(array, Word => on_device!(
        array.device(),
        touching array.buffer(),
        copied::<Word>(&array, copying, shape)
    ))
}

/// Returns the concatenation of arrays of one type along the axis `at`, as a new array of `shape`.
#[track_caller]
pub(super) fn joined(arrays: &[AnyArray], at: usize, shape: &Shape) -> Result<AnyArray> {
    let dtype = arrays[0].dtype;
    by_word!(dtype.size_bytes(), Word => {
        let arrays: Vec<_> = arrays.iter().map(AnyArray::words::<Word>).collect();
        let arrays: Vec<_> = arrays.iter().collect();
        let whole = on_device!(
            arrays[0].device(),
            touching && arrays[..],
            joined::<Word>(&arrays, at, shape)
        );
        whole.map(|whole| AnyArray::of_words(whole, dtype))
    })
}

/// Returns the elements that `indices` select along the axis `at` of `array`, in a new array of
/// `shape`. The indices have been checked.
#[track_caller]
pub(super) fn picked(
    array: &AnyArray,
    indices: &Array<i64>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    in_words!(array, Word => on_device!(
        array.device(),
        touching & [array.buffer(), indices.buffer()],
        picked::<Word>(&array, indices, picking, at, shape)
    ))
}

/// Writes each of `values` to the element of `target` that its index selects along the axis `at`.
/// All three broadcast to `shape` along the other axes. The indices have been checked.
#[track_caller]
pub(super) fn put(
    target: Target<'_>,
    indices: &Array<i64>,
    values: &AnyArray,
    at: usize,
    shape: &Shape,
) -> Result<()> {
    by_word!(values.dtype.size_bytes(), Word => {
        let values = values.words::<Word>();
        let updating = UpdateTargets {
            targets: &[target.buffer()],
            reading: [indices.buffer(), values.buffer()],
        };
        let along = (at, Indexing::Scatter);
        on_device!(
            target.device(),
            touching & updating,
            put_at::<Word>(target, indices, &values, along, shape)
        )
    })
}

#[track_caller]
pub(super) fn padded(
    array: &AnyArray,
    before: &Shape,
    value: Bits,
    shape: &Shape,
) -> Result<AnyArray> {
    in_words!(array, Word => {
        let value: Word = bytemuck::pod_read_unaligned(value.bytes(size_of::<Word>()));
        on_device!(
            array.device(),
            touching array.buffer(),
            padded::<Word>(&array, before, value, shape)
        )
    })
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(super) fn on_diagonal(array: &AnyArray, k: isize, shape: &Shape) -> Result<AnyArray> {
    in_words!(array, Word => on_device!(
        array.device(),
        touching array.buffer(),
        on_diagonal::<Word>(&array, k, shape)
    ))
}

/// Returns `array` with zeros outside of the triangle of its last two axes that diagonal `k`
/// bounds.
#[track_caller]
pub(super) fn triangular(array: &AnyArray, triangle: Triangle, k: isize) -> Result<AnyArray> {
    in_words!(array, Word => on_device!(
        array.device(),
        touching array.buffer(),
        triangular::<Word>(&array, triangle, k)
    ))
}

/// Returns the elements of `array` at which `flags` are true. Both are contiguous and equally long.
#[track_caller]
pub(super) fn compacted(array: &AnyArray, flags: &Array<bool>) -> Result<AnyArray> {
    in_words!(array, Word => on_device!(
        array.device(),
        touching & [array.buffer(), flags.buffer()],
        compacted::<Word>(&array, flags)
    ))
}
