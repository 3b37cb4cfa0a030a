//! The bytes behind arrays: the only module of this layer that reads and writes device memory.

use std::borrow::Cow;

use bytemuck::cast_slice_mut;

use super::Buffer;
use crate::array::{AnyArray, AnyElement, Array, Layout, Walk};
use crate::device::cuda::Cuda;
use crate::device::host::host_pointer;
use crate::device::{DeviceId, DevicePtr, Use};
use crate::error::{AtCaller, Result};

/// Writes `values` to `buffer`, from its byte `first` on. The copy is enqueued on the stream that
/// the buffer was allocated on. The buffer is new, so no other stream has used it.
///
/// # Panics
///
/// Panics if the values reach beyond the buffer, or if another handle shares it.
#[track_caller]
pub(in crate::array) fn upload(buffer: &mut Buffer, first: usize, values: &[u8]) -> Result<()> {
    let target = writable(buffer, first, values.len());
    let backend = buffer.device().backend();
    if backend.id() != DeviceId::Host {
        buffer.take_deferred_error()?;
    }
    // SAFETY: `writable` checked that the bytes lie in this buffer and that no other handle shares
    // it.
    unsafe { backend.upload(buffer.stream(), target, values) }.at_caller()
}

/// Writes `value`, the bytes of an element, to `count` elements of `buffer`, from its byte `first`
/// on, as [`upload`] does.
///
/// # Panics
///
/// As for [`upload`].
#[track_caller]
pub(in crate::array) fn fill(
    buffer: &mut Buffer,
    first: usize,
    count: usize,
    value: &[u8],
) -> Result<()> {
    let size_bytes = count * value.len();
    let target = writable(buffer, first, size_bytes);
    let backend = buffer.device().backend();
    // SAFETY: `writable` checked that the bytes lie in this buffer and that no other handle shares
    // it. An element has 1, 2, 4, 8 or 16 bytes, and the bytes are whole elements. Blocks are
    // aligned for every element.
    unsafe { backend.fill(buffer.stream(), target, size_bytes as u64, value) }.at_caller()
}

/// Returns the address of the byte `first` of `buffer`. Checks that `count` bytes fit from there
/// on, and that no other handle shares the buffer.
fn writable(buffer: &mut Buffer, first: usize, count: usize) -> DevicePtr {
    let capacity = buffer.size_bytes();
    let within = first <= capacity && count <= capacity - first;
    assert!(within, "{count} bytes from {first} on exceed {capacity}");
    assert_eq!(buffer.holders(), 1, "wrote to memory that arrays share");
    buffer.track_use(Use::Write);
    DevicePtr(buffer.address()).offset(first as u64)
}

/// The elements between the lowest and the highest index of an array.
struct Reach {
    lowest: usize,
    count: usize,
    /// The address of the lowest element, if it is in the host's memory.
    on_host: Option<*const u8>,
}

impl Reach {
    /// Returns the reach of an array, or `None` if it has no elements. If they are in the host's
    /// memory, waits until they have been written.
    #[inline(never)]
    #[track_caller]
    fn of(array: &AnyArray) -> Result<Option<Self>> {
        let Some((lowest, highest)) = array.layout.bounds() else {
            return Ok(None);
        };
        let mut on_host = None;
        if array.device().backend().id() == DeviceId::Host {
            array.buffer.wait_for_last_write()?;
            let first: *mut u8 = host_pointer(address_of(array, lowest));
            on_host = Some(first.cast_const());
        }
        Ok(Some(Self {
            lowest,
            count: highest - lowest + 1,
            on_host,
        }))
    }
}

/// Downloads the elements from index `lowest` of `array` on, once they have been written.
#[inline(never)]
#[track_caller]
fn download(array: &AnyArray, lowest: usize, target: &mut [u8]) -> Result<()> {
    let buffer = &array.buffer;
    let backend = buffer.device().backend();
    // Until the bytes are downloaded, no launch of a graph overwrites them.
    let gpu = backend.cuda().filter(|_| buffer.is_used_by_graphs());
    let _no_launches = gpu.map(Cuda::lock_launches_shared);
    // Each write waited for the earlier write, so the last write completes after all other writes.
    let writer = buffer.wait_for_last_write()?;
    buffer.take_deferred_error()?;
    // A meta device has no data. The zeros of `target` are never written, so they take no memory.
    if !backend.is_meta() {
        // SAFETY: by the array's invariants, its indices lie in its buffer, and every element
        // between them was written. Nothing writes while `array` is borrowed.
        unsafe { backend.download(writer, address_of(array, lowest), target) }.at_caller()?;
    }
    buffer.device().memory().finish_kernels();
    Ok(())
}

fn address_of(array: &AnyArray, index: usize) -> DevicePtr {
    let offset_bytes = index * array.dtype.size_bytes();
    DevicePtr(array.buffer.address()).offset(offset_bytes as u64)
}

/// The elements that an array's layout reaches, readable by the host: in place if they are in host
/// memory, downloaded otherwise.
#[derive(Debug)]
pub(crate) struct Elements<'a, T: AnyElement> {
    values: Cow<'a, [T::Raw]>,
    layout: Layout,
}

