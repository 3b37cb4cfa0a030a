//! Damaged and hostile NumPy files. Reading a file returns the original array or an error, and uses
//! memory that is bounded by the file's length.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::slice;

use cachescope::npy::{NpzReader, NpzWriter};
use cachescope::{Array, Device, DeviceConfig, Element, ErrorKind, PoolKind, Result};
use proptest::prelude::*;

use crate::bounds::archives::{self, Entry};
use crate::bounds::heap::peak_of;

/// The path of a temporary file, which is removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let unique = format!("cachescope-bounds-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(unique))
    }

    /// Writes these bytes to the file. Overwrites the file in place, because some file systems
    /// write through to the disk if a file is emptied first.
    pub(crate) fn hold(&self, bytes: &[u8]) -> io::Result<()> {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(self)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The heap memory for a file of any length: a buffer of constant size, and the texts of errors.
const FIXED_BYTES: u64 = 16 << 10;

/// Reads a file of `bytes`, and checks that the file's length bounds the memory use.
///
/// The device's pool caches nothing, so the reserved bytes are the requested bytes.
#[track_caller]
fn bounded<R>(scratch: &Scratch, bytes: &[u8], read: impl FnOnce(&Path) -> Result<R>) -> Result<R> {
    let device = Device::host_with(DeviceConfig {
        pool: PoolKind::Direct,
        ..Default::default()
    })?;
    scratch.hold(bytes).unwrap();
    let _guard = device.enter();
    let (outcome, heap_bytes) = peak_of(|| read(&scratch.0));
    let most = 1100 * bytes.len() as u64;
    assert!(
        heap_bytes <= most + FIXED_BYTES,
        "{heap_bytes} of heap for {} bytes",
        bytes.len()
    );
    let reserved = device.memory_stats().peak_reserved_bytes;
    assert!(
        reserved <= most.max(512),
        "{reserved} reserved for {} bytes",
        bytes.len()
    );
    if let Err(error) = &outcome {
        let kind = error.kind();
        let is_reported = matches!(
            kind,
            ErrorKind::Io | ErrorKind::InvalidArgument | ErrorKind::InvalidShape
        );
        assert!(is_reported, "{error}");
    }
    outcome
}

/// A function that reads one array of an archive, and returns whether it equals the written array.
type Reads = fn(&mut NpzReader) -> Result<bool>;

fn reads<T: Element>(
    file: &mut NpzReader,
    name: &str,
    shape: &[usize],
    elements: &[T],
) -> Result<bool> {
    let array = file.read::<T>(name)?;
    Ok(array.shape() == shape && array.to_vec()? == elements)
}

const FLOATS: [f32; 4] = [1.5, -2.0, 0.25, 4.0];
const WIDE: [f64; 6] = [0.1, 1.0, 2.0, -3.0, 4e300, 5.0];

/// Writes arrays of several types and ranks. Returns the archive, and the functions that read the
/// arrays. No element is 0, because a comparison does not distinguish the signs of 0.
fn written(name: &str, is_compressed: bool) -> Result<(Vec<u8>, [Reads; 4])> {
    let scratch = Scratch::new(name);
    let mut file = if is_compressed {
        NpzWriter::create_compressed(&scratch)?
    } else {
        NpzWriter::create(&scratch)?
    };
    file.write("floats", &Array::from_slice(&FLOATS, [2, 2])?)?;
    file.write("wide", &Array::from_slice(&WIDE, [2, 1, 3])?)?;
    file.write("single", &Array::full([], -7i16)?)?;
    file.write("none", &Array::<bool>::zeros([0, 3])?)?;
    file.finish()?;
    let reads: [Reads; 4] = [
        |file| reads(file, "floats", &[2, 2], &FLOATS),
        |file| reads(file, "wide", &[2, 1, 3], &WIDE),
        |file| reads(file, "single", &[], &[-7i16]),
        |file| reads::<bool>(file, "none", &[0, 3], &[]),
    ];
    Ok((fs::read(&scratch).unwrap(), reads))
}

/// Checks that each array of the archive is complete or an error, and returns the number of
/// complete arrays.
#[track_caller]
fn whole_or_errors(scratch: &Scratch, bytes: &[u8], reads: &[Reads]) -> usize {
    let whole = bounded(scratch, bytes, |path| {
        let mut file = NpzReader::open(path)?;
        let read = reads.iter().filter_map(|read| read(&mut file).ok());
        let whole: Vec<bool> = read.collect();
        assert!(!whole.contains(&false), "other numbers were read");
        Ok(whole.len())
    });
    whole.unwrap_or(0)
}

#[test]
fn an_archive_with_one_bit_flipped_is_whole_or_an_error() -> Result<()> {
    for is_compressed in [false, true] {
        let (whole, reads) = written("flipped.npz", is_compressed)?;
        let scratch = Scratch::new("flips.npz");
        assert_eq!(whole_or_errors(&scratch, &whole, &reads), reads.len());
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            whole_or_errors(&scratch, &flipped, &reads);
        }
    }
    Ok(())
}

