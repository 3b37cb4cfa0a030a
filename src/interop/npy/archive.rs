//! Files of several named arrays (`.npz`): a zip archive of NumPy files.
//!
//! Functions with `#[inline]` are compiled only by programs that read or write archives, because
//! the crate `zip` is large.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::read::ZipFile;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::directory::{Directory, names_match};
use super::{Length, NpyContext};
use crate::array::{AnyArray, AnyElement, Array, DType};
use crate::error::{Error, ErrorCode, ErrorKind, Result};

/// The suffix of an entry's name, after the array's name.
const SUFFIX: &str = ".npy";

/// The size of an array from which its entry is written in ZIP64's format. The format is required
/// for entries above 4 GiB.
const LARGE_BYTES: usize = 1 << 31;

/// The highest compression ratio of Deflate: 258 bytes from two bits.
const DEFLATE_RATIO: u64 = 1032;

/// A reader of arrays by name, from a file that `np.savez`, `np.savez_compressed` or [`NpzWriter`]
/// wrote.
///
/// A damaged file causes an error. The reader checks the checksum of an array, as NumPy does, and
/// compares the two headers of the array's entry. NumPy accepts bytes after an entry's array or
/// after the archive, and two entries with one name. This reader returns an error in each of these
/// cases. It requests no more memory than the file's bytes can fill, whatever sizes the file
/// claims. Compressed bytes can fill 1032 times their number.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::npy::{NpzReader, NpzWriter};
///
/// let path = std::env::temp_dir().join(format!("cachescope-{}.npz", std::process::id()));
/// let (weights, steps) = (Array::<f32>::eye(2)?, Array::arange(0, 3, 1)?);
/// let mut file = NpzWriter::create(&path)?;
/// file.write("weights", &weights)?;
/// file.write("steps", &steps)?;
/// file.finish()?; // np.load(path) reads it
///
/// let mut file = NpzReader::open(&path)?;
/// assert_eq!(file.names(), ["weights", "steps"]);
/// assert_eq!(file.read::<f32>("weights")?, weights);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), cachescope::Error>(())
/// ```
pub struct NpzReader {
    archive: ZipArchive<BufReader<Arc<File>>>,
    /// The file, for checks that the `zip` crate does not make. Each check seeks before it reads.
    file: Arc<File>,
    size_bytes: u64,
    path: PathBuf,
}

