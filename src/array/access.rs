//! Reads and writes of device memory. No other module of this layer accesses device memory.

use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::cast_slice_mut;

use super::Buffer;
use crate::array::{AnyArray, AnyElement, Array, Layout, Walk};
use crate::device::cuda::Cuda;
use crate::device::host::host_pointer;
use crate::device::{DeviceId, DevicePtr, Use};
use crate::error::{AtCaller, Result};
use cachescope_kernels::moves::copies::copy_elements;

/// Writes `values` to `buffer`, beginning at byte `first`. Enqueues the copy on the buffer's own
/// stream. The copy waits for no other stream, because the buffer is new.
///
/// # Panics
///
/// Panics if the values reach beyond the buffer, or if another handle shares the buffer.
#[track_caller]
pub(in crate::array) fn upload(buffer: &mut Buffer, first: usize, values: &[u8]) -> Result<()> {
    let target = writable(buffer, first, values.len());
    let backend = buffer.device().backend();
    if backend.id() != DeviceId::Host {
        buffer.take_deferred_error()?;
    }
    // SAFETY: `writable` checked that the bytes lie in this buffer, and that no other handle shares
    // the buffer.
    unsafe { backend.upload(buffer.stream(), target, values) }.at_caller()
}

/// Writes `value`, the bytes of an element, to `count` elements of `buffer`, beginning at byte
/// `first`. Enqueues the write on the buffer's own stream.
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
    // SAFETY: `writable` checked that the bytes lie in this buffer, and that no other handle shares
    // the buffer. An element has 1, 2, 4, 8 or 16 bytes, and `size_bytes` is a multiple of this
    // size. Blocks are aligned for every element type.
    unsafe { backend.fill(buffer.stream(), target, size_bytes as u64, value) }.at_caller()
}

/// Returns the address of the byte `first` of `buffer`. Checks that `count` bytes from byte `first`
/// on lie in the buffer, and that no other handle shares the buffer.
fn writable(buffer: &mut Buffer, first: usize, count: usize) -> DevicePtr {
    let capacity = buffer.size_bytes();
    let within = first <= capacity && count <= capacity - first;
    assert!(
        within,
        "{count} bytes from byte {first} exceed the buffer of {capacity} bytes"
    );
    assert_eq!(
        buffer.holders(),
        1,
        "several arrays share the memory to write"
    );
    buffer.track_use(Use::Write);
    DevicePtr(buffer.address()).offset(first as u64)
}

/// Downloads the elements from index `lowest` of `array` on, once they have been written.
#[inline(never)]
#[track_caller]
fn download(array: &AnyArray, lowest: usize, target: &mut [u8]) -> Result<()> {
    let buffer = &array.buffer;
    let backend = buffer.device().backend();
    // Until the download ends, no launched graph overwrites the bytes.
    let gpu = backend.cuda().filter(|_| buffer.is_used_by_graphs());
    let _no_launches = gpu.map(Cuda::lock_launches_shared);
    // Each write waited for the earlier write, so the last write completes after all other writes.
    let writer = buffer.wait_for_last_write()?;
    buffer.take_deferred_error()?;
    // A meta device has no data. The zeros of `target` are never written, so they occupy no memory.
    if !backend.is_meta() {
        // SAFETY: by the array's invariants, the array's indices lie in its buffer. Every element
        // between the lowest and the highest index was written. Nothing writes while `array` is
        // borrowed.
        unsafe { backend.download(writer, address_of(array, lowest), target) }.at_caller()?;
    }
    buffer.device().memory().finish_kernels();
    Ok(())
}

fn address_of(array: &AnyArray, index: usize) -> DevicePtr {
    let offset_bytes = index * array.dtype.size_bytes();
    DevicePtr(array.buffer.address()).offset(offset_bytes as u64)
}

/// The memory that an array's layout reaches, readable by the host: in place if it is host memory,
/// downloaded otherwise.
///
/// Invariant: while this value exists, the elements that `layout` selects from the address `first`
/// on are readable. Nothing writes to these elements. They are aligned for every element type.
#[derive(Debug)]
pub(crate) struct HostView<'a> {
    first: *const u8,
    /// The number of elements from the lowest to the highest index.
    count: usize,
    element_bytes: usize,
    layout: Layout,
    /// The memory of downloaded elements.
    _downloaded: Vec<Unit>,
    _array: PhantomData<&'a AnyArray>,
}

/// The size of the chunks in which elements with gaps are copied. A chunk fits in the innermost
/// data cache.
const CHUNK_BYTES: usize = 16 << 10;

/// A unit of memory that is aligned for every element type.
type Unit = [u64; 2];