#[test]
fn an_archive_that_is_cut_or_too_long_is_an_error() -> Result<()> {
    for is_compressed in [false, true] {
        let (whole, reads) = written("cut.npz", is_compressed)?;
        let scratch = Scratch::new("cuts.npz");
        for end in 0..whole.len() {
            assert_eq!(
                whole_or_errors(&scratch, &whole[..end], &reads),
                0,
                "cut at {end}"
            );
        }
        let more = [&whole[..], b"\0"].concat();
        assert_eq!(whole_or_errors(&scratch, &more, &reads), 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: crate::regressions(), ..ProptestConfig::default() })]

    /// Some bytes are overwritten by 0 or 0xff, like on a damaged disk.
    #[test]
    fn an_archive_with_bytes_overwritten_is_whole_or_an_error(
        is_compressed: bool,
        places in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(0), Just(0xff), any::<u8>()]), 1..6),
    ) {
        let (mut bytes, reads) = written("overwritten.npz", is_compressed).unwrap();
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        whole_or_errors(&Scratch::new("overwrites.npz"), &bytes, &reads);
    }
}

/// A file of one array has no checksum. The test can only check that the elements are bytes of the
/// file.
#[test]
fn a_damaged_file_of_one_array_is_an_error_or_has_bytes_of_the_file() -> Result<()> {
    let scratch = Scratch::new("one.npy");
    Array::from_slice(&[0x0102u16, 0x0304, 0x0506, 0x0708, 0x090a, 0x0b0c], [2, 3])?
        .write_npy(&scratch)?;
    let whole = fs::read(&scratch).unwrap();
    let read = |bytes: &[u8]| {
        bounded(&scratch, bytes, |path| {
            Array::<u16>::read_npy(path)?.to_vec()
        })
    };
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err(), "cut at {end}");
    }
    let mut whole_ones = 0;
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(elements) = read(&flipped) else {
            continue;
        };
        whole_ones += 1;
        let is_there = |bytes: Vec<u8>| {
            bytes.is_empty() || flipped.windows(bytes.len()).any(|window| window == bytes)
        };
        let little = elements.iter().flat_map(|element| element.to_le_bytes());
        let big = elements.iter().flat_map(|element| element.to_be_bytes());
        assert!(
            is_there(little.collect()) || is_there(big.collect()),
            "bit {bit}"
        );
    }
    assert!(whole_ones >= 8 * 12, "those in the elements");
    Ok(())
}

#[track_caller]
pub(crate) fn fails<T>(outcome: Result<T>, kind: ErrorKind, text: &str) {
    let error = outcome.err().expect("that is damaged");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error} lacks {text:?}");
    assert!(error.location().is_some(), "{error}");
}

/// Reads the array `name` from an archive of `entries`.
fn read_one(name: &str, entries: &[Entry], is_long: bool) -> Result<Array<u8>> {
    let scratch = Scratch::new("by-hand.npz");
    let bytes = archives::archive(entries, is_long);
    bounded(&scratch, &bytes, |path| NpzReader::open(path)?.read(name))
}

