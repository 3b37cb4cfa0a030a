//! Operations that move elements and compute nothing. The host's functions are compiled for each
//! size of an element, and CUDA's once.

use crate::array::{Array, Bits, Shape};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::aliasing::Target;
use crate::ops::cuda;
use crate::ops::derivatives::AnyArray;
use crate::ops::descriptors::{Copying, Picking, Triangle};
use crate::ops::host;
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
    on_device!(
        array.device(),
        touching & array.buffer,
        order => in_words!(array, Word => host::copied::<Word>(order, &array, copying, shape)),
        cuda::copied(order, array.operand(), copying, shape)
    )
}

/// Returns the concatenation of arrays of one type along the axis `at`, as a new array of `shape`.
#[track_caller]
pub(super) fn joined(arrays: &[AnyArray], at: usize, shape: &Shape) -> Result<AnyArray> {
    let dtype = arrays[0].dtype;
    on_device!(
        arrays[0].device(),
        touching & arrays,
        order => by_word!(dtype.size_bytes(), Word => {
            let arrays: Vec<_> = arrays.iter().map(AnyArray::words::<Word>).collect();
            let arrays: Vec<_> = arrays.iter().collect();
            let whole = host::joined::<Word>(order, &arrays, at, shape);
            whole.map(|whole| AnyArray::of_words(whole, dtype))
        }),
        cuda::joined(order, arrays, at, shape)
    )
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
    on_device!(
        array.device(),
        touching & [&array.buffer, indices.buffer()],
        order => in_words!(array, Word => {
            host::picked::<Word>(order, &array, indices, picking, at, shape)
        }),
        cuda::picked(order, array.operand(), indices.into(), picking, at, shape)
    )
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
    let updating = UpdateTargets {
        targets: &[target.buffer()],
        reading: [indices.buffer(), &values.buffer],
    };
    let along = (at, Indexing::Scatter);
    on_device!(
        target.device(),
        touching & updating,
        order => by_word!(values.dtype.size_bytes(), Word => {
            host::put_at::<Word>(order, target, indices, &values.words(), along, shape)
        }),
        cuda::put_at(order, target, indices.into(), values.operand(), along, shape)
    )
}

#[track_caller]
pub(super) fn padded(
    array: &AnyArray,
    before: &Shape,
    value: Bits,
    shape: &Shape,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        order => in_words!(array, Word => {
            let value = bytemuck::pod_read_unaligned(value.bytes(size_of::<Word>()));
            host::padded::<Word>(order, &array, before, value, shape)
        }),
        cuda::padded(order, array.operand(), before, value, shape)
    )
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(super) fn on_diagonal(array: &AnyArray, k: isize, shape: &Shape) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        order => in_words!(array, Word => host::on_diagonal::<Word>(order, &array, k, shape)),
        cuda::on_diagonal(order, array.operand(), k, shape)
    )
}

/// Returns `array` with zeros outside of the triangle of its last two axes that diagonal `k`
/// bounds.
#[track_caller]
pub(super) fn triangular(array: &AnyArray, triangle: Triangle, k: isize) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        order => in_words!(array, Word => host::triangular::<Word>(order, &array, triangle, k)),
        cuda::triangular(order, array.operand(), triangle, k)
    )
}

/// Returns the elements of `array` at which `flags` are true. Both are contiguous and equally long.
#[track_caller]
pub(super) fn compacted(array: &AnyArray, flags: &Array<bool>) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & [&array.buffer, flags.buffer()],
        order => in_words!(array, Word => host::compacted::<Word>(order, &array, flags)),
        cuda::compacted(order, array.operand(), flags.into())
    )
}
