//! Checks of an archive's central directory that the `zip` crate does not make.
//!
//! If the end of an archive is damaged, the `zip` crate searches backwards for another end record.
//! The record that it finds may belong to an archive inside an entry. The crate also does not
//! compare an entry's name in the directory with the name before the entry's data. It does compare
//! the checksum of the elements.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// The end-of-central-directory record, without its comment of up to `u16::MAX` bytes.
const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;

/// The ZIP64 records before the end record of a large archive: the ZIP64 end record and its
/// locator.
const ZIP64_END: &[u8] = b"PK\x06\x06";
const ZIP64_END_BYTES: usize = 56;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_BYTES: usize = 20;

/// The central directory, as the end record describes it.
#[derive(Debug, PartialEq)]
pub(super) struct Directory {
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Directory {
    /// Reads the end record of a file of `size_bytes`. Returns `None` if the file does not end with
    /// an end record.
    pub(super) fn find(file: &File, size_bytes: u64) -> io::Result<Option<Self>> {
        // Most files have no comment. More bytes are read only if the file may have a comment.
        for longest in [END_BYTES, END_BYTES + usize::from(u16::MAX)] {
            let start = size_bytes.saturating_sub(longest as u64);
            let tail = bytes_at(file, start..size_bytes)?;
            let ends = (0..tail.len().saturating_sub(END_BYTES - 1)).rev();
            if let Some(at) = ends.into_iter().find(|&at| is_end(&tail[at..])) {
                return Self::before(file, start + at as u64, &tail[at..]);
            }
        }
        Ok(None)
    }

    /// Returns the directory, which ends where the record `end` or the ZIP64 records before it
    /// begin.
    fn before(file: &File, position: u64, end: &[u8]) -> io::Result<Option<Self>> {
        let short = Self::ending_at(position, number(end, 10..12), number(end, 12..16));
        let long_bytes = (ZIP64_END_BYTES + LOCATOR_BYTES) as u64;
        let Some(before) = position.checked_sub(long_bytes) else {
            return Ok(short);
        };
        let long = bytes_at(file, before..position)?;
        let (long, locator) = long.split_at(ZIP64_END_BYTES.min(long.len()));
        if !locator.starts_with(LOCATOR) {
            return Ok(short);
        }
        let is_whole = long.starts_with(ZIP64_END) && number(long, 4..12) == 44;
        let long = Self::ending_at(before, number(long, 32..40), number(long, 40..48));
        Ok(long.filter(|_| is_whole))
    }

    /// Returns the directory of `count` entries in the `size_bytes` before `end`.
    fn ending_at(end: u64, count: u64, size_bytes: u64) -> Option<Self> {
        let start = end.checked_sub(size_bytes)?;
        Some(Self { start, count })
    }
}

/// Returns true if `tail` is an end record and its comment.
fn is_end(tail: &[u8]) -> bool {
    tail.starts_with(END) && number(tail, 20..22) == (tail.len() - END_BYTES) as u64
}

/// Returns true if an entry has equal names in its directory header at `listed` and its local
/// header at `local`.
pub(super) fn names_match(file: &File, listed: u64, local: u64) -> io::Result<bool> {
    let listed = name_at(file, listed, 28, 46)?;
    Ok(listed == name_at(file, local, 26, 30)?)
}

/// Returns the name of the record at `position`. In the record, `name` is the offset of the name,
/// and `length` is the offset of the name's length.
fn name_at(file: &File, position: u64, length: u64, name: u64) -> io::Result<Vec<u8>> {
    let at = |from: u64, bytes: u64| {
        let start = position.saturating_add(from);
        bytes_at(file, start..start.saturating_add(bytes))
    };
    let bytes = number(&at(length, 2)?, 0..2);
    at(name, bytes)
}

/// Returns the bytes of the file in `range`, or fewer bytes if the file ends earlier.
fn bytes_at(mut file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(range.start))?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the little-endian number at `range` of `record`; 0 if the record is shorter.
fn number(record: &[u8], range: Range<usize>) -> u64 {
    let bytes = record.get(range).unwrap_or_default();
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}
