//! Elements in files, in row-major order and as the bytes of their type. They are read and written
//! through a buffer of constant size.

use std::io::{self, Read, Write};

use crate::array::{AnyArray, ByteWriter, DType, HostView};
use crate::error::{Error, Result};

/// The size of the buffer, in bytes.
const BUFFER_BYTES: usize = 16 << 10;

/// Reads the elements of an array from `reader` into `writer`. If `is_swapped`, swaps the bytes of
/// each element, for files of the other byte order.
///
/// `failed` makes the error of a short read, from the number of bytes that were read.
#[track_caller]
pub(crate) fn read(
    reader: &mut dyn Read,
    mut writer: ByteWriter<'_>,
    is_swapped: bool,
    failed: impl Fn(u64, io::Error) -> Error,
) -> Result<AnyArray> {
    let dtype = writer.dtype;
    let mut buffer = vec![0; BUFFER_BYTES.min(writer.remaining())];
    let mut done = 0;
    while writer.remaining() > 0 {
        let count = buffer.len().min(writer.remaining());
        let bytes = &mut buffer[..count];
        if let Err(error) = reader.read_exact(bytes) {
            return Err(failed(done, error));
        }
        if is_swapped {
            swap(bytes, dtype);
        }
        if dtype == DType::Bool {
            bytes
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0));
        }
        done += bytes.len() as u64;
        writer.upload(bytes)?;
    }
    Ok(writer.finish())
}

/// Writes the elements of `array`. If `is_swapped`, swaps the bytes of each element, for files of
/// the other byte order.
#[track_caller]
pub(crate) fn write(
    out: &mut dyn Write,
    array: &AnyArray,
    is_swapped: bool,
    failed: impl Fn(io::Error) -> Error,
) -> Result<()> {
    let written = HostView::of(array)?.for_each_chunk(|bytes| match is_swapped {
        false => out.write_all(bytes),
        true => bytes.chunks(BUFFER_BYTES).try_for_each(|bytes| {
            let mut swapped = bytes.to_vec();
            swap(&mut swapped, array.dtype);
            out.write_all(&swapped)
        }),
    });
    written.map_err(failed)
}

/// Swaps the bytes of elements. For complex elements, swaps the bytes of each part.
fn swap(bytes: &mut [u8], dtype: DType) {
    let part_bytes = match dtype {
        DType::C32 | DType::C64 => dtype.size_bytes() / 2,
        _ => dtype.size_bytes(),
    };
    bytes.chunks_exact_mut(part_bytes).for_each(<[u8]>::reverse);
}
