//! The memory that kernels write.

use crate::array::{AnyArray, AnyElement, Array, Buffer, DType, Layout, Shape, Walk};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::order::aliasing::Target;
use cachescope_kernels::moves::copies::copy_elements;
pub(crate) use cachescope_kernels::output::{Output, Untyped};

/// Returns the elements of `place`. `place` must have no gaps. Other handles may share the memory
/// around these elements. The caller guarantees that nothing else reads or writes the elements.
pub(super) fn output_at(place: &AnyArray) -> Untyped {
    assert!(place.layout.is_contiguous(), "the place is not contiguous");
    let offset_bytes = place.layout.offset() * place.dtype.size_bytes();
    let base: *mut u8 = host_pointer(DevicePtr(place.buffer.address()));
    Untyped::new(base.wrapping_add(offset_bytes), place.len())
}

/// Returns the first `count` elements of `buffer`.
///
/// # Panics
///
/// Panics if the elements do not fit, or if another handle shares the memory.
fn output_of<T: AnyElement>(buffer: &mut Buffer, count: usize) -> Output<T> {
    let fits = count <= buffer.size_bytes() / size_of::<T>();
    let alone = count == 0 || buffer.holders() == 1;
    assert!(fits && alone, "the target is too small, or is shared");
    let output = Untyped::new(host_pointer(DevicePtr(buffer.address())), count);
    // SAFETY: the elements fit, as just checked, and are written as `T`.
    unsafe { output.typed() }
}

/// Returns a new array of `shape` on `device`. `write` must launch the writes of the array's
/// elements on the thread's current stream.
///
/// # Safety
///
/// The launches of `write` must write every element of the output.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn computed<T: AnyElement>(
    device: &Device,
    shape: &Shape,
    write: impl FnOnce(Output<T>),
) -> Result<Array<T>> {
    let layout = Layout::contiguous(shape)?;
    // SAFETY: by this function's contract.
    unsafe { laid_out(device, layout, write) }
}

/// Like [`computed`], for elements of `dtype`.
///
/// # Safety
///
/// The contract of [`computed`] applies.
#[track_caller]
pub(super) unsafe fn computed_any(
    device: &Device,
    shape: &Shape,
    dtype: DType,
    write: impl FnOnce(Untyped),
) -> Result<AnyArray> {
    // SAFETY: by this function's contract.
    let (array, output) = unsafe { begun(device, shape, dtype) }?;
    if output.count() > 0 {
        write(output);
    }
    Ok(array)
}

/// Like [`computed`], for a `layout` that is dense from index 0.
///
/// # Safety
///
/// The contract of [`computed`] applies.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn laid_out<T: AnyElement>(
    device: &Device,
    layout: Layout,
    write: impl FnOnce(Output<T>),
) -> Result<Array<T>> {
    let count = layout.len();
    let mut buffer = Buffer::new(device, layout.size_bytes(size_of::<T>())?)?;
    if count > 0 {
        write(output_of(&mut buffer, count));
    }
    Ok(Array::from_parts(buffer, layout))
}

/// Returns a new array of `shape` on `device`, and its memory.
///
/// # Safety
///
/// Launches on the thread's current stream must write every element before other code uses the
/// array.
// Not inlined, because `computed_any` is compiled for each closure.
#[inline(never)]
#[track_caller]
pub(super) unsafe fn begun(
    device: &Device,
    shape: &Shape,
    dtype: DType,
) -> Result<(AnyArray, Untyped)> {
    let buffer = Buffer::new(device, shape.size_bytes(dtype.size_bytes())?)?;
    let count = shape.dims().iter().product();
    let output = Untyped::new(host_pointer(DevicePtr(buffer.address())), count);
    Ok((AnyArray::of_shape(buffer, shape, dtype), output))
}

/// The elements of an array that is overwritten in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    base: *mut u8,
    element_bytes: usize,
    walk: Walk<1>,
    // `true` if the elements are consecutive in memory.
    is_dense: bool,
}

// SAFETY: the addresses are of plain data. By the contract of `write`, different threads write
// different elements.
unsafe impl Send for Elements {}
// SAFETY: by the contract of `write`, different threads write different elements.
unsafe impl Sync for Elements {}

impl Elements {
    pub(super) fn new(target: &Target<'_>) -> Self {
        Self {
            base: host_pointer(DevicePtr(target.buffer().address())),
            element_bytes: target.dtype().size_bytes(),
            walk: Layout::walk([target.layout()]),
            is_dense: target.layout().is_contiguous(),
        }
    }

    /// Copies `count` elements from `values` to the array's elements from the element `start` on,
    /// in row-major order.
    ///
    /// # Safety
    ///
    /// The array must be alive. Nothing else may read or write the elements meanwhile. `values`
    /// must be readable, and must not overlap the elements.
    pub(super) unsafe fn write(&self, start: usize, values: *const u8, count: usize) {
        let all = self.walk.count();
        assert!(start <= all && count <= all - start);
        let bytes = self.element_bytes;
        if self.is_dense {
            let [first] = self.walk.first();
            let to = self.base.wrapping_add((first + start) * bytes);
            // SAFETY: the array has `count` elements from `to` on. This function's contract covers
            // `values`.
            unsafe { to.copy_from_nonoverlapping(values, count * bytes) };
            return;
        }
        let (_, [stride]) = self.walk.row();
        let mut from = values;
        for ([at], here) in self.walk.runs(start..start + count) {
            let to = self.base.wrapping_add(at * bytes);
            // SAFETY: the layout has `here` elements from `at` on, with the step `stride`. By the
            // invariant of the array, these elements are in its buffer.
            unsafe { copy_elements(bytes, from, to, here, [1, stride]) };
            from = from.wrapping_add(here * bytes);
        }
    }
}
