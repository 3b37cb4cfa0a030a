//! The elements of a NumPy file: one after another, in the bytes of their type.

use std::io::{ErrorKind as IoKind, Read, Write};

use bytemuck::{cast_slice, cast_slice_mut};

use super::header::{self, Header};
use super::{Length, Place};
use crate::array::{Array, Element, Elements, Shape, Writer};
use crate::error::{Error, ErrorKind, Result};

/// Elements are read and written in parts of this size.
const PART_BYTES: usize = 16 << 10;

/// Whether the bytes of each element stand in the other order than here, if the header's type is `T`.
#[track_caller]
fn swapped<T: Element>(header: &Header, place: &Place<'_>) -> Result<bool> {
    let descr = header.descr.as_str();
    let (order, kind) = match descr.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
        _ => ("=", descr),
    };
    if kind == header::kind_of(T::NAME) {
        let other = if cfg!(target_endian = "big") {
            "<"
        } else {
            ">"
        };
        return Ok(order == other && size_of::<T>() > 1);
    }
    let (name, wanted) = (T::NAME, header::descr::<T>());
    let found = match header::name_of(kind) {
        Some(found) => format!("{found} ('{descr}')"),
        None => format!("'{descr}', which is no element type"),
    };
    let problem = format!("the elements are {found}, and {name} ('{wanted}') was asked for");
    Err(place.error(ErrorKind::InvalidArgument, problem))
}

/// The array that `header` tells of, of whose elements so many bytes come.
///
/// Nothing is allocated that they cannot fill: the header may claim anything.
#[track_caller]
pub(super) fn read<T: Element>(
    reader: &mut dyn Read,
    header: &Header,
    length: Length,
    place: &Place<'_>,
) -> Result<Array<T>> {
    let is_swapped = swapped::<T>(header, place)?;
    let mut shape = Shape::from(&header.shape);
    let wanted = match shape.size_bytes::<T>() {
        Ok(bytes) => bytes,
        Err(error) => return Err(place.error(error.kind(), error)),
    };
    let claim = || {
        let shape = Shape::from(&header.shape);
        format!("the shape {shape} of {} takes {wanted} bytes", T::NAME)
    };
    let short = |available: u64| {
        let claim = claim();
        let problem = format!("the file is cut short: {claim}, of which it has {available}");
        place.error(ErrorKind::Io, problem)
    };
    let held;
    let mut held_reader;
    let (reader, available): (&mut dyn Read, _) = match length {
        Length::AtMost(available) | Length::Exactly(available) => (reader, available),
        Length::Unknown => {
            held = hold(reader, wanted as u64, place)?;
            held_reader = held.as_slice();
            (&mut held_reader, held.len() as u64)
        }
    };
    if available < wanted as u64 {
        return Err(short(available));
    }
    let longer = || {
        let problem = format!(
            "the array ends before its data do: {}, and there are more",
            claim()
        );
        place.error(ErrorKind::Io, problem)
    };
    let is_exact = matches!(length, Length::Exactly(_));
    if is_exact && available > wanted as u64 {
        return Err(longer());
    }
    if header.fortran_order {
        shape = header.shape.iter().rev().collect();
    }
    let array = elements(reader, &shape, is_swapped, place, short)?;
    if is_exact && !is_at_end(reader, place)? {
        return Err(longer());
    }
    if header.fortran_order {
        return array.transpose();
    }
    Ok(array)
}

/// An array of the elements that come next; `short` makes the error where only so many bytes come.
#[track_caller]
fn elements<T: Element>(
    reader: &mut dyn Read,
    shape: &Shape,
    is_swapped: bool,
    place: &Place<'_>,
    short: impl Fn(u64) -> Error,
) -> Result<Array<T>> {
    let mut writer = Writer::on_current(shape)?;
    let part = (PART_BYTES / size_of::<T>()).min(writer.remaining());
    let mut raw = vec![T::Raw::default(); part];
    let mut done = 0;
    while writer.remaining() > 0 {
        let count = part.min(writer.remaining());
        let bytes = cast_slice_mut(&mut raw[..count]);
        if let Err(error) = reader.read_exact(bytes) {
            return Err(match error.kind() {
                IoKind::UnexpectedEof => short(done),
                _ => place.io(&error),
            });
        }
        if is_swapped {
            bytes
                .chunks_exact_mut(size_of::<T>())
                .for_each(<[u8]>::reverse);
        }
        done += bytes.len() as u64;
        writer.extend(raw[..count].iter().map(|&raw| T::from_raw(raw)))?;
    }
    writer.finish()
}

/// The bytes that come, up to `wanted`, in memory that grows with them.
#[track_caller]
fn hold(reader: &mut dyn Read, wanted: u64, place: &Place<'_>) -> Result<Vec<u8>> {
    let mut held = Vec::new();
    let read = reader.take(wanted).read_to_end(&mut held);
    read.map_err(|error| place.io(&error))?;
    Ok(held)
}

/// Whether nothing more comes. An archive compares an entry's checksum when it is read to its end.
#[track_caller]
fn is_at_end(reader: &mut dyn Read, place: &Place<'_>) -> Result<bool> {
    // Not `read_exact`: where a compressed stream breaks off, that is an early end as well, and an error.
    loop {
        match reader.read(&mut [0]) {
            Ok(count) => return Ok(count == 0),
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(place.io(&error)),
        }
    }
}

/// Writes the elements of `array` in row-major order.
#[track_caller]
pub(super) fn write<T: Element>(
    writer: &mut impl Write,
    array: &Array<T>,
    place: &Place<'_>,
) -> Result<()> {
    let elements = Elements::of(array)?;
    let rows = elements.layout().coalesced();
    let (count, stride) = rows.row();
    let part = PART_BYTES / size_of::<T>();
    let mut values: Vec<T> = Vec::with_capacity(part);
    for row in rows.row_offsets() {
        for start in (0..count).step_by(part) {
            let length = part.min(count - start);
            if values.len() + length > part {
                let written = writer.write_all(cast_slice(&values));
                written.map_err(|error| place.io(&error))?;
                values.clear();
            }
            let first = row.wrapping_add_signed(start as isize * stride);
            values.extend(elements.row(first, stride, length));
        }
    }
    let written = writer.write_all(cast_slice(&values));
    written.map_err(|error| place.io(&error))
}