impl NpzReader {
    /// Opens the file at `path`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-open-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// file.finish()?;
    /// assert!(NpzReader::open(&path).is_ok());
    /// assert!(NpzReader::open(path.with_extension("none")).is_err());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file, if the file cannot be read, is not an archive or is
    /// truncated.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_for("NpzReader::open", path.as_ref())
    }

    /// Opens the file at `path`. Errors name the operation `operation`.
    #[inline]
    #[track_caller]
    pub(crate) fn open_for(operation: &'static str, path: &Path) -> Result<Self> {
        let context = NpyContext::new(operation, path, None);
        let io = |error| context.io(error);
        let file = Arc::new(File::open(path).map_err(io)?);
        let size_bytes = file.metadata().map_err(io)?.len();
        let Some(directory) = Directory::find(&file, size_bytes).map_err(io)? else {
            let problem = "the file is cut short, or is not a .npz archive";
            return Err(context.error(ErrorCode::Content, problem));
        };
        let archive = ZipArchive::new(BufReader::new(file.clone()));
        let archive = archive.map_err(|error| zip_error(&context, error))?;
        if archive.central_directory_start() != directory.start {
            let problem = "the list of entries is not at the offset that the end of the file \
                           records";
            return Err(context.error(ErrorCode::Content, problem));
        }
        if archive.len() as u64 != directory.count {
            let count = directory.count;
            let problem = format!("some of the {count} entries have equal names");
            return Err(context.error(ErrorCode::Content, problem));
        }
        Ok(Self {
            archive,
            file,
            size_bytes,
            path: path.into(),
        })
    }

    /// Returns the names of the arrays, in the order of the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-names-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// file.finish()?;
    /// assert_eq!(NpzReader::open(&path)?.names(), ["x"]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn names(&self) -> Vec<String> {
        let names = self.archive.file_names();
        names
            .map(|name| name.strip_suffix(SUFFIX).unwrap_or(name).to_owned())
            .collect()
    }

    /// Reads the array with the name `name` to the current device. The type of the array must be
    /// `T`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-read-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// file.finish()?;
    /// let mut file = NpzReader::open(&path)?;
    /// assert_eq!(file.read::<f32>("x")?, Array::eye(2)?);
    /// assert!(file.read::<f64>("x").is_err()); // Another type.
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the file has no array `name`;
    /// [`Io`](ErrorKind::Io) if the array's bytes are damaged; and the errors of
    /// [`Array::read_npy`].
    #[track_caller]
    pub fn read<T: AnyElement>(&mut self, name: &str) -> Result<Array<T>> {
        self.read_for("NpzReader::read", name, T::DTYPE, None)
            .map(Array::from_erased)
    }

    /// Reads an array like [`read`](Self::read). Errors name the operation `operation`. If `shape`
    /// is given, returns an error for an array of another shape before memory is requested for the
    /// array.
    #[inline]
    #[track_caller]
    pub(crate) fn read_for(
        &mut self,
        operation: &'static str,
        name: &str,
        dtype: DType,
        shape: Option<&[usize]>,
    ) -> Result<AnyArray> {
        let context = NpyContext::new(operation, &self.path, Some(name));
        let index = self.archive.index_for_name(&format!("{name}{SUFFIX}"));
        let Some(index) = index.or_else(|| self.archive.index_for_name(name)) else {
            let problem = format!(
                "the archive has no array of this name, expected one of {:?}",
                self.names()
            );
            return Err(context.error(ErrorKind::InvalidArgument, problem));
        };
        let entry = self.archive.by_index_raw(index);
        let entry = entry.map_err(|error| zip_error(&context, error))?;
        let (listed, local) = (entry.central_header_start(), entry.header_start());
        drop(entry);
        let is_same = names_match(&self.file, listed, local);
        if !is_same.map_err(|error| context.io(error))? {
            let problem = "the archive has another name for the array beside its data";
            return Err(context.error(ErrorCode::Content, problem));
        }
        let entry = self.archive.by_index(index);
        let mut entry = entry.map_err(|error| zip_error(&context, error))?;
        let (claimed, max) = (entry.size(), max_bytes(&entry, self.size_bytes));
        if claimed > max {
            let problem =
                format!("the array claims {claimed} bytes, the file contains at most {max}");
            return Err(context.error(ErrorCode::Content, problem));
        }
        super::read(
            &mut entry,
            dtype,
            (Length::Exactly(claimed), shape),
            &context,
        )
    }
}

/// Returns the maximum number of bytes that an entry can hold in a file of `size_bytes`, whatever
/// size the entry claims.
fn max_bytes(entry: &ZipFile<'_, impl Read>, size_bytes: u64) -> u64 {
    let present = size_bytes.saturating_sub(entry.data_start());
    let compressed = entry.compressed_size().min(present);
    match entry.compression() {
        CompressionMethod::Stored => compressed,
        _ => compressed.saturating_mul(DEFLATE_RATIO),
    }
}

impl fmt::Debug for NpzReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NpzReader")
            .field("path", &self.path)
            .field("names", &self.names())
            .finish()
    }
}

/// A writer of named arrays, to a file that `np.load` and [`NpzReader`] read.
///
/// # Examples
///
/// See [`NpzReader`].
pub struct NpzWriter {
    archive: ZipWriter<BufWriter<File>>,
    options: SimpleFileOptions,
    path: PathBuf,
}

