//! Elements in files, in row-major order and as the bytes of their type. They are read and written
//! through a buffer of constant size.

use std::io::{self, Read, Write};

use bytemuck::{cast_slice, cast_slice_mut};

use crate::array::{AnyElement, Array, DType, Elements, Layout, Writer};
use crate::error::{Error, Result};

/// The size of the buffer, in bytes.
const BUFFER_BYTES: usize = 16 << 10;

/// Reads the elements of an array from `reader` into `writer`. If `is_swapped`, swaps the bytes of
/// each element, for files of the other byte order.
///
/// `failed` makes the error of a short read, from the number of bytes that were read.
#[track_caller]
pub(crate) fn read<T: AnyElement>(
    reader: &mut dyn Read,
    mut writer: Writer<'_, T>,
    is_swapped: bool,
    failed: impl Fn(u64, io::Error) -> Error,
) -> Result<Array<T>> {
    let capacity = (BUFFER_BYTES / size_of::<T>()).min(writer.remaining());
    let mut raw = vec![T::Raw::default(); capacity];
    let mut done = 0;
    while writer.remaining() > 0 {
        let count = capacity.min(writer.remaining());
        let bytes = cast_slice_mut(&mut raw[..count]);
        if let Err(error) = reader.read_exact(bytes) {
            return Err(failed(done, error));
        }
        if is_swapped {
            swap::<T>(bytes);
        }
        done += bytes.len() as u64;
        writer.extend(raw[..count].iter().map(|&raw| T::from_raw(raw)))?;
    }
    writer.finish()
}

/// Writes the elements of `array`. If `is_swapped`, swaps the bytes of each element, for files of
/// the other byte order.
#[track_caller]
pub(crate) fn write<T: AnyElement>(
    out: &mut dyn Write,
    array: &Array<T>,
    is_swapped: bool,
    failed: impl Fn(io::Error) -> Error,
) -> Result<()> {
    let elements = Elements::of(array)?;
    let walk = Layout::walk([elements.layout()]);
    let (_, [stride]) = walk.row();
    let capacity = BUFFER_BYTES / size_of::<T>();
    let mut values: Vec<T> = Vec::with_capacity(capacity);
    for ([row], count) in walk.runs(0..walk.count()) {
        for start in (0..count).step_by(capacity) {
            let length = capacity.min(count - start);
            if values.len() + length > capacity {
                let written = write_all(out, &values, is_swapped);
                written.map_err(&failed)?;
                values.clear();
            }
            let first = row.wrapping_add_signed(start as isize * stride);
            values.extend(elements.row(first, stride, length));
        }
    }
    let written = write_all(out, &values, is_swapped);
    written.map_err(&failed)
}

fn write_all<T: AnyElement>(out: &mut dyn Write, values: &[T], is_swapped: bool) -> io::Result<()> {
    let bytes: &[u8] = cast_slice(values);
    if !is_swapped {
        return out.write_all(bytes);
    }
    let mut bytes = bytes.to_vec();
    swap::<T>(&mut bytes);
    out.write_all(&bytes)
}

/// Swaps the bytes of elements. For complex elements, swaps the bytes of each part.
fn swap<T: AnyElement>(bytes: &mut [u8]) {
    let part_bytes = match T::DTYPE {
        DType::C32 | DType::C64 => size_of::<T>() / 2,
        _ => size_of::<T>(),
    };
    bytes.chunks_exact_mut(part_bytes).for_each(<[u8]>::reverse);
}
