//! Construction of arrays by writing their elements in row-major order.

use std::panic::Location;

use bytemuck::{bytes_of, cast_slice};

use super::access::{fill, upload};
use super::{AnyArray, AnyElement, Array, Buffer, DType, Shape};
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
    uploads: ByteWriter<'s>,
    staged: Vec<T>,
}

/// An array under construction, whose elements are written as bytes.
///
/// Invariant: the first `uploaded` bytes have been written.
#[derive(Debug)]
pub(crate) struct ByteWriter<'s> {
    buffer: Buffer,
    // The shape is borrowed, and only `finish` creates the layout. A move of a shape or a layout
    // takes longer than the allocation of a small array.
    shape: &'s Shape,
    pub(crate) dtype: DType,
    uploaded: usize,
}

impl<'s> ByteWriter<'s> {
    /// Returns a writer for an array of `shape` on `device`, with nothing written yet.
    #[track_caller]
    pub(crate) fn new(device: &Device, dtype: DType, shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(dtype.size_bytes())?;
        Ok(Self::over(Buffer::new(device, size_bytes)?, dtype, shape))
    }

    /// Like [`new`](Self::new), on the current device.
    #[track_caller]
    pub(crate) fn on_current(dtype: DType, shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(dtype.size_bytes())?;
        let call_site = Location::caller();
        let buffer = Device::with_current(|device| Buffer::new_at(device, size_bytes, call_site))?;
        Ok(Self::over(buffer, dtype, shape))
    }

    /// Returns a writer for an array of `shape` in `buffer`, which has exactly its size.
    pub(super) fn over(buffer: Buffer, dtype: DType, shape: &'s Shape) -> Self {
        Self {
            buffer,
            shape,
            dtype,
            uploaded: 0,
        }
    }

    /// Returns the number of bytes that are yet to be written.
    pub(crate) fn remaining(&self) -> usize {
        self.buffer.size_bytes() - self.uploaded
    }

    /// Writes the bytes of the next elements.
    #[track_caller]
    pub(crate) fn upload(&mut self, values: &[u8]) -> Result<()> {
        if !values.is_empty() {
            upload(&mut self.buffer, self.uploaded, values)?;
            self.uploaded += values.len();
        }
        Ok(())
    }

    /// Writes the bytes of an element, `value`, `count` times.
    #[track_caller]
    pub(super) fn repeat(&mut self, value: &[u8], count: usize) -> Result<()> {
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
    pub(crate) fn finish(self) -> AnyArray {
        let remaining = self.remaining();
        assert_eq!(remaining, 0, "the array has unwritten elements");
        AnyArray::of_shape(self.buffer, self.shape, self.dtype)
    }
}

impl<'s, T: AnyElement> Writer<'s, T> {
    const STAGED: usize = STAGED_BYTES / size_of::<T>();

    /// Returns a writer for a new array of `shape` on `device`.
    #[track_caller]
    pub(crate) fn new(device: &Device, shape: &'s Shape) -> Result<Self> {
        ByteWriter::new(device, T::DTYPE, shape).map(Self::staging)
    }

    /// Like [`new`](Self::new), on the current device.
    #[track_caller]
    pub(crate) fn on_current(shape: &'s Shape) -> Result<Self> {
        ByteWriter::on_current(T::DTYPE, shape).map(Self::staging)
    }

    /// Like [`new`](Self::new), in memory that no cache owns.
    #[cfg(feature = "collective")]
    #[track_caller]
    pub(crate) fn detached(device: &Device, shape: &'s Shape) -> Result<Self> {
        let size_bytes = shape.size_bytes(size_of::<T>())?;
        let buffer = Buffer::new_detached(device, size_bytes)?;
        Ok(Self::staging(ByteWriter::over(buffer, T::DTYPE, shape)))
    }

    fn staging(uploads: ByteWriter<'s>) -> Self {
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
        Ok(Array::from_erased(self.uploads.finish()))
    }

    #[track_caller]
    fn flush(&mut self) -> Result<()> {
        let outcome = self.uploads.upload(cast_slice(&self.staged));
        self.staged.clear();
        outcome
    }
}