impl<'a, T: AnyElement> Elements<'a, T> {
    #[track_caller]
    pub(crate) fn of(array: &'a Array<T>) -> Result<Self> {
        let Some(reach) = Reach::of(array.erased())? else {
            return Ok(Self {
                values: Cow::Borrowed(&[]),
                layout: *array.layout(),
            });
        };
        let Reach { lowest, count, .. } = reach;
        let values = if let Some(first) = reach.on_host {
            // SAFETY: by the array's invariants, its indices lie in its buffer, and every element
            // between them was written. `array` keeps the buffer alive for `'a`. Blocks are aligned
            // for every element. Writing takes a `&mut` of a buffer's only handle, so nothing
            // writes while `array` is borrowed. Every bit pattern is a valid `Raw`.
            Cow::Borrowed(unsafe { std::slice::from_raw_parts(first.cast::<T::Raw>(), count) })
        } else {
            let mut values = vec![T::Raw::default(); count];
            download(array.erased(), lowest, cast_slice_mut(&mut values))?;
            Cow::Owned(values)
        };
        Ok(Self {
            values,
            layout: array.layout().starting_at(array.layout().offset() - lowest),
        })
    }

    /// Returns the layout of the array's elements in `values`.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns all stored elements, in the order of memory.
    pub(crate) fn values(&self) -> &[T::Raw] {
        &self.values
    }

    /// Returns the element at an index of the [`layout`](Self::layout).
    #[inline]
    pub(crate) fn at(&self, index: usize) -> T {
        T::from_raw(self.values[index])
    }

    /// Returns `count` elements from the index `first` on, `stride` indices apart.
    #[inline]
    pub(crate) fn row(
        &self,
        first: usize,
        stride: isize,
        count: usize,
    ) -> impl ExactSizeIterator<Item = T> + Clone {
        (0..count).map(move |step| self.at(first.wrapping_add_signed(step as isize * stride)))
    }

    /// Returns `count` adjacent elements from the index `first` on.
    #[inline]
    pub(crate) fn run(
        &self,
        first: usize,
        count: usize,
    ) -> impl ExactSizeIterator<Item = T> + Clone {
        let values = &self.values[first..first + count];
        values.iter().map(|raw| T::from_raw(*raw))
    }

    /// Returns the first of the array's elements, in row-major order, that does not satisfy
    /// `is_right`.
    pub(crate) fn find_unless(&self, is_right: impl Fn(T) -> bool) -> Option<T> {
        let walk = Layout::walk([&self.layout]);
        let (_, [stride]) = walk.row();
        let mut runs = walk.runs(0..walk.count());
        runs.find_map(|([first], count)| match stride {
            1 => find_unless(self.run(first, count), &is_right),
            _ => find_unless(self.row(first, stride, count), &is_right),
        })
    }

    /// Returns the array's elements in row-major order.
    pub(crate) fn to_vec(&self) -> Vec<T> {
        let walk = Layout::walk([&self.layout]);
        let (_, [stride]) = walk.row();
        if stride.unsigned_abs() > 1 && walk.axes().len() > 1 && walk.count() > 0 {
            return self.to_vec_by_tiles(&walk);
        }
        let mut elements = Vec::with_capacity(walk.count());
        for ([first], count) in walk.runs(0..walk.count()) {
            if stride == 1 {
                elements.extend(self.run(first, count));
            } else {
                elements.extend(self.row(first, stride, count));
            }
        }
        elements
    }

    /// Returns the elements as [`to_vec`](Self::to_vec) does, tile by tile. Used for rows whose
    /// elements are not adjacent, because one cache line may then have elements of several rows.
    fn to_vec_by_tiles(&self, walk: &Walk<1>) -> Vec<T> {
        /// Elements along each side of a tile.
        const TILE: usize = 32;
        let mut elements = vec![T::zero(); walk.count()];
        let (strips, (width, [stride])) = walk.by_rows();
        let (matrices, (height, [step])) = strips.by_rows();
        let firsts = matrices.each(0..matrices.count());
        for ([first], out) in firsts.zip(elements.chunks_exact_mut(height * width)) {
            for (strip, out) in out.chunks_mut(TILE * width).enumerate() {
                let first = first.wrapping_add_signed((strip * TILE) as isize * step);
                for column in (0..width).step_by(TILE) {
                    let first = first.wrapping_add_signed(column as isize * stride);
                    let count = TILE.min(width - column);
                    for (row, out) in (0..).zip(out.chunks_exact_mut(width)) {
                        let values = self.row(first.wrapping_add_signed(row * step), stride, count);
                        let slots = &mut out[column..column + count];
                        slots
                            .iter_mut()
                            .zip(values)
                            .for_each(|(slot, value)| *slot = value);
                    }
                }
            }
        }
        elements
    }
}

/// Returns the first of `values` that does not satisfy `is_right`. First checks all values without
/// a branch, which is much faster if all satisfy `is_right`.
fn find_unless<T: Copy>(
    values: impl ExactSizeIterator<Item = T> + Clone,
    is_right: impl Fn(T) -> bool,
) -> Option<T> {
    let all_right = values
        .clone()
        .fold(true, |all, value| all & is_right(value));
    let mut values = values;
    if all_right {
        None
    } else {
        values.find(|&value| !is_right(value))
    }
}