impl<'a> HostView<'a> {
    /// Returns the memory of an array. Waits until the elements have been written.
    #[inline(never)]
    #[track_caller]
    pub(crate) fn of(array: &'a AnyArray) -> Result<Self> {
        let mut view = Self {
            first: NonNull::<Unit>::dangling().as_ptr().cast_const().cast(),
            count: 0,
            element_bytes: array.dtype.size_bytes(),
            layout: array.layout,
            _downloaded: Vec::new(),
            _array: PhantomData,
        };
        // Nothing writes while `array` is borrowed, because writing takes a `&mut` of a buffer's
        // only handle. `array` keeps the buffer alive for `'a`.
        let Some((lowest, highest)) = array.layout.bounds() else {
            return Ok(view);
        };
        view.count = highest - lowest + 1;
        view.layout = array.layout.starting_at(array.layout.offset() - lowest);
        if array.device().backend().id() == DeviceId::Host {
            array.buffer.wait_for_last_write()?;
            let first: *mut u8 = host_pointer(address_of(array, lowest));
            view.first = first.cast_const();
        } else {
            let size_bytes = view.count * array.dtype.size_bytes();
            let mut units: Vec<Unit> = vec![[0; 2]; size_bytes.div_ceil(size_of::<Unit>())];
            download(array, lowest, &mut cast_slice_mut(&mut units)[..size_bytes])?;
            view.first = units.as_ptr().cast();
            view._downloaded = units;
        }
        Ok(view)
    }

    /// Returns the address of the element with index 0 of the [`layout`](Self::layout).
    pub(crate) fn address(&self) -> *const u8 {
        self.first
    }

    /// Returns the layout of the array's elements in this memory.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Calls `each` with the bytes of the elements, in row-major order: with all bytes if the
    /// elements are adjacent, otherwise chunk by chunk. Stops at the first error.
    pub(crate) fn for_each_chunk<E>(
        &self,
        mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let bytes = self.element_bytes;
        let walk = Layout::walk([&self.layout]);
        if walk.count() == 0 {
            return Ok(());
        }
        if self.layout.is_contiguous() {
            let first = self.first.wrapping_add(self.layout.offset() * bytes);
            // SAFETY: by the view's invariant, the layout's elements are readable.
            return each(unsafe { std::slice::from_raw_parts(first, walk.count() * bytes) });
        }
        let mut chunk: Vec<Unit> = vec![[0; 2]; CHUNK_BYTES / size_of::<Unit>()];
        let chunk: &mut [u8] = cast_slice_mut(&mut chunk);
        let mut filled = 0;
        let (_, [stride]) = walk.row();
        for ([row], count) in walk.runs(0..walk.count()) {
            let mut done = 0;
            while done < count {
                let part = (count - done).min((CHUNK_BYTES - filled) / bytes);
                let first = row.wrapping_add_signed(done as isize * stride);
                let from = self.first.wrapping_add(first.wrapping_mul(bytes));
                let to = chunk[filled..filled + part * bytes].as_mut_ptr();
                // SAFETY: by the view's invariant, the layout's elements are readable and aligned.
                // The chunk has room for `part` elements, as the index above checked. Each chunk is
                // aligned for every element, and has whole elements.
                unsafe { copy_elements(bytes, from, to, part, [stride, 1]) };
                (filled, done) = (filled + part * bytes, done + part);
                if filled == CHUNK_BYTES {
                    each(chunk)?;
                    filled = 0;
                }
            }
        }
        match filled {
            0 => Ok(()),
            _ => each(&chunk[..filled]),
        }
    }
}

/// The elements that an array's layout reaches, readable by the host.
#[derive(Debug)]
pub(crate) struct Elements<'a, T: AnyElement> {
    view: HostView<'a>,
    _elements: PhantomData<T>,
}

impl<'a, T: AnyElement> Elements<'a, T> {
    /// Returns the elements of an array, once they have been written.
    #[track_caller]
    pub(crate) fn of(array: &'a Array<T>) -> Result<Self> {
        HostView::of(array.erased()).map(|view| Self {
            view,
            _elements: PhantomData,
        })
    }

    /// Returns the layout of the array's elements in `values`.
    pub(crate) fn layout(&self) -> &Layout {
        self.view.layout()
    }

    /// Returns all stored elements, in the order of memory.
    pub(crate) fn values(&self) -> &[T::Raw] {
        let HostView { first, count, .. } = self.view;
        // SAFETY: by the view's invariant. An array's elements are of its type, and every bit
        // pattern is a valid `Raw`.
        unsafe { std::slice::from_raw_parts(first.cast(), count) }
    }

    /// Returns the element at an index of the [`layout`](Self::layout).
    #[inline]
    pub(crate) fn at(&self, index: usize) -> T {
        T::from_raw(self.values()[index])
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
        let values = &self.values()[first..first + count];
        values.iter().map(|raw| T::from_raw(*raw))
    }

    /// Returns the array's elements in row-major order.
    pub(crate) fn to_vec(&self) -> Vec<T> {
        let walk = Layout::walk([self.layout()]);
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

    /// Like [`to_vec`](Self::to_vec), but tile by tile. If the elements of a row are not adjacent,
    /// one cache line may hold elements of several rows. A tile reads all these elements while the
    /// line is cached.
    fn to_vec_by_tiles(&self, walk: &Walk<1>) -> Vec<T> {
        /// The number of elements along each side of a tile.
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
