//! Hugging Face's format: eight bytes with the length of the header, the header as JSON, and the
//! elements.
//!
//! The crate [`safetensors`] parses the header. It checks that the arrays are consecutive without
//! gaps, and that the bytes of each array match its shape. The file is read by plain reads, not
//! mapped. If another program truncated a mapped file, this process would be killed. If another
//! program wrote to a mapped file, values would change under a shared reference. Plain reads do not
//! cost more than a mapping, because each element is read once. Elements are copied to the device
//! through a buffer of constant size.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::structure::listed;
use super::{ArraySource, ArrayTarget, FileContext, Member};
use crate::array::{AnyArray, Array, ByteWriter, DType, Float, Shape};
use crate::context::Device;
use crate::error::{AtCaller, CallSiteOverride, ErrorCode, ErrorKind, Result};
use crate::interop::elements;
use crate::sorting::sort_descending;

/// The maximum length of a header in the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The size in bytes of the field that contains the header's length, and the alignment of the first
/// array.
const LENGTH_BYTES: u64 = 8;

/// A name that the format reserves.
const RESERVED: &str = "__metadata__";

/// True if the bytes of elements are swapped, because files are little-endian.
const IS_SWAPPED: bool = cfg!(target_endian = "big");

pub(super) struct SafetensorsTarget<'c> {
    file: BufWriter<File>,
    metadata: Metadata,
    data_start: u64,
    context: &'c FileContext<'c>,
}

impl<'c> SafetensorsTarget<'c> {
    /// Writes the header of a file for the arrays `entries`.
    pub(super) fn create(
        path: &Path,
        entries: &[&Member],
        context: &'c FileContext<'c>,
    ) -> Result<Self> {
        let metadata = metadata(entries, context)?;
        let mut header = serde_json::to_vec(&metadata)
            .map_err(|error| context.error(ErrorKind::InvalidArgument, None, error))?;
        header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
        let length = header.len() as u64;
        let io = |error| context.io(error);
        let mut file = BufWriter::new(File::create(path).map_err(io)?);
        let written = file.write_all(&length.to_le_bytes());
        written.and_then(|()| file.write_all(&header)).map_err(io)?;
        Ok(Self {
            file,
            metadata,
            data_start: LENGTH_BYTES + length,
            context,
        })
    }
}

/// Returns the header for the arrays `entries`. The arrays are sorted by descending element size,
/// so that each array is aligned for its type.
fn metadata(entries: &[&Member], context: &FileContext<'_>) -> Result<Metadata> {
    let mut sorted = entries.to_vec();
    sort_descending(&mut sorted, |entry| entry.dtype.size_bytes() as u64);
    let mut end = 0_usize;
    let mut infos = Vec::new();
    for Member { name, dtype, shape } in sorted {
        if name == RESERVED {
            let problem = "the format reserves this name: give the array another name";
            return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
        }
        let start = end;
        // The length of a view that repeats elements is unbounded. If the length overflows, the
        // offsets cause an error below.
        let bytes = shape.checked_len()?.saturating_mul(dtype.size_bytes());
        end = start.saturating_add(bytes);
        let info = TensorInfo {
            dtype: known(*dtype, name, context)?,
            shape: shape.dims().to_vec(),
            data_offsets: (start, end),
        };
        infos.push((name.clone(), info));
    }
    // Some versions of Hugging Face's library refuse a file without this entry.
    let about = std::iter::once(("format".to_owned(), "pt".to_owned()));
    Metadata::new(Some(about.collect()), infos)
        .map_err(|error| context.error(ErrorKind::InvalidArgument, None, error))
}

/// Returns the format's name of an element type.
fn known(dtype: DType, name: &str, context: &FileContext<'_>) -> Result<Dtype> {
    Ok(match dtype {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::Bool => Dtype::BOOL,
        // The format names a complex number by its 64 bits, and this crate by the 32 bits of a
        // part.
        DType::C32 => Dtype::C64,
        other => {
            let problem = format!("the format has no type for {}", other.name());
            return Err(context.error(ErrorKind::Unsupported, Some(name), problem));
        }
    })
}

