use std::fs;
use std::path::{Path, PathBuf};

use cachescope::ndarray::{Array2, ArrayD, s};
use cachescope::npy::{NpzReader, NpzWriter};
use cachescope::{AnyElement, Array, Complex, Device, DeviceConfig, ErrorKind, Result};
use half::{bf16, f16};

use crate::interop::fails;

/// The path of a temporary file, which is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let unique = format!("cachescope-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(unique))
    }

    /// Creates a file with these bytes.
    fn holding(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, bytes).unwrap();
        scratch
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

/// Returns a NumPy file of format version 1.
fn file(dictionary: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{dictionary:<117}\n");
    [b"\x93NUMPY\x01\x00v\x00", header.as_bytes(), elements].concat()
}

#[test]
fn every_element_type_survives() -> Result<()> {
    fn survives<T: AnyElement>(elements: &[T]) -> Result<()> {
        let scratch = Scratch::new(&format!("survives-{}.npy", T::NAME));
        let array = Array::from_slice(elements, [1, elements.len()])?;
        array.write_npy(&scratch)?;
        let read = Array::<T>::read_npy(&scratch)?;
        assert_eq!(read, array);
        Ok(())
    }
    survives(&[0.1f32, f32::NEG_INFINITY])?;
    survives(&[Complex::new(0.1f32, f32::NEG_INFINITY), Complex::I])?;
    survives(&[Complex::new(f64::MIN_POSITIVE, 0.1), Complex::I])?;
    survives(&[0.1f64, f64::MIN_POSITIVE])?;
    survives(&[f16::MAX, f16::from_f32(0.1)])?;
    survives(&[bf16::MAX, bf16::from_f32(0.1)])?;
    survives(&[i8::MIN, 1])?;
    survives(&[i16::MIN, 1])?;
    survives(&[i32::MIN, 1])?;
    survives(&[i64::MIN, 1])?;
    survives(&[u8::MAX, 1])?;
    survives(&[u16::MAX, 1])?;
    survives(&[u32::MAX, 1])?;
    survives(&[u64::MAX, 1])?;
    survives(&[true, false])
}

#[test]
fn files_are_those_of_numpy() -> Result<()> {
    let scratch = Scratch::new("same.npy");
    let array = Array::arange(0u16, 6, 1)?.reshape([3, 2])?.transpose()?;
    array.write_npy(&scratch)?;
    let written = fs::read(&scratch).unwrap();
    let dictionary = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }";
    assert_eq!(
        written,
        file(dictionary, b"\0\0\x02\0\x04\0\x01\0\x03\0\x05\0")
    );
    Array::full([], f16::from_f32(2.5))?.write_npy(&scratch)?;
    let dictionary = "{'descr': '<f2', 'fortran_order': False, 'shape': (), }";
    assert_eq!(fs::read(&scratch).unwrap(), file(dictionary, b"\0A"));
    Array::<bf16>::ones(1)?.write_npy(&scratch)?;
    let dictionary = "{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }";
    assert_eq!(fs::read(&scratch).unwrap(), file(dictionary, b"\x80\x3f"));
    Ok(())
}

#[test]
fn the_other_byte_order_and_fortrans_are_read() -> Result<()> {
    let dictionary = "{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }";
    let scratch = Scratch::holding(
        "big.npy",
        &file(dictionary, b"\0\0\0\x01\0\x02\0\x03\0\x04\xff\xfe"),
    );
    let array = Array::<i16>::read_npy(&scratch)?;
    assert_eq!(
        (array.shape(), array.to_vec()?),
        (&[2, 3][..], vec![0, 1, 2, 3, 4, -2])
    );
    // In a complex number, the bytes of each part are swapped separately.
    let dictionary = "{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }";
    let parts = [1.5f32.to_be_bytes(), (-2.0f32).to_be_bytes()].concat();
    let scratch = Scratch::holding("big-complex.npy", &file(dictionary, &parts));
    let array = Array::<Complex<f32>>::read_npy(&scratch)?;
    assert_eq!(array.item()?, Complex::new(1.5, -2.0));
    let dictionary = "{'descr': '|b1', 'fortran_order': True, 'shape': (2, 3), }";
    let scratch = Scratch::holding("fortran.npy", &file(dictionary, b"\x01\0\0\x01\x01\0"));
    let array = Array::<bool>::read_npy(&scratch)?;
    assert_eq!(array.shape(), [2, 3]);
    assert_eq!(array.to_vec()?, [true, false, true, false, true, false]);
    // In version 2, the header's length has four bytes instead of two.
    let dictionary = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n";
    let head = [
        b"\x93NUMPY\x02\x00",
        &(dictionary.len() as u32).to_le_bytes()[..],
    ]
    .concat();
    let bytes = [&head[..], dictionary, &1.5f64.to_le_bytes()].concat();
    let scratch = Scratch::holding("two.npy", &bytes);
    assert_eq!(Array::<f64>::read_npy(&scratch)?.item()?, 1.5);
    Ok(())
}

