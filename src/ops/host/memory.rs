//! Where kernels write.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::view::coordinates;
use crate::array::{Array, Buffer, Element, Layout, Shape};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;

/// The memory of an array that is being computed, parts of which are lent to the threads of a
/// launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<T> {
    base: *mut MaybeUninit<T>,
    count: usize,
}

// SAFETY: an output is plain memory that nobody else had when it was made; `part` lends each element
// to one thread at a time, by its contract.
unsafe impl<T: Send> Send for Output<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<T> {}

impl<T: Element> Output<T> {
    /// The first `count` elements of `buffer`.
    ///
    /// # Panics
    ///
    /// Where they do not fit, or another handle shares the memory.
    fn new(buffer: &mut Buffer, count: usize) -> Self {
        let fits = count <= buffer.size_bytes() / size_of::<T>();
        let alone = count == 0 || buffer.holders() == 1;
        assert!(fits && alone, "computed into memory that is not all ours");
        Self {
            base: host_pointer(DevicePtr(buffer.address())).cast(),
            count,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The elements of `range`, not yet written.
    ///
    /// # Safety
    ///
    /// The memory must be alive, and what reads it come later; nobody else may hold a part that
    /// overlaps `range`.
    #[expect(
        clippy::mut_from_ref,
        reason = "the parts do not overlap, by the contract"
    )]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [MaybeUninit<T>] {
        assert!(range.start <= range.end && range.end <= self.count);
        if range.is_empty() {
            return &mut [];
        }
        // SAFETY: the range lies in the buffer, which is alive, and is this caller's alone, both by
        // the contract; blocks are aligned for every element.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}

/// A new array of `shape` on `device`, whose elements `write` launches the writing of, on the
/// thread's current stream.
///
/// # Safety
///
/// What `write` launches must write every element of the output.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn computed<T: Element>(
    device: &Device,
    shape: &Shape,
    write: impl FnOnce(Output<T>),
) -> Result<Array<T>> {
    let layout = Layout::contiguous(shape)?;
    // SAFETY: the caller keeps this contract.
    unsafe { laid_out(device, layout, write) }
}

/// The same with `layout`, which is dense from index 0.
///
/// # Safety
///
/// As for [`computed`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn laid_out<T: Element>(
    device: &Device,
    layout: Layout,
    write: impl FnOnce(Output<T>),
) -> Result<Array<T>> {
    let count = layout.len();
    let Some(size_bytes) = count.checked_mul(size_of::<T>()) else {
        return Err(layout.shape().overflow(size_of::<T>()));
    };
    let mut buffer = Buffer::new(device, size_bytes)?;
    if count > 0 {
        write(Output::new(&mut buffer, count));
    }
    Ok(Array::from_parts(buffer, layout))
}

/// The elements of an array that is overwritten where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<T> {
    base: *mut T,
    layout: Layout,
}

// SAFETY: `write` keeps threads to different elements, by its contract, and a target is plain data.
unsafe impl<T: Send> Send for Target<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Target<T> {}

impl<T: Element> Target<T> {
    pub(crate) fn new(array: &mut Array<T>) -> Self {
        Self {
            base: host_pointer(DevicePtr(array.buffer().address())).cast(),
            layout: array.layout().coalesced(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.len()
    }

    /// The same where the elements stand one after another.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), and the array must be dense.
    #[inline(always)]
    pub(super) unsafe fn write_dense(&self, start: usize, values: &[T]) {
        let to = self.base.wrapping_add(self.layout.offset() + start);
        // SAFETY: by this function's contract.
        unsafe { to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Writes `values` to the elements from number `start` on, in row-major order.
    ///
    /// # Safety
    ///
    /// The array must be alive; nobody may read or write these elements meanwhile, which `values`
    /// must not be part of.
    pub(crate) unsafe fn write(&self, start: usize, values: &[T]) {
        assert!(start <= self.count() && values.len() <= self.count() - start);
        let (length, stride) = self.layout.row();
        let mut rest = values;
        let mut number = start;
        while !rest.is_empty() {
            let (index, at) = coordinates(&self.layout, number);
            let column = index[self.layout.ndim().saturating_sub(1)];
            let here = rest.len().min(length - column);
            let (part, after) = rest.split_at(here);
            let to = self.base.wrapping_add(at);
            // SAFETY: `here` elements from `at` on in steps of `stride` are elements of the layout,
            // which lie in the array's buffer by its invariant.
            unsafe { scatter_row(part, to, stride) };
            rest = after;
            number += here;
        }
    }
}

/// Writes `values` to elements that stand `stride` apart.
///
/// # Safety
///
/// `to` and the elements `stride` apart after it, as many as there are values, must be writable and
/// outside `values`.
unsafe fn scatter_row<T: Copy>(values: &[T], to: *mut T, stride: isize) {
    if stride == 1 {
        // SAFETY: by this function's contract.
        unsafe { to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        return;
    }
    for (index, &value) in values.iter().enumerate() {
        // SAFETY: by this function's contract.
        unsafe { to.wrapping_offset(index as isize * stride).write(value) };
    }
}