impl NpzWriter {
    /// Creates the file at `path`, or replaces an existing file. Arrays are not compressed.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-create-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// file.finish()?;
    /// assert_eq!(NpzReader::open(&path)?.read::<f32>("x")?, Array::eye(2)?);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file.
    #[track_caller]
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_for("NpzWriter::create", path.as_ref())
    }

    /// Creates a file like [`create`](Self::create), but with compression.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-compressed-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create_compressed(&path)?;
    /// file.write("x", &Array::<f32>::zeros(10_000)?)?;
    /// file.finish()?;
    /// assert!(path.metadata().unwrap().len() < 4000);
    /// assert_eq!(NpzReader::open(&path)?.read::<f32>("x")?.len(), 10_000);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file.
    #[track_caller]
    pub fn create_compressed(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(
            "NpzWriter::create_compressed",
            path.as_ref(),
            CompressionMethod::Deflated,
        )
    }

    #[inline]
    #[track_caller]
    pub(crate) fn create_for(operation: &'static str, path: &Path) -> Result<Self> {
        Self::with(operation, path, CompressionMethod::Stored)
    }

    #[inline]
    #[track_caller]
    fn with(operation: &'static str, path: &Path, method: CompressionMethod) -> Result<Self> {
        let context = NpyContext::new(operation, path, None);
        let file = File::create(path).map_err(|error| context.io(error))?;
        Ok(Self {
            archive: ZipWriter::new(BufWriter::new(file)),
            options: SimpleFileOptions::default().compression_method(method),
            path: path.into(),
        })
    }

    /// Appends `array` to the file under `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::NpzWriter;
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-write-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// assert!(file.write("x", &Array::<f32>::eye(3)?).is_err()); // The name is taken.
    /// # drop(file);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the name is taken, and the errors of
    /// [`Array::write_npy`].
    #[track_caller]
    pub fn write<T: AnyElement>(&mut self, name: &str, array: &Array<T>) -> Result<()> {
        self.write_for("NpzWriter::write", name, array.erased())
    }

    /// Appends an array like [`write`](Self::write). Errors name the operation `operation`.
    #[inline]
    #[track_caller]
    pub(crate) fn write_for(
        &mut self,
        operation: &'static str,
        name: &str,
        array: &AnyArray,
    ) -> Result<()> {
        let context = NpyContext::new(operation, &self.path, Some(name));
        let options = self.options.large_file(array.size_bytes() >= LARGE_BYTES);
        let begun = self.archive.start_file(format!("{name}{SUFFIX}"), options);
        begun.map_err(|error| zip_error(&context, error))?;
        super::write(&mut self.archive, array, &context)
    }

    /// Completes the file. A drop without this call also completes it, but ignores errors.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::npy::{NpzReader, NpzWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-finish-{}.npz", std::process::id()));
    /// let mut file = NpzWriter::create(&path)?;
    /// file.write("x", &Array::<f32>::eye(2)?)?;
    /// file.finish()?;
    /// assert_eq!(NpzReader::open(&path)?.names(), ["x"]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), naming the file.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        self.finish_for("NpzWriter::finish")
    }

    #[inline]
    #[track_caller]
    pub(crate) fn finish_for(self, operation: &'static str) -> Result<()> {
        let context = NpyContext::new(operation, &self.path, None);
        let finished = self.archive.finish();
        let writer = finished.map_err(|error| zip_error(&context, error))?;
        let flushed = writer.into_inner();
        flushed.map_err(|error| context.io(error.into_error()))?;
        Ok(())
    }
}

impl fmt::Debug for NpzWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NpzWriter")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Converts an error of the archive. A duplicate name is an error of the caller. All other errors
/// are errors of the file.
fn zip_error(context: &NpyContext<'_>, error: ZipError) -> Error {
    match error {
        ZipError::InvalidArchive(problem) if problem.contains("Duplicate") => {
            context.error(ErrorKind::InvalidArgument, "the name is taken")
        }
        ZipError::Io(error) => context.io(error),
        other => context.error(ErrorCode::Content, &other).caused_by(other),
    }
}
