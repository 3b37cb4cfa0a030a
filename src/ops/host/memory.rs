//! The memory that kernels write.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::by_bytes;
use crate::array::{AnyArray, AnyElement, Array, Buffer, DType, Layout, Shape, Walk};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::aliasing::Target;

/// The memory of an array that is being computed, parts of which are lent to the threads of a
/// launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<T> {
    base: *mut MaybeUninit<T>,
    count: usize,
}

// SAFETY: an output is plain memory that nobody else had when the output was made; `part` lends
// each element to one thread at a time, by its contract.
unsafe impl<T: Send> Send for Output<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<T> {}

/// A type-erased [`Output`].
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Untyped {
    base: *mut u8,
    count: usize,
}

// SAFETY: as for an output.
unsafe impl Send for Untyped {}
// SAFETY: as above.
unsafe impl Sync for Untyped {}

impl Untyped {
    /// Returns the address of the first element.
    pub(super) fn address(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the elements of `place`, which has no gaps. The memory around them may have other
    /// handles. The caller guarantees that nothing else reads or writes the elements; so do the
    /// writers of an output that others wait for.
    pub(super) fn at(place: &AnyArray) -> Self {
        assert!(place.layout.is_contiguous(), "a place has no gaps");
        let offset_bytes = place.layout.offset() * place.dtype.size_bytes();
        let base: *mut u8 = host_pointer(DevicePtr(place.buffer.address()));
        Self {
            base: base.wrapping_add(offset_bytes),
            count: place.len(),
        }
    }

    /// Returns the address of the element `index`, of `dtype`. It may be the end.
    pub(super) fn part(&self, dtype: DType, index: usize) -> *mut u8 {
        assert!(index <= self.count);
        self.base.wrapping_add(index * dtype.size_bytes())
    }

    /// # Safety
    ///
    /// It must have been made from an output of elements of `T`.
    pub(super) unsafe fn typed<T: AnyElement>(self) -> Output<T> {
        Output {
            base: self.base.cast(),
            count: self.count,
        }
    }
}

impl<T: AnyElement> Output<T> {
    #[cfg(feature = "linalg")]
    pub(super) fn untyped(&self) -> Untyped {
        Untyped {
            base: self.base.cast(),
            count: self.count,
        }
    }

    /// Returns the first `count` elements of `buffer`.
    ///
    /// # Panics
    ///
    /// If they do not fit, or another handle shares the memory.
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

    /// Returns the elements of `range`, not yet written.
    ///
    /// # Safety
    ///
    /// The memory must be alive, and its readers must run later. Nobody else may hold a part that
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

/// Returns a new array of `shape` on `device`. `write` launches the writes of its elements, on the
/// thread's current stream.
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
    // SAFETY: the caller keeps this contract.
    unsafe { laid_out(device, layout, write) }
}

/// Like [`computed`], for elements of `dtype`.
///
/// # Safety
///
/// As for [`computed`].
#[track_caller]
pub(super) unsafe fn computed_any(
    device: &Device,
    shape: &Shape,
    dtype: DType,
    write: impl FnOnce(Untyped),
) -> Result<AnyArray> {
    let (buffer, output) = allocated(device, shape, dtype)?;
    if output.count > 0 {
        write(output);
    }
    Ok(AnyArray::of_shape(buffer, shape, dtype))
}

/// Allocates the memory of a new array.
#[track_caller]
fn allocated(device: &Device, shape: &Shape, dtype: DType) -> Result<(Buffer, Untyped)> {
    let buffer = Buffer::new(device, shape.size_bytes(dtype.size_bytes())?)?;
    let output = Untyped {
        base: host_pointer(DevicePtr(buffer.address())),
        count: shape.dims().iter().product(),
    };
    Ok((buffer, output))
}

/// Like [`computed`], but with a `layout`, which is dense from index 0.
///
/// # Safety
///
/// As for [`computed`].
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
        write(Output::new(&mut buffer, count));
    }
    Ok(Array::from_parts(buffer, layout))
}

/// Returns a new array of `shape` on `device`, and its memory, for launches that write several
/// arrays.
///
/// # Safety
///
/// Launches on the thread's current stream must write every element before anybody else has the
/// array.
#[cfg(any(feature = "fft", feature = "linalg"))]
#[track_caller]
pub(super) unsafe fn begun<T: AnyElement>(
    device: &Device,
    shape: &Shape,
) -> Result<(Array<T>, Output<T>)> {
    let layout = Layout::contiguous(shape)?;
    let mut buffer = Buffer::new(device, layout.size_bytes(size_of::<T>())?)?;
    let output = Output::new(&mut buffer, layout.len());
    Ok((Array::from_parts(buffer, layout), output))
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

// SAFETY: `write` keeps threads to different elements, by its contract, and this is plain data.
unsafe impl Send for Elements {}
// SAFETY: as above.
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

    /// Writes the `count` elements from `values` on to the array's elements from number `start` on,
    /// in row-major order.
    ///
    /// # Safety
    ///
    /// The array must be alive. Nobody may read or write these elements meanwhile. `values` must be
    /// readable, and must not be part of them.
    pub(super) unsafe fn write(&self, start: usize, values: *const u8, count: usize) {
        let all = self.walk.count();
        assert!(start <= all && count <= all - start);
        let bytes = self.element_bytes;
        if self.is_dense {
            let [first] = self.walk.first();
            let to = self.base.wrapping_add((first + start) * bytes);
            // SAFETY: the array has `count` elements there, and the rest is this function's
            // contract.
            unsafe { to.copy_from_nonoverlapping(values, count * bytes) };
            return;
        }
        let (_, [stride]) = self.walk.row();
        let mut from = values;
        for ([at], here) in self.walk.runs(start..start + count) {
            let to = self.base.wrapping_add(at * bytes);
            // SAFETY: `here` elements from `at` on in steps of `stride` are elements of the layout,
            // which lie in the array's buffer by its invariant.
            unsafe {
                match stride {
                    1 => to.copy_from_nonoverlapping(from, here * bytes),
                    _ => by_bytes!(bytes, scatter_row::<Bits>(from, here, to, stride)),
                }
            }
            from = from.wrapping_add(here * bytes);
        }
    }
}

/// Writes `count` values to elements that are `stride` apart.
///
/// # Safety
///
/// `to` and the elements `stride` apart after it must be writable and outside the values, which may
/// be read.
unsafe fn scatter_row<T: Copy>(values: *const u8, count: usize, to: *mut u8, stride: isize) {
    let (values, to): (*const T, *mut T) = (values.cast(), to.cast());
    for index in 0..count {
        // SAFETY: by this function's contract.
        unsafe {
            to.wrapping_offset(index as isize * stride)
                .write(values.add(index).read());
        };
    }
}