#[test]
fn views_of_many_parts_are_written_in_order() -> Result<()> {
    // The array is longer than the I/O buffer. The buffer's size is not a multiple of a row's size.
    let array = Array::arange(0, 3 * 7001, 1)?.reshape([7001, 3])?;
    let scratch = Scratch::new("parts.npy");
    for view in [
        array.clone(),
        array.transpose()?,
        array.slice(s![..;-2, 1..])?,
        array.slice(s![..3, ..0])?,
        array.slice(s![5, 2])?,
    ] {
        view.write_npy(&scratch)?;
        let read = Array::<i32>::read_npy(&scratch)?;
        assert_eq!(read, view);
        let theirs: ArrayD<i32> = ndarray_npy::read_npy(&scratch).unwrap();
        assert_eq!(theirs, view.to_ndarray()?);
        ndarray_npy::write_npy(&scratch, &view.to_ndarray()?.reversed_axes()).unwrap();
        assert_eq!(Array::<i32>::read_npy(&scratch)?, view.transpose()?);
    }
    Ok(())
}

#[test]
fn another_type_is_named_beside_the_requested_one() -> Result<()> {
    let scratch = Scratch::new("types.npy");
    Array::<f64>::ones(2)?.write_npy(&scratch)?;
    let names = ["read_npy", "types.npy", "f64 ('<f8')", "f32 ('<f4')"];
    fails(
        Array::<f32>::read_npy(&scratch),
        ErrorKind::InvalidArgument,
        &names,
    );
    for descr in ["'<m8'", "'<U3'", "'|O'", "'é'", "[('a', '<f4')]"] {
        let dictionary = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (0,), }}");
        let scratch = Scratch::holding("foreign.npy", &file(&dictionary, b""));
        let names = [
            descr.trim_matches('\''),
            "not an element type",
            "i32 ('<i4')",
        ];
        fails(
            Array::<i32>::read_npy(&scratch),
            ErrorKind::InvalidArgument,
            &names,
        );
    }
    Ok(())
}

#[test]
fn what_is_no_file_of_numpy_is_an_error() {
    let read = |bytes: &[u8]| {
        let scratch = Scratch::holding("malformed.npy", bytes);
        Array::<f32>::read_npy(&scratch)
    };
    let missing = Scratch::new("missing.npy");
    fails(
        Array::<f32>::read_npy(&missing),
        ErrorKind::Io,
        &["read_npy", "missing.npy"],
    );
    let nowhere = missing.0.join("below.npy");
    let written = Array::<f32>::zeros(1).unwrap().write_npy(&nowhere);
    fails(written, ErrorKind::Io, &["write_npy", "below.npy"]);
    fails(read(b""), ErrorKind::Io, &["malformed.npy"]);
    fails(
        read(b"\x93NUMPX\x01\x00v\x00"),
        ErrorKind::Io,
        &["not a .npy file"],
    );
    fails(
        read(b"PK\x03\x04\x14\0\0\0"),
        ErrorKind::Io,
        &["call `NpzReader::open`"],
    );
    fails(
        read(b"\x93NUMPY\x04\x00v\x00"),
        ErrorKind::Io,
        &["version is 4.0"],
    );
    fails(
        read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"),
        ErrorKind::Io,
        &["4294967295 bytes"],
    );
    fails(
        read(b"\x93NUMPY\x01\x00\x02\x00\xff\xff"),
        ErrorKind::Io,
        &["not text"],
    );
    let nested = format!("{{'shape': {}", "(".repeat(60_000));
    let head = b"\x93NUMPY\x01\x00\x61\xea";
    fails(
        read(&[head, nested.as_bytes()].concat()),
        ErrorKind::Io,
        &[],
    );
    fails(
        read(&file("{'descr': }", b"")),
        ErrorKind::Io,
        &["cannot read the header", "descr"],
    );
}

#[test]
fn a_header_cannot_claim_more_than_the_file_has() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    for (shape, elements, kind, text) in [
        (
            "(3,)",
            &[0; 11][..],
            ErrorKind::Io,
            "12 bytes, the file has 11",
        ),
        ("(1099511627776,)", &[0; 4], ErrorKind::Io, "cut short"),
        (
            "(4294967296, 4294967296)",
            &[],
            ErrorKind::InvalidShape,
            "overflow",
        ),
        (
            "(4611686018427387904,)",
            &[],
            ErrorKind::InvalidShape,
            "overflow",
        ),
        (
            "(1, 1, 1, 1, 1, 1, 1, 1, 1)",
            &[0; 4],
            ErrorKind::InvalidShape,
            "rank 9",
        ),
    ] {
        let dictionary = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}");
        let scratch = Scratch::holding("claims.npy", &file(&dictionary, elements));
        fails(
            Array::<f32>::read_npy(&scratch),
            kind,
            &["claims.npy", text],
        );
    }
    assert_eq!(device.memory_stats().reserves, 0, "nothing was allocated");
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9999999999), }";
    let scratch = Scratch::holding("empty.npy", &file(dictionary, b"and more"));
    assert_eq!(
        Array::<f32>::read_npy(&scratch)?.shape(),
        [0, 9_999_999_999]
    );
    Ok(())
}

