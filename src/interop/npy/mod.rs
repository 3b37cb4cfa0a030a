//! NumPy's files of one array (`.npy`) and of several arrays (`.npz`).
//!
//! The format, in versions 1 to 3, is documented by
//! [NumPy](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). No other crate
//! is used to read the format, because files may be untrusted. No more memory is allocated than the
//! file can fill, whatever a header claims. The depth of nesting is bounded.

mod archive;
mod data;
mod directory;
mod header;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::panic::Location;
use std::path::Path;

pub use archive::{NpzReader, NpzWriter};
use header::Header;

use crate::array::{AnyArray, AnyElement, Array, DType};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::interop::elements;

/// The operation and the file that an error names.
struct NpyContext<'a> {
    operation: &'static str,
    path: &'a Path,
    /// The name of the array, if the file contains several arrays.
    name: Option<&'a str>,
    call_site: &'static Location<'static>,
}

impl<'a> NpyContext<'a> {
    #[track_caller]
    fn new(operation: &'static str, path: &'a Path, name: Option<&'a str>) -> Self {
        Self {
            operation,
            path,
            name,
            call_site: Location::caller(),
        }
    }

    fn error(&self, code: impl Into<ErrorCode>, problem: impl fmt::Display) -> Error {
        Error::new(code, format!("{}: {problem}", self.place())).at(self.call_site)
    }

    /// Returns the beginning of each message: the call, the file and the array.
    fn place(&self) -> String {
        let (operation, path) = (self.operation, self.path.display());
        match self.name {
            Some(name) => format!("{operation}: {path}, \"{name}\""),
            None => format!("{operation}: {path}"),
        }
    }

    fn io(&self, error: io::Error) -> Error {
        self.error(ErrorKind::Io, &error).caused_by(error)
    }
}

/// The number of bytes that remain in a reader.
#[derive(Clone, Copy)]
enum Length {
    /// At most this number, because other bytes may follow the array.
    AtMost(u64),
    /// Exactly this number: only bytes of the array, as in an archive's entry.
    Exactly(u64),
    /// Unknown, as for a pipe.
    Unknown,
}

impl Length {
    /// Returns the length after the first `bytes` bytes.
    fn after(self, bytes: u64) -> Self {
        match self {
            Self::AtMost(all) => Self::AtMost(all.saturating_sub(bytes)),
            Self::Exactly(all) => Self::Exactly(all.saturating_sub(bytes)),
            Self::Unknown => Self::Unknown,
        }
    }
}

/// Reads the array in the next `length` bytes of `reader` to the current device. If `expected` is a
/// shape, returns an error for another shape before memory is requested.
#[track_caller]
fn read(
    reader: &mut dyn Read,
    dtype: DType,
    (length, expected): (Length, Option<&[usize]>),
    context: &NpyContext<'_>,
) -> Result<AnyArray> {
    let header = Header::read(reader, context)?;
    data::check(&header, dtype, expected, context)?;
    data::read(
        reader,
        &header,
        dtype,
        length.after(header.size_bytes),
        context,
    )
}

#[track_caller]
fn write(mut writer: impl Write, array: &AnyArray, context: &NpyContext<'_>) -> Result<()> {
    let header = header::format(array);
    let written = writer.write_all(&header);
    written.map_err(|error| context.io(error))?;
    elements::write(&mut writer, array, false, |error| context.io(error))?;
    writer.flush().map_err(|error| context.io(error))
}

impl<T: AnyElement> Array<T> {
    /// Reads the array of a NumPy file to the current device.
    ///
    /// The file's type must be `T`. To convert the elements, call `cast` afterwards. Both byte
    /// orders are read. An array in Fortran order is read with reversed axes, as it is stored. The
    /// result is a view that reverses the axes again. NumPy itself has no `bf16`: it is read from
    /// and written as two opaque bytes (`V2`), like the `ml_dtypes` package does.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-{}.npy", std::process::id()));
    /// let array = Array::<f32>::eye(3)?;
    /// array.write_npy(&path)?; // np.load(path) reads it
    /// assert_eq!(Array::<f32>::read_npy(&path)?, array);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file, if the file cannot be read, is not a NumPy file or
    /// is truncated. [`InvalidArgument`](ErrorKind::InvalidArgument) if the file contains another
    /// type. [`InvalidShape`](ErrorKind::InvalidShape) if its array has more than 8 axes.
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn read_npy(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let context = NpyContext::new("read_npy", path, None);
        let file = File::open(path).map_err(|error| context.io(error))?;
        let length = match file.metadata() {
            Ok(metadata) if metadata.is_file() => Length::AtMost(metadata.len()),
            _ => Length::Unknown,
        };
        let mut reader = BufReader::new(file);
        read(&mut reader, T::DTYPE, (length, None), &context).map(Self::from_erased)
    }

    /// Writes the elements to a NumPy file, in row-major order. Replaces an existing file.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-write-{}.npy", std::process::id()));
    /// let x = Array::<f32>::linspace(0.0, 1.0, 6)?.reshape([2, 3])?;
    /// x.t()?.write_npy(&path)?; // np.load(path) reads it
    /// assert_eq!(Array::<f32>::read_npy(&path)?, x.t()?);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file, if the file cannot be written, and
    /// [`Driver`](ErrorKind::Driver) if the device fails to deliver the elements.
    #[track_caller]
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let context = NpyContext::new("write_npy", path, None);
        let file = File::create(path).map_err(|error| context.io(error))?;
        write(BufWriter::new(file), self.erased(), &context)
    }
}
