//! Copies to, from and within the device, and fills.

use std::ffi::{c_uchar, c_uint, c_ushort};

use cudarc::driver::sys::CUstream;

use super::Cuda;
use super::context::RawHandle;
use super::driver::Driver;
use super::error::DriverResult;
use super::staging::StagingBuffer;
use crate::device::{DevicePtr, Event, StreamId};
use crate::error::Result;

/// The length up to which a pattern of several words is written word by word. A longer fill then
/// copies the filled memory, which doubles with each copy.
const DOUBLED_FROM_BYTES: usize = 64 << 10;

impl Cuda {
    /// Copies one part of an upload. The part fits in a staging buffer.
    ///
    /// # Safety
    ///
    /// The conditions of [`upload`](crate::device::Backend::upload) must hold.
    pub(super) unsafe fn copy_in_part(
        &self,
        stream: StreamId,
        target: DevicePtr,
        source: &[u8],
    ) -> Result<()> {
        let length = source.len();
        let Some(mut buffer) = self.staging.take(&self.streams, length)? else {
            // SAFETY: by this function's contract, `target` points to `length` bytes. The stream is
            // done with `source` before this returns.
            return self
                .streams
                .run(stream, "copying to the device", |driver, raw| unsafe {
                    driver.copy_to_device(target.0, source.as_ptr().cast(), length, raw)?;
                    driver.stream_synchronize(raw)
                });
        };
        let staged = buffer.suballocate(stream, length);
        // SAFETY: the suballocation has `length` bytes, and nothing else uses it while we hold the
        // buffer.
        unsafe { staged.copy_from_nonoverlapping(source.as_ptr(), length) };
        // SAFETY: by this function's contract, `target` points to `length` bytes. The staged bytes
        // stay unchanged until the stream has passed this copy.
        let outcome = self
            .streams
            .run(stream, "copying to the device", |driver, raw| unsafe {
                driver.copy_to_device(target.0, staged.cast(), length, raw)
            });
        self.staging.give(&self.streams, buffer);
        outcome
    }

    /// Submits the copy of one part of a download. The part fits in a staging buffer. If there is
    /// no free buffer, copies without a buffer, waits, and returns `None`. The last part needs no
    /// event, because [`receive`](Self::receive) then waits for the whole stream.
    ///
    /// # Safety
    ///
    /// The conditions of [`download`](crate::device::Backend::download) must hold.
    pub(super) unsafe fn copy_out_part<'a>(
        &self,
        stream: StreamId,
        source: DevicePtr,
        target: &'a mut [u8],
        is_last: bool,
    ) -> Result<Option<PendingDownload<'a>>> {
        let length = target.len();
        let Some(mut buffer) = self.staging.take(&self.streams, length)? else {
            self.streams
                .run(stream, "copying from the device", |driver, raw| {
                    let pointer = target.as_mut_ptr().cast();
                    // SAFETY: `source` points to as many bytes by this function's contract. The
                    // stream is done with `target` before this returns.
                    unsafe {
                        driver.copy_to_host(pointer, source.0, length, raw)?;
                        driver.stream_synchronize(raw)
                    }
                })?;
            return Ok(None);
        };
        let staged = buffer.suballocate(stream, length);
        // SAFETY: `source` points to as many bytes by this function's contract. The buffer keeps
        // the part until the stream has passed this copy.
        let copied = self
            .streams
            .run(stream, "copying from the device", |driver, raw| unsafe {
                driver.copy_to_host(staged.cast(), source.0, length, raw)
            });
        let record = || self.streams.record(stream).map(Completion::Event);
        let until = match is_last {
            true => copied.map(|()| Completion::End(stream)),
            false => copied.and_then(|()| record()),
        };
        match until {
            Ok(until) => Ok(Some(PendingDownload {
                buffer,
                staged: RawHandle(staged),
                until,
                target,
            })),
            Err(error) => {
                self.staging.give(&self.streams, buffer);
                Err(error)
            }
        }
    }

    /// Waits until the device has written `part`, and copies it to its target.
    pub(super) fn receive(&self, part: PendingDownload<'_>) -> Result<()> {
        let PendingDownload {
            mut buffer,
            staged,
            until,
            target,
        } = part;
        let outcome = match until {
            Completion::Event(event) => self.streams.wait_for(&event),
            Completion::End(stream) => self.streams.synchronize(stream),
        };
        if outcome.is_ok() {
            // SAFETY: the part of the buffer has the length of `target`, and the device has written
            // all of it. Nothing else uses the buffer.
            unsafe {
                target
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(staged.0, target.len());
            }
            buffer.free_last(staged.0);
        }
        self.staging.give(&self.streams, buffer);
        outcome
    }
}

