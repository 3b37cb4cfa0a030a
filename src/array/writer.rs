//! Construction of arrays by writing their elements in row-major order.

use std::panic::Location;

use bytemuck::{bytes_of, cast_slice};

use super::access::{Elements, fill, upload};
use super::{AnyArray, AnyElement, Array, Buffer, DType, Layout, Shape};
use crate::context::Device;
use crate::error::Result;

/// The size in bytes of the staging buffer `Writer::staged`, from which single elements are
/// uploaded together. The buffer fits in the L1 data cache.
const STAGED_BYTES: usize = 16 << 10;

/// An array under construction.
///
/// Invariant: all written elements have been uploaded, except the last elements, which are in
/// `staged`.
#[derive(Debug)]
pub(crate) struct Writer<'s, T: AnyElement> {
    uploads: Uploads<'s>,
    staged: Vec<T>,
}

/// The memory of an array under construction.
///
/// Invariant: the first `uploaded` bytes have been written.
#[derive(Debug)]
struct Uploads<'s> {
    buffer: Buffer,
    // The shape is borrowed, and only `finish` creates the layout. A move of a shape or a layout
    // takes longer than the allocation of a small array.
    shape: &'s Shape,
    uploaded: usize,
}

impl Uploads<'_> {
    fn remaining(&self) -> usize {
        self.buffer.size_bytes() - self.uploaded
    }

    #[track_caller]
    fn upload(&mut self, values: &[u8]) -> Result<()> {
        if !values.is_empty() {
            upload(&mut self.buffer, self.uploaded, values)?;
            self.uploaded += values.len();
        }
        Ok(())
    }

    /// Writes the bytes of an element, `value`, `count` times.
    #[track_caller]
    fn repeat(&mut self, value: &[u8], count: usize) -> Result<()> {
        if count > 0 {
            fill(&mut self.buffer, self.uploaded, count, value)?;
            self.uploaded += count * value.len();
        }
        Ok(())
    }

    /// Returns the array. Every byte of the array must have been written.
    ///
    /// # Panics
    ///
    /// Panics if a byte has not been written.
    #[inline]
    fn finish(self, dtype: DType) -> AnyArray {
        let remaining = self.remaining();
        assert_eq!(remaining, 0, "finished an array with unwritten elements");
        AnyArray::of_shape(self.buffer, self.shape, dtype)
    }
}

impl<'s, T: AnyElement> Writer<'s, T> {
    const STAGED: usize = STAGED_BYTES / size_of::<T>();

    /// Returns a writer for a new array of `shape` on `device`.
    #[track_caller]
    pub(crate) fn new(device: &Device, shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(size_of::<T>())?;
        Ok(Self::over(Buffer::new(device, size_bytes)?, shape))
    }

    /// Like [`new`](Self::new), on the current device.
    #[track_caller]
    pub(crate) fn on_current(shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(size_of::<T>())?;
        let call_site = Location::caller();
        let buffer = Device::with_current(|device| Buffer::new_at(device, size_bytes, call_site))?;
        Ok(Self::over(buffer, shape))
    }

    /// Like [`new`](Self::new), in memory that no cache owns.
    #[cfg(feature = "collective")]
    #[track_caller]
    pub(crate) fn detached(device: &Device, shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(size_of::<T>())?;
        Ok(Self::over(Buffer::new_detached(device, size_bytes)?, shape))
    }

    /// Returns a writer for an array of `shape` in `buffer`, which has exactly the array's size.
    pub(super) fn over(buffer: Buffer, shape: &'s Shape) -> Self {
        let uploads = Uploads {
            buffer,
            shape,
            uploaded: 0,
        };
        Self {
            uploads,
            staged: Vec::new(),
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.uploads.remaining() / size_of::<T>() - self.staged.len()
    }

    #[inline]
    #[track_caller]
    pub(crate) fn push(&mut self, value: T) -> Result<()> {
        if self.staged.len() >= Self::STAGED {
            self.flush()?;
        }
        self.staged.push(value);
        Ok(())
    }

    #[track_caller]
    pub(crate) fn repeat(&mut self, value: T, count: usize) -> Result<()> {
        // If nothing is staged yet, the elements are written directly, because a small array of
        // zeros must not allocate host memory.
        if !self.staged.is_empty() && self.staged.len() + count <= Self::STAGED {
            self.staged.resize(self.staged.len() + count, value);
            return Ok(());
        }
        self.flush()?;
        self.uploads.repeat(bytes_of(&value), count)
    }

    #[track_caller]
    pub(crate) fn extend_from_slice(&mut self, values: &[T]) -> Result<()> {
        self.flush()?;
        self.uploads.upload(cast_slice(values))
    }

    #[track_caller]
    pub(crate) fn extend(&mut self, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
        if self.staged.len() + values.len() > Self::STAGED {
            self.flush()?;
        }
        if values.len() <= Self::STAGED {
            self.staged.extend(values);
            return Ok(());
        }
        for value in values {
            self.push(value)?;
        }
        Ok(())
    }

    /// Writes the elements that `layout` selects from `elements`, in row-major order.
    #[track_caller]
    pub(crate) fn extend_from(
        &mut self,
        elements: &Elements<'_, T>,
        layout: &Layout,
    ) -> Result<()> {
        let walk = Layout::walk([layout]);
        let (_, [stride]) = walk.row();
        for ([row], count) in walk.runs(0..walk.count()) {
            // The chunks of a row fit in `staged`, so that the copy of a chunk is a loop without
            // branches.
            for start in (0..count).step_by(Self::STAGED) {
                let length = Self::STAGED.min(count - start);
                let first = row.wrapping_add_signed(start as isize * stride);
                if stride == 1 {
                    self.extend(elements.run(first, length))?;
                } else {
                    self.extend(elements.row(first, stride, length))?;
                }
            }
        }
        Ok(())
    }

    /// Writes every remaining element in chunks. `fill` receives the position of a chunk's first
    /// element among the remaining elements, and the chunk.
    #[track_caller]
    pub(crate) fn fill_chunks(&mut self, mut fill: impl FnMut(usize, &mut [T])) -> Result<()> {
        self.flush()?;
        let count = self.remaining();
        let mut chunk = vec![T::zero(); count.min(Self::STAGED)];
        let mut start = 0;
        while start < count {
            let length = chunk.len().min(count - start);
            fill(start, &mut chunk[..length]);
            self.uploads.upload(cast_slice(&chunk[..length]))?;
            start += length;
        }
        Ok(())
    }

    /// Like [`fill_chunks`](Self::fill_chunks), for a function without side effects. On a meta
    /// device, the function is not called.
    #[track_caller]
    pub(crate) fn compute_chunks(&mut self, fill: impl FnMut(usize, &mut [T])) -> Result<()> {
        match self.uploads.buffer.device().backend().is_meta() {
            true => self.repeat(T::zero(), self.remaining()),
            false => self.fill_chunks(fill),
        }
    }

    /// Returns the array. Every element of the array must have been written.
    ///
    /// # Panics
    ///
    /// Panics if an element has not been written. All code that reads an array relies on this
    /// check.
    #[inline]
    #[track_caller]
    pub(crate) fn finish(mut self) -> Result<Array<T>> {
        self.flush()?;
        Ok(Array::from_erased(self.uploads.finish(T::DTYPE)))
    }

    #[track_caller]
    fn flush(&mut self) -> Result<()> {
        let outcome = self.uploads.upload(cast_slice(&self.staged));
        self.staged.clear();
        outcome
    }
}
