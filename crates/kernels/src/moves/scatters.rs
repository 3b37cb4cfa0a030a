//! Additions and writes to elements that an index array selects. Each loop checks the indices that
//! it reads.

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use num_complex::Complex;

use super::picks::IndexedAxis;
use crate::pointers::ReadPtr;
use crate::walk::Walk;
use crate::{DType, Number};

/// A loop that adds or writes the values of some blocks to the target, in the order of the walk.
///
/// The operands must be alive and not written to, and have the loop's type or size. Only the caller
/// may access the target's elements at the positions of these blocks.
pub type ScatterLoop = unsafe fn(&Scattered, Range<usize>, TargetPtr);

/// The address of the array that a scatter writes.
#[derive(Clone, Copy, Debug)]
pub struct TargetPtr(pub *mut u8);

// SAFETY: the type is an address of plain data. The code that writes the data ensures that no other
// code accesses it meanwhile.
unsafe impl Send for TargetPtr {}
// SAFETY: the code that writes the data ensures that no other code accesses it meanwhile.
unsafe impl Sync for TargetPtr {}

/// Values, and indices along an axis of the target array.
///
/// Invariant: the walk stays within the indices, the values, and the target's elements at index 0
/// of the axis.
#[derive(Clone, Copy, Debug)]
pub struct Scattered {
    /// The address of the indices.
    pub indices: ReadPtr<i64>,
    /// The address of the values.
    pub values: ReadPtr<u8>,
    pub axis: IndexedAxis,
    /// The walk, which pairs the elements of the target, the indices and the values.
    pub walk: Walk<3>,
    /// The axis of the walk that the launch divides into blocks. If the field is `None`, the launch
    /// has one block.
    pub divided: Option<usize>,
    /// The number of positions in a block.
    pub block: usize,
}

/// Returns the loop that adds elements of `dtype`. Signed and unsigned integers share a loop,
/// because integers wrap.
///
/// # Panics
///
/// Panics if elements of `dtype` are added in a wider type, or cannot be added.
pub fn adding_loop(dtype: DType) -> ScatterLoop {
    match dtype {
        DType::F32 => scatter_blocks::<f32, Adding>,
        DType::F64 => scatter_blocks::<f64, Adding>,
        DType::I8 | DType::U8 => scatter_blocks::<u8, Adding>,
        DType::I16 | DType::U16 => scatter_blocks::<u16, Adding>,
        DType::I32 | DType::U32 => scatter_blocks::<u32, Adding>,
        DType::I64 | DType::U64 => scatter_blocks::<u64, Adding>,
        DType::C32 => scatter_blocks::<Complex<f32>, Adding>,
        DType::C64 => scatter_blocks::<Complex<f64>, Adding>,
        _ => unreachable!("elements of {dtype} cannot be added"),
    }
}

/// Returns the loop that writes elements of `bytes` bytes each. If several values have one index,
/// the element gets the last value.
pub fn writing_loop(bytes: usize) -> ScatterLoop {
    by_bytes!(bytes, writing_loop_of::<Word>())
}

fn writing_loop_of<T: Copy>() -> ScatterLoop {
    scatter_blocks::<T, Writing>
}

/// An update of the element that an index selects.
trait Scatter<T> {
    fn with(old: T, value: T) -> T;
}

struct Adding;

struct Writing;

impl<T: Number> Scatter<T> for Adding {
    #[inline(always)]
    fn with(old: T, value: T) -> T {
        old.plus(value)
    }
}

impl<T: Copy> Scatter<T> for Writing {
    #[inline(always)]
    fn with(_old: T, value: T) -> T {
        value
    }
}

/// Adds or writes the values of the blocks of `range`, of type `T`, in the order of the walk.
///
/// # Safety
///
/// The contract of a [`ScatterLoop`] must hold.
unsafe fn scatter_blocks<T: Copy, S: Scatter<T>>(
    scattered: &Scattered,
    range: Range<usize>,
    to: TargetPtr,
) {
    let (elements, first) = (scattered.values.cast::<T>(), to.0.cast::<T>());
    let walk = match scattered.divided {
        Some(axis) => {
            let (start, end) = (range.start * scattered.block, range.end * scattered.block);
            scattered
                .walk
                .narrowed(axis, start..end.min(scattered.walk.length(axis)))
        }
        None => scattered.walk,
    };
    let (_, strides @ [step, index_step, value_step]) = walk.row();
    // The compiler knows that writes do not change a local copy.
    let axis = scattered.axis;
    for ([at, index_at, value_at], count) in walk.runs(0..walk.count()) {
        let (to, indices) = (first.wrapping_add(at), scattered.indices.at(index_at));
        let values = elements.at(value_at);
        // SAFETY: by the invariant, the walk stays within the indices, the values, and the target's
        // elements at index 0 of the axis. `IndexedAxis::offset` checks each index.
        unsafe {
            match strides {
                [1, 0, 1] => {
                    let to = to.wrapping_offset(axis.offset(indices.read()));
                    let values = from_raw_parts(values, count);
                    for (slot, &value) in from_raw_parts_mut(to, count).iter_mut().zip(values) {
                        *slot = S::with(*slot, value);
                    }
                }
                [0, 1, 1] => {
                    let indices = from_raw_parts(indices, count);
                    let values = from_raw_parts(values, count);
                    for (&index, &value) in indices.iter().zip(values) {
                        let to = to.wrapping_offset(axis.offset(index));
                        to.write(S::with(to.read(), value));
                    }
                }
                _ => {
                    for part in 0..count as isize {
                        let index = indices.wrapping_offset(part * index_step).read();
                        let to = to.wrapping_offset(part * step + axis.offset(index));
                        let value = values.wrapping_offset(part * value_step).read();
                        to.write(S::with(to.read(), value));
                    }
                }
            }
        }
    }
}
