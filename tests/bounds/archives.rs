//! Handmade archives, whose fields may be false.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Returns a NumPy file: a header with `dictionary`, followed by `elements`.
pub(crate) fn npy(dictionary: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{dictionary:<117}\n");
    [b"\x93NUMPY\x01\x00v\x00", header.as_bytes(), elements].concat()
}

/// Returns a NumPy file with a one-dimensional array of bytes.
pub(crate) fn npy_of_bytes(elements: &[u8]) -> Vec<u8> {
    let count = elements.len();
    let dictionary = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}");
    npy(&dictionary, elements)
}

/// An entry of an archive, with the fields that the headers of the archive claim.
#[derive(Clone)]
pub(crate) struct Entry {
    /// The names in the central directory and in the local header.
    pub(crate) names: [&'static str; 2],
    pub(crate) is_deflated: bool,
    pub(crate) crc: u32,
    pub(crate) size_bytes: u32,
    pub(crate) stored_bytes: u32,
    /// The data as stored.
    pub(crate) data: Vec<u8>,
}

impl Entry {
    /// Returns an entry whose fields are correct.
    pub(crate) fn new(name: &'static str, data: &[u8], is_deflated: bool) -> Self {
        let mut crc = Crc::new();
        crc.update(data);
        let size_bytes = data.len() as u32;
        let data = if is_deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            data.to_vec()
        };
        Self {
            names: [name; 2],
            is_deflated,
            crc: crc.sum(),
            size_bytes,
            stored_bytes: data.len() as u32,
            data,
        }
    }

    /// Returns the fields that the central directory and the local header have in common.
    fn fields(&self, name: &str) -> Vec<u8> {
        let method = if self.is_deflated { 8u16 } else { 0 };
        let mut fields = vec![20, 0, 0, 0];
        fields.extend(method.to_le_bytes());
        fields.extend([0, 0, 33, 0]); // The date is 1 January 1980.
        for number in [self.crc, self.stored_bytes, self.size_bytes] {
            fields.extend(number.to_le_bytes());
        }
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]); // The extra field is empty.
        fields
    }
}

/// Returns an archive of `entries`. If `is_long`, the archive has the end records of ZIP64.
pub(crate) fn archive(entries: &[Entry], is_long: bool) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for entry in entries {
        let [listed, local] = entry.names;
        let start = file.len() as u32;
        list.extend(b"PK\x01\x02\x14\x00");
        list.extend(entry.fields(listed));
        list.extend([0; 10]);
        list.extend(start.to_le_bytes());
        list.extend(listed.bytes());
        file.extend(b"PK\x03\x04");
        file.extend(entry.fields(local));
        file.extend(local.bytes());
        file.extend(&entry.data);
    }
    let (start, count) = (file.len() as u64, entries.len() as u64);
    let long_end = (start + list.len() as u64).to_le_bytes();
    let size_bytes = list.len() as u64;
    file.extend(list);
    if is_long {
        file.extend(b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0");
        for number in [count, count, size_bytes, start] {
            file.extend(number.to_le_bytes());
        }
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(long_end);
        file.extend(1u32.to_le_bytes());
    }
    file.extend(b"PK\x05\x06\0\0\0\0");
    let here = |number: u64, mark: u64| if is_long { mark } else { number };
    let count = here(count, 0xffff) as u16;
    file.extend(count.to_le_bytes());
    file.extend(count.to_le_bytes());
    for number in [size_bytes, start] {
        file.extend((here(number, 0xffff_ffff) as u32).to_le_bytes());
    }
    file.extend([0, 0]);
    file
}