impl ArrayTarget for SafetensorsTarget<'_> {
    fn write(&mut self, name: &str, array: &AnyArray) -> Result<()> {
        let context = self.context;
        let info = info(&self.metadata, name, array.dtype, context)?;
        let start = self.data_start + info.data_offsets.0 as u64;
        let found = self.file.seek(SeekFrom::Start(start));
        found.map_err(|error| context.io(error))?;
        elements::write(&mut self.file, array, IS_SWAPPED, |error| context.io(error))
    }

    fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(|error| self.context.io(error))
    }
}

/// An open file and its header.
#[derive(Debug)]
struct OpenFile {
    file: File,
    metadata: Metadata,
    data_start: u64,
}

impl OpenFile {
    /// Reads the header. The rest of the file must have exactly the length that the header
    /// describes.
    fn open(context: &FileContext<'_>) -> Result<Self> {
        let io = |error| context.io(error);
        let damaged = |problem: String| context.error(ErrorCode::Content, None, problem);
        let mut file = File::open(context.path).map_err(io)?;
        let size_bytes = file.metadata().map_err(io)?.len();
        let Some(rest_bytes) = size_bytes.checked_sub(LENGTH_BYTES) else {
            let problem = "the file is cut short, or is not a .safetensors file".to_owned();
            return Err(damaged(problem));
        };
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(io)?;
        let length = u64::from_le_bytes(length);
        let most = rest_bytes.min(MAX_HEADER_BYTES);
        if length > most {
            let problem = format!(
                "the header claims {length} bytes, expected at most {most}: the file is cut short, or is not a .safetensors file"
            );
            return Err(damaged(problem));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(io)?;
        let RepeatedName(repeated) = serde_json::from_slice(&header).unwrap_or_default();
        if let Some(name) = repeated {
            let problem = "the header has this name twice, expected once";
            return Err(context.error(ErrorCode::Content, Some(&name), problem));
        }
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| {
            damaged(format!("the header is not valid: {error}")).caused_by(error)
        })?;
        let (claimed, present) = (metadata.data_len() as u64, rest_bytes - length);
        if claimed != present {
            let problem =
                format!("the arrays take {claimed} bytes, the file has {present} after its header");
            return Err(damaged(problem));
        }
        Ok(Self {
            file,
            metadata,
            data_start: LENGTH_BYTES + length,
        })
    }

    /// Reads an array of the type of `writer`, into memory of `writer`.
    fn read(
        &mut self,
        name: &str,
        writer: ByteWriter<'_>,
        context: &FileContext<'_>,
    ) -> Result<AnyArray> {
        let info = info(&self.metadata, name, writer.dtype, context)?;
        let start = self.data_start + info.data_offsets.0 as u64;
        let found = self.file.seek(SeekFrom::Start(start));
        found.map_err(|error| context.io(error))?;
        elements::read(&mut self.file, writer, IS_SWAPPED, |done, error| {
            let problem = format!("{error}, after {done} bytes");
            context
                .error(ErrorKind::Io, Some(name), problem)
                .caused_by(error)
        })
    }

    /// Reads an array of floats to the current device, and converts its elements to `dtype`.
    fn read_as(&mut self, name: &str, dtype: DType, context: &FileContext<'_>) -> Result<AnyArray> {
        let info = entry(&self.metadata, name, context)?;
        let found = match info.dtype {
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::Bf16,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            other => {
                let problem =
                    format!("the elements are {other}, expected floats of 16, 32 or 64 bits");
                return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
            }
        };
        let shape = Shape::from(&info.shape[..]);
        let checked = shape.checked_len();
        checked.map_err(|error| context.error(error.kind(), Some(name), error))?;
        let array = self.read(name, ByteWriter::on_current(found, &shape)?, context)?;
        array.converted(dtype)
    }
}

/// The first name that occurs twice in a header. [`Metadata`] keeps only one of the two arrays.
#[derive(Debug, Default)]
struct RepeatedName(Option<String>);

impl<'de> Deserialize<'de> for RepeatedName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for RepeatedName {
    type Value = Self;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a header")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if let Some(name) = names.replace(name) {
                self.0.get_or_insert(name);
            }
        }
        Ok(self)
    }
}

pub(super) struct SafetensorsSource<'c> {
    file: OpenFile,
    context: &'c FileContext<'c>,
}

impl<'c> SafetensorsSource<'c> {
    pub(super) fn open(context: &'c FileContext<'c>) -> Result<Self> {
        let file = OpenFile::open(context)?;
        Ok(Self { file, context })
    }
}