#[test]
fn a_claim_takes_no_memory() -> Result<()> {
    let scratch = Scratch::new("claims.npy");
    let huge = "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967000,), }";
    let claims = archives::npy(huge, &[1; 150]);
    let plain = bounded(&scratch, &claims, |path| Array::<u8>::read_npy(path));
    fails(plain, ErrorKind::Io, "cut short");
    let header = bounded(&scratch, b"\x93NUMPY\x01\x00\xff\xff", |path| {
        Array::<u8>::read_npy(path)
    });
    fails(header, ErrorKind::Io, "within its header");
    for is_deflated in [false, true] {
        // The array's header claims more bytes than the entry has. All other claims are true.
        let honest = Entry::new("a.npy", &claims, is_deflated);
        let read = read_one("a", slice::from_ref(&honest), false);
        fails(
            read,
            ErrorKind::Io,
            "takes 4294967000 bytes, the file has 150",
        );
        // The entry claims a larger size than deflate could produce from the stored data.
        let most = if is_deflated {
            1032 * honest.stored_bytes
        } else {
            honest.stored_bytes
        };
        for size_bytes in [4_294_967_128, most + 1] {
            let entry = Entry {
                size_bytes,
                ..honest.clone()
            };
            fails(
                read_one("a", &[entry], false),
                ErrorKind::Io,
                &format!("at most {most}"),
            );
        }
        // The entry claims more stored bytes than the file has.
        let entry = Entry {
            size_bytes: u32::MAX - 1,
            stored_bytes: u32::MAX - 1,
            ..honest.clone()
        };
        fails(
            read_one("a", &[entry], false),
            ErrorKind::Io,
            "contains at most",
        );
    }
    // If deflate could have produced the claimed size, the error is found at the end of the data.
    let claims = archives::npy(&huge.replace("4294967000", "70000"), &[1; 150]);
    let entry = Entry {
        size_bytes: 128 + 70000,
        ..Entry::new("a.npy", &claims, true)
    };
    fails(read_one("a", &[entry], false), ErrorKind::Io, "cut short");
    Ok(())
}

/// Data with the highest compression ratio of deflate are not refused as a false claim.
#[test]
fn what_is_compressed_best_is_read() -> Result<()> {
    let zeros = vec![0; 4 << 20];
    let entry = Entry::new("a.npy", &archives::npy_of_bytes(&zeros), true);
    assert!(
        entry.size_bytes > 1000 * entry.stored_bytes,
        "that is no test"
    );
    assert_eq!(read_one("a", &[entry], false)?.to_vec()?, zeros);
    Ok(())
}

#[test]
fn an_entry_is_as_long_as_its_array() {
    for is_deflated in [false, true] {
        let mut data = archives::npy_of_bytes(&[1, 2, 3, 4]);
        data.push(5);
        let entry = Entry::new("a.npy", &data, is_deflated);
        fails(
            read_one("a", &[entry], false),
            ErrorKind::Io,
            "data are longer than the array",
        );
        // The central directory claims one byte less, or one byte more, than the data have.
        let data = archives::npy_of_bytes(&[1, 2, 3, 4]);
        let entry = Entry::new("a.npy", &data, is_deflated);
        for size_bytes in [entry.size_bytes - 1, entry.size_bytes + 1] {
            let entry = Entry {
                size_bytes,
                ..entry.clone()
            };
            let read = read_one("a", &[entry], false);
            assert_eq!(
                read.err().map(|error| error.kind()),
                Some(ErrorKind::Io),
                "{size_bytes}"
            );
        }
        // The data are longer than the central directory and the array's header claim.
        let longer = Entry::new("a.npy", &[&data[..], &[5]].concat(), is_deflated);
        let entry = Entry {
            size_bytes: entry.size_bytes,
            ..longer
        };
        fails(
            read_one("a", &[entry], false),
            ErrorKind::Io,
            "data are longer than the array",
        );
    }
}

#[test]
fn a_stream_that_breaks_off_behind_the_array_is_an_error() {
    let mut entry = Entry::new("a.npy", &archives::npy_of_bytes(&[1, 2, 3, 4]), true);
    let other = Entry::new("a.npy", &archives::npy_of_bytes(&[1, 2, 3, 5]), true);
    // The stream lacks its last byte, and its elements do not match the checksum.
    entry.data.clone_from(&other.data);
    entry.data.pop();
    entry.stored_bytes = entry.data.len() as u32;
    let read = read_one("a", &[entry], false);
    assert_eq!(read.err().map(|error| error.kind()), Some(ErrorKind::Io));
}

