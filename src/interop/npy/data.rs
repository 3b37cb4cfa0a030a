//! The elements of a NumPy file, as the bytes of their type.

use std::io::{self, ErrorKind as IoKind, Read};

use super::header::{self, Header};
use super::{Length, NpyContext};
use crate::array::{AnyArray, ByteWriter, DType, Shape};
use crate::error::{ErrorCode, ErrorKind, Result};
use crate::interop::elements;

/// Returns true if the byte order of the elements differs from the byte order of this machine.
///
/// # Errors
///
/// An error if the header's type is not `dtype`.
#[track_caller]
fn is_swapped(header: &Header, dtype: DType, context: &NpyContext<'_>) -> Result<bool> {
    let descr = header.descr.as_str();
    let (order, kind) = match descr.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
        _ => ("=", descr),
    };
    if kind == header::kind_of(dtype.name()) {
        let other = if cfg!(target_endian = "big") {
            "<"
        } else {
            ">"
        };
        return Ok(order == other && dtype.size_bytes() > 1);
    }
    let (name, expected) = (dtype.name(), header::descr(dtype));
    let found = match header::name_of(kind) {
        Some(found) => format!("{found} ('{descr}')"),
        None => format!("'{descr}', which is not an element type"),
    };
    let problem = format!("the elements are {found}, expected {name} ('{expected}')");
    Err(context.error(ErrorKind::InvalidArgument, problem))
}

/// Returns an error if the header's type is not `dtype`, or if the header's shape is not the
/// expected shape.
#[track_caller]
pub(super) fn check(
    header: &Header,
    dtype: DType,
    expected: Option<&[usize]>,
    context: &NpyContext<'_>,
) -> Result<()> {
    is_swapped(header, dtype, context)?;
    match expected {
        Some(expected) if header.shape != expected => {
            let found = &header.shape;
            let problem = format!("the shape is {found:?}, expected {expected:?}");
            Err(context.error(ErrorKind::ShapeMismatch, problem))
        }
        _ => Ok(()),
    }
}

/// Reads the array that `header` describes, from `length` bytes of elements.
///
/// Allocates no more memory than `length` bytes can fill, because the header may claim any size.
#[track_caller]
pub(super) fn read(
    reader: &mut dyn Read,
    header: &Header,
    dtype: DType,
    length: Length,
    context: &NpyContext<'_>,
) -> Result<AnyArray> {
    let is_swapped = is_swapped(header, dtype, context)?;
    let mut shape = Shape::from(&header.shape);
    let expected = match shape.size_bytes(dtype.size_bytes()) {
        Ok(bytes) => bytes,
        Err(error) => return Err(error.of(&context.place()).at(context.call_site)),
    };
    let claim = || {
        let shape = Shape::from(&header.shape);
        format!(
            "the shape {shape} of {} takes {expected} bytes",
            dtype.name()
        )
    };
    let truncated = |available: u64| {
        let claim = claim();
        let problem = format!("the file is cut short: {claim}, the file has {available}");
        context.error(ErrorCode::Content, problem)
    };
    let buffered;
    let mut buffered_reader;
    let (reader, available): (&mut dyn Read, _) = match length {
        Length::AtMost(available) | Length::Exactly(available) => (reader, available),
        Length::Unknown => {
            let mut bytes = Vec::new();
            let read = reader.take(expected as u64).read_to_end(&mut bytes);
            read.map_err(|error| context.io(error))?;
            buffered = bytes;
            buffered_reader = buffered.as_slice();
            (&mut buffered_reader, buffered.len() as u64)
        }
    };
    if available < expected as u64 {
        return Err(truncated(available));
    }
    let overlong = || {
        let problem = format!(
            "the data are longer than the array: {}, the file has more",
            claim()
        );
        context.error(ErrorCode::Content, problem)
    };
    let is_exact = matches!(length, Length::Exactly(_));
    if is_exact && available > expected as u64 {
        return Err(overlong());
    }
    if header.fortran_order {
        shape = header.shape.iter().rev().collect();
    }
    let failed = |done, error: io::Error| match error.kind() {
        IoKind::UnexpectedEof => truncated(done),
        _ => context.io(error),
    };
    let array = elements::read(
        reader,
        ByteWriter::on_current(dtype, &shape)?,
        is_swapped,
        failed,
    )?;
    if is_exact && !is_at_end(reader, context)? {
        return Err(overlong());
    }
    if header.fortran_order {
        return Ok(array.transpose());
    }
    Ok(array)
}

/// Returns true if the reader is at its end. An archive compares an entry's checksum only when the
/// entry is read to its end.
#[track_caller]
fn is_at_end(reader: &mut dyn Read, context: &NpyContext<'_>) -> Result<bool> {
    // `read_exact` is not used: its error at the end would equal the error of a truncated
    // compressed stream.
    loop {
        match reader.read(&mut [0]) {
            Ok(count) => return Ok(count == 0),
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) => return Err(context.io(error)),
        }
    }
}