impl ArraySource for SafetensorsSource<'_> {
    fn names(&self) -> Vec<String> {
        self.file.metadata.offset_keys()
    }

    fn read(
        &mut self,
        name: &str,
        dtype: DType,
        device: &Device,
        shape: &Shape,
    ) -> Result<AnyArray> {
        let context = self.context;
        let info = info(&self.file.metadata, name, dtype, context)?;
        if info.shape != shape.dims() {
            let (found, expected) = (&info.shape, shape.dims());
            let problem = format!("the shape is {found:?}, expected {expected:?}");
            return Err(context.error(ErrorKind::ShapeMismatch, Some(name), problem));
        }
        let writer = ByteWriter::new(device, dtype, shape)?;
        self.file.read(name, writer, context)
    }
}

/// A reader of single arrays from a `.safetensors` file. Use it for files with names or types that
/// no structure of the program has, such as published models.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::files::{self, SafetensorsReader};
/// use cachescope::half::f16;
///
/// let path = std::env::temp_dir().join(format!("cachescope-{}.safetensors", std::process::id()));
/// files::save(&vec![Array::<f16>::ones([2, 3])?], &path)?;
/// let mut file = SafetensorsReader::open(&path)?;
/// assert_eq!(file.names(), ["0"]);
/// assert_eq!(file.shape("0"), Some(&[2, 3][..]));
/// assert_eq!(file.read::<f32>("0")?, Array::ones([2, 3])?);
/// assert!(file.read::<f32>("1").is_err());
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct SafetensorsReader {
    file: OpenFile,
    path: PathBuf,
}

impl SafetensorsReader {
    /// Opens the file at `path` and reads its header.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::files::SafetensorsReader;
    ///
    /// let error = SafetensorsReader::open("Cargo.toml").unwrap_err();
    /// assert!(error.to_string().contains("Cargo.toml: the header claims"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file, if the file cannot be read, is damaged or is
    /// truncated, or if a name occurs twice.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let context = FileContext {
            operation: "SafetensorsReader::open",
            path: &path,
        };
        let file = OpenFile::open(&context).at_caller()?;
        Ok(Self { file, path })
    }

    /// Returns the names of the arrays, in the order of the file.
    ///
    /// # Examples
    ///
    /// See [`SafetensorsReader`].
    pub fn names(&self) -> Vec<String> {
        self.file.metadata.offset_keys()
    }

    /// Returns the lengths of an array's axes, or `None` if no array has this name.
    ///
    /// # Examples
    ///
    /// See [`SafetensorsReader`].
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        let info = self.file.metadata.info(name)?;
        Some(&info.shape)
    }

    /// Reads the array with the name `name` to the current device. Elements of another float type
    /// are cast to `T`.
    ///
    /// # Examples
    ///
    /// See [`SafetensorsReader`].
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the file has no array `name`, or if its
    /// elements are not floats of 16, 32 or 64 bits. [`InvalidShape`](ErrorKind::InvalidShape) if
    /// the array's rank is above 8. [`Io`](ErrorKind::Io), naming the file, if the file cannot be
    /// read. [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn read<T: Float>(&mut self, name: &str) -> Result<Array<T>> {
        let context = FileContext {
            operation: "SafetensorsReader::read",
            path: &self.path,
        };
        let _call_site = CallSiteOverride::at(Location::caller());
        let array = self.file.read_as(name, T::DTYPE, &context);
        array.map(Array::from_erased).at_caller()
    }
}

/// Returns the header's entry of an array. Returns an error if the array's type is not `dtype`.
fn info<'m>(
    metadata: &'m Metadata,
    name: &str,
    dtype: DType,
    context: &FileContext<'_>,
) -> Result<&'m TensorInfo> {
    let info = entry(metadata, name, context)?;
    if info.dtype != known(dtype, name, context)? {
        let problem = format!("the elements are {}, expected {}", info.dtype, dtype.name());
        return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
    }
    Ok(info)
}

/// Returns the header's entry of an array.
fn entry<'m>(
    metadata: &'m Metadata,
    name: &str,
    context: &FileContext<'_>,
) -> Result<&'m TensorInfo> {
    metadata.info(name).ok_or_else(|| {
        let names = metadata.offset_keys();
        let names = listed(names.iter().map(String::as_str).collect());
        let problem = format!("no array has this name, expected one of {names}");
        context.error(ErrorKind::InvalidArgument, Some(name), problem)
    })
}