#[test]
fn names_are_unique_and_stored_with_their_data() -> Result<()> {
    let [ones, twos] = [1, 2].map(|byte| archives::npy_of_bytes(&[byte; 3]));
    let of = |name, data: &[u8]| Entry::new(name, data, false);
    let both = [of("a.npy", &ones), of("a.npy", &twos)];
    fails(read_one("a", &both, false), ErrorKind::Io, "equal names");
    let renamed = Entry {
        names: ["a.npy", "b.npy"],
        ..of("b.npy", &twos)
    };
    let both = [of("c.npy", &ones), renamed];
    fails(read_one("a", &both, false), ErrorKind::Io, "another name");
    assert_eq!(read_one("c", &both, false)?.to_vec()?, [1; 3]);
    Ok(())
}

#[test]
fn an_archive_may_have_a_comment_and_something_before_it() -> Result<()> {
    let entry = Entry::new("a.npy", &archives::npy_of_bytes(&[1, 2, 3]), true);
    let scratch = Scratch::new("comment.npz");
    for is_long in [false, true] {
        let mut bytes = archives::archive(slice::from_ref(&entry), is_long);
        let comment = [b'x'; 300];
        let length = bytes.len() - 2;
        bytes[length..].copy_from_slice(&(comment.len() as u16).to_le_bytes());
        bytes.extend(comment);
        for before in [0, 1000] {
            let bytes = [vec![b'#'; before], bytes.clone()].concat();
            let read = bounded(&scratch, &bytes, |path| {
                NpzReader::open(path)?.read::<u8>("a")
            });
            assert_eq!(read?.to_vec()?, [1, 2, 3], "{is_long}, {before}");
        }
    }
    Ok(())
}

/// If the end of an archive is damaged, a nested archive is not read instead.
#[test]
fn an_archive_within_an_archive_is_data() -> Result<()> {
    let inner = Entry::new("a.npy", &archives::npy_of_bytes(&[1, 2, 3]), false);
    let inner = archives::archive(&[inner], false);
    for is_long in [false, true] {
        let outer = Entry::new("a.npy", &archives::npy_of_bytes(&inner), false);
        assert_eq!(
            read_one("a", slice::from_ref(&outer), is_long)?.to_vec()?,
            inner
        );
        let whole = archives::archive(&[outer], is_long);
        let scratch = Scratch::new("inner.npz");
        let damaged = whole.len() - 150..whole.len();
        for bit in 8 * damaged.start..8 * damaged.end {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = bounded(&scratch, &flipped, |path| {
                NpzReader::open(path)?.read::<u8>("a")
            });
            if let Ok(array) = read {
                assert_eq!(array.to_vec()?, inner, "bit {bit}");
            }
        }
    }
    Ok(())
}

/// A pipe, whose length is unknown, is read to its end.
#[cfg(unix)]
#[test]
fn a_pipe_takes_memory_as_it_is_read() -> Result<()> {
    use std::os::fd::AsRawFd;

    let read = |bytes: &[u8]| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(bytes).unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let device = Device::host_with(DeviceConfig::default())?;
        let _guard = device.enter();
        let (array, heap_bytes) = peak_of(|| Array::<u8>::read_npy(&path));
        assert!(heap_bytes < 64 << 10, "{heap_bytes} of heap");
        if array.is_err() {
            assert_eq!(device.memory_stats().reserves, 0);
        }
        array
    };
    let whole = archives::npy_of_bytes(&[1, 2, 3, 4]);
    assert_eq!(read(&whole)?.to_vec()?, [1, 2, 3, 4]);
    let more = [&whole[..], b"more"].concat();
    assert_eq!(read(&more)?.to_vec()?, [1, 2, 3, 4]);
    fails(read(&whole[..whole.len() - 1]), ErrorKind::Io, "cut short");
    let huge = "{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,), }";
    fails(
        read(&archives::npy(huge, &[1; 10])),
        ErrorKind::Io,
        "the file has 10",
    );
    Ok(())
}