/// A file that `np.savez_compressed(file, weights=…, mask=…)` of NumPy 2.4 wrote. The mask is in
/// Fortran order.
const ARCHIVE: &str = "\
    504b03042d000000080000002100d55e6705ffffffffffffffff0b001400776569676874732e6e7079010010\
    00900000000000000051000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3\
    a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a0a469a3a0ab50a64032e0686\
    03f60c4082010c1a1c00504b03042d000000080000002100faa667ddffffffffffffffff080014006d61736b\
    2e6e70790100100086000000000000004b000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5\
    a05e9364a8aea3a09e965f54529498179f5f94920a120f292a4d050a17672416a402b91a463a0ac69a3a0ab5\
    0ae4032e46060606464600504b01022d032d000000080000002100d55e670551000000900000000b00000000\
    00000000000000800100000000776569676874732e6e7079504b01022d032d000000080000002100faa667dd\
    4b0000008600000008000000000000000000000080018e0000006d61736b2e6e7079504b0506000000000200\
    02006f000000130100000000";

fn archive() -> Vec<u8> {
    let digits = (0..ARCHIVE.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(&ARCHIVE[at..at + 2], 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn numpys_archives_are_read() -> Result<()> {
    let scratch = Scratch::holding("numpy.npz", &archive());
    let mut file = NpzReader::open(&scratch)?;
    assert_eq!(file.names(), ["weights", "mask"]);
    let weights = file.read::<f32>("weights")?;
    assert_eq!(
        weights,
        Array::from_slice(&[1.5f32, -2.0, 0.0, 4.0], [2, 2])?
    );
    let mask = file.read::<bool>("mask")?;
    let expected = [true, false, true, false, false, true];
    assert_eq!(mask, Array::from_slice(&expected, [2, 3])?);
    let names = ["numpy.npz", "\"bias\"", "[\"weights\", \"mask\"]"];
    fails(file.read::<f32>("bias"), ErrorKind::InvalidArgument, &names);
    let names = ["\"mask\"", "bool ('|b1')", "f32 ('<f4')"];
    fails(file.read::<f32>("mask"), ErrorKind::InvalidArgument, &names);
    assert_eq!(file.read::<f32>("weights")?, weights, "once more");
    Ok(())
}

#[test]
fn archives_are_written_for_others() -> Result<()> {
    let (table, single) = (
        Array::arange(0, 6, 1)?.reshape([2, 3])?,
        Array::full([], 0.5)?,
    );
    for is_compressed in [false, true] {
        let scratch = Scratch::new("written.npz");
        let mut file = if is_compressed {
            NpzWriter::create_compressed(&scratch)?
        } else {
            NpzWriter::create(&scratch)?
        };
        file.write("table", &table.transpose()?)?;
        file.write("single", &single)?;
        fails(
            file.write("table", &single),
            ErrorKind::InvalidArgument,
            &["written.npz", "\"table\"", "taken"],
        );
        file.finish()?;
        let mut file = NpzReader::open(&scratch)?;
        assert_eq!(file.names(), ["table", "single"]);
        assert_eq!(file.read::<i32>("table")?, table.transpose()?);
        assert_eq!(file.read::<f64>("single")?, single);
        let opened = fs::File::open(&scratch).unwrap();
        let mut theirs = ndarray_npy::NpzReader::new(opened).unwrap();
        let theirs: Array2<i32> = theirs.by_name("table").unwrap();
        assert_eq!(theirs.into_dyn(), table.transpose()?.to_ndarray()?);
    }
    Ok(())
}

/// NumPy's file is truncated at each position, and each of its bits is flipped. Reading returns the
/// original arrays or an error. `tests/bounds` tests more damaged files, and the memory use.
#[test]
fn damaged_files_are_errors_or_the_same_arrays() -> Result<()> {
    let whole = archive();
    let scratch = Scratch::holding("damaged.npz", &whole);
    let weights = NpzReader::open(&scratch)?.read::<f32>("weights")?;
    let mask = NpzReader::open(&scratch)?.read::<bool>("mask")?;
    for end in 0..whole.len() {
        fs::write(&scratch, &whole[..end]).unwrap();
        assert!(NpzReader::open(&scratch).is_err(), "cut at {end}");
    }
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&scratch, &flipped).unwrap();
        let Ok(mut file) = NpzReader::open(&scratch) else {
            continue;
        };
        if let Ok(read) = file.read::<f32>("weights") {
            assert_eq!(read, weights, "bit {bit}");
        }
        if let Ok(read) = file.read::<bool>("mask") {
            assert_eq!(read, mask, "bit {bit}");
        }
    }
    Ok(())
}