pub(super) struct PendingDownload<'a> {
    pub(super) buffer: StagingBuffer,
    staged: RawHandle<u8>,
    until: Completion,
    target: &'a mut [u8],
}

/// The condition that completes a copy.
enum Completion {
    /// The completion of an event.
    Event(Event),
    /// The completion of all work submitted to the stream.
    End(StreamId),
}

/// Fills `bytes` bytes at `target` with a pattern of 1, 2, 4, 8 or 16 bytes.
///
/// # Safety
///
/// The conditions of [`fill`](crate::device::Backend::fill) must hold. The current context must be
/// the stream's.
pub(super) unsafe fn set(
    driver: &Driver,
    stream: CUstream,
    target: u64,
    bytes: usize,
    pattern: &[u8],
) -> DriverResult {
    // SAFETY: by this function's contract.
    unsafe {
        match *shortest(pattern) {
            [value] => driver.set_d8(target, value as c_uchar, bytes, stream),
            [a, b] => {
                let value: c_ushort = u16::from_ne_bytes([a, b]);
                driver.set_d16(target, value, bytes / 2, stream)
            }
            [a, b, c, d] => {
                let value: c_uint = u32::from_ne_bytes([a, b, c, d]);
                driver.set_d32(target, value, bytes / 4, stream)
            }
            ref words => set_words(driver, stream, target, bytes, words),
        }
    }
}

/// Fills memory with a pattern of several words. The driver can set every second or fourth word,
/// but strided writes are slow. So strided writes fill only the beginning. Copies then double the
/// filled memory.
///
/// # Safety
///
/// The conditions of [`set`] must hold.
unsafe fn set_words(
    driver: &Driver,
    stream: CUstream,
    target: u64,
    bytes: usize,
    words: &[u8],
) -> DriverResult {
    let mut done = bytes.min(DOUBLED_FROM_BYTES);
    for (offset, word) in (0..).step_by(4).zip(words.chunks_exact(4)) {
        let value = c_uint::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        let (pitch, count) = (words.len(), done / words.len());
        // SAFETY: the first `done` bytes are `count` patterns, each of which has a word at
        // `offset`.
        unsafe { driver.set_d2_d32(target + offset, pitch, value, 1, count, stream) }?;
    }
    while done < bytes {
        let length = done.min(bytes - done);
        // SAFETY: both ranges are in the memory to fill. The first `done` bytes do not overlap the
        // bytes after them.
        unsafe { driver.copy_within_device(target + done as u64, target, length, stream) }?;
        done += length;
    }
    Ok(())
}

/// Returns the shortest pattern that fills memory like `pattern`.
fn shortest(pattern: &[u8]) -> &[u8] {
    let (first, second) = pattern.split_at(pattern.len() / 2);
    if pattern.len() > 1 && first == second {
        return shortest(first);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_as_short_as_it_can_be() {
        assert_eq!(shortest(&[7; 8]), [7]);
        assert_eq!(shortest(&[1, 2, 1, 2]), [1, 2]);
        assert_eq!(shortest(&[1, 2, 3, 4, 1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(shortest(&[1, 2, 2, 1]), [1, 2, 2, 1]);
        assert_eq!(shortest(&1.5f64.to_ne_bytes()).len(), 8);
    }
}
