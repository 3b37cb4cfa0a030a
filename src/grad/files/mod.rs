//! Parameters in files, each array under its name.
//!
//! Names are as in PyTorch's `state_dict`: the fields on the way to the array, joined by dots.
//! Elements of a `Vec` or an array, members of a tuple, and fields without names have numbers. For
//! example, the bias of the second element of a field `layers` is `layers.1.bias`. An `Option` or a
//! `Box` adds nothing to the name of its contents. An array outside of a structure is called
//! `array`. A field marked `#[parameters(skip)]` is not written.
//!
//! The suffix of a file's name determines its format:
//! - `.safetensors`, with the feature `safetensors`: the format of PyTorch, JAX and Hugging Face's
//!   libraries;
//! - `.npz`, with the feature `npy`, which is a default one: `np.load` reads it. NumPy has no
//!   `bf16`.
//!
//! A file of another program, whose names no structure here has, is read array by array by
//! `SafetensorsReader` or `npy::NpzReader`.
//!
//! Arrays are written and read one by one. In addition to them, host memory holds one array of a
//! device, and a buffer of constant size.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "npy")] {
//! use cachescope::Array;
//! use cachescope::grad::{Parameters, files};
//!
//! #[derive(Parameters)]
//! struct Layer {
//!     weight: Array<f32>,
//!     bias: Option<Array<f32>>,
//! }
//!
//! let layer = |bias| -> cachescope::Result<Layer> {
//!     Ok(Layer { weight: Array::zeros([3, 2])?, bias: Some(Array::full(2, bias)?) })
//! };
//! let path = std::env::temp_dir().join(format!("cachescope-files-{}.npz", std::process::id()));
//! files::save(&vec![layer(1.0)?, layer(2.0)?], &path)?;
//! // np.load(path) has "0.weight", "0.bias", "1.weight" and "1.bias".
//!
//! let layers = files::load(&vec![layer(0.0)?, layer(0.0)?], &path)?;
//! assert_eq!(layers[1].bias.as_ref().unwrap().to_vec()?, [2.0, 2.0]);
//! # std::fs::remove_file(path).unwrap();
//! # }
//! # Ok::<(), cachescope::Error>(())
//! ```

mod draft;
#[cfg(feature = "npy")]
mod npz;
#[cfg(feature = "safetensors")]
mod safetensors;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Display;
use std::path::Path;

use draft::Draft;
#[cfg(feature = "safetensors")]
pub use safetensors::SafetensorsReader;

use super::optim::rounded::is_narrow;
use super::parameters::{MapArrays, Parameters};
use super::place::{Member, ParameterPath, follow_place, members};
use crate::array::{Array, Float, Shape};
use crate::context::Device;
use crate::error::{AtCaller, Error, ErrorCode, ErrorKind, Result};

/// The most names of one kind that an error lists.
const NAMED: usize = 8;

/// Writes the arrays of `parameters` to the file at `path`.
///
/// They are written to another file in the same folder, which replaces an existing one when it is
/// complete and on the disk. A call that fails leaves the old file unchanged. A file that is
/// replaced keeps its permissions. If `path` is a symbolic link, the file that it leads to is
/// replaced, and the link stays.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "npy")] {
/// use cachescope::Array;
/// use cachescope::grad::files;
///
/// let path = std::env::temp_dir().join(format!("cachescope-save-{}.npz", std::process::id()));
/// let weights = vec![Array::<f32>::eye(2)?, Array::ones(3)?];
/// files::save(&weights, &path)?;
/// assert_eq!(files::load(&weights, &path)?, weights);
/// assert!(files::save(&weights, path.with_extension("txt")).is_err());
/// # std::fs::remove_file(path).unwrap();
/// # }
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for a name with another suffix, and if two
/// arrays have one name; [`Unsupported`](ErrorKind::Unsupported) for a format whose feature this
/// build lacks, and for `bf16` in `.npz`; [`Io`](ErrorKind::Io), naming the file, if it cannot be
/// written; and [`Driver`](ErrorKind::Driver) if a device fails to deliver the elements.
#[track_caller]
pub fn save<P: Parameters>(parameters: &P, path: impl AsRef<Path>) -> Result<()> {
    save_to(parameters, path.as_ref()).at_caller()
}

/// Reads the file at `path` into a new structure with the names, shapes and types of `like`. Each
/// array is on the device of the corresponding array of `like`. The values of `like` are not read,
/// and its fields marked `#[parameters(skip)]` are cloned.
///
/// The types and shapes in the file are compared before an array is read. So whatever the file
/// contains, no more memory is requested than the arrays of `like` take.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "npy")] {
/// use cachescope::Array;
/// use cachescope::grad::files;
///
/// let path = std::env::temp_dir().join(format!("cachescope-load-{}.npz", std::process::id()));
/// files::save(&vec![Array::<f32>::ones(3)?], &path)?;
/// let loaded = files::load(&vec![Array::<f32>::zeros(3)?], &path)?;
/// assert_eq!(loaded[0].to_vec()?, [1.0; 3]);
/// assert!(files::load(&vec![Array::<f32>::zeros(4)?], &path).is_err()); // Another shape.
/// # std::fs::remove_file(path).unwrap();
/// # }
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the arrays and the file, if the file
/// lacks a name or has one that `like` lacks, if the type of an array differs, or if the file's
/// name has another suffix; [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the shape of an array
/// differs; [`Unsupported`](ErrorKind::Unsupported) as for [`save`]; [`Io`](ErrorKind::Io), naming
/// the file, if it cannot be read, is damaged or is truncated; and
/// [`OutOfMemory`](ErrorKind::OutOfMemory).
#[track_caller]
pub fn load<P: Parameters>(like: &P, path: impl AsRef<Path>) -> Result<P> {
    load_from(like, path.as_ref()).at_caller()
}

fn save_to<P: Parameters>(parameters: &P, path: &Path) -> Result<()> {
    let context = FileContext {
        operation: "save",
        path,
    };
    let format = Format::of(&context)?;
    let entries = entries(parameters, &context)?;
    let draft = Draft::begin(&context)?;
    match format {
        #[cfg(feature = "npy")]
        Format::Npz => {
            let writer = npz::create(&draft.path, &entries, &context)?;
            write_all(parameters, writer)?;
        }
        #[cfg(feature = "safetensors")]
        Format::Safetensors => {
            let writer = safetensors::SafetensorsTarget::create(&draft.path, &entries, &context)?;
            write_all(parameters, writer)?;
        }
    }
    draft.finish(&context)
}

/// Returns the arrays of a structure, in its order. If two have one name, returns an error.
#[track_caller]
fn entries<P: Parameters>(parameters: &P, context: &FileContext<'_>) -> Result<Vec<Member>> {
    let entries = members(parameters)?;
    let mut names = HashSet::new();
    for Member { name, .. } in &entries {
        if !names.insert(name) {
            let problem = "two arrays of the structure are called so: each part of it needs a name of its own";
            return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
        }
    }
    Ok(entries)
}

fn load_from<P: Parameters>(like: &P, path: &Path) -> Result<P> {
    let context = FileContext {
        operation: "load",
        path,
    };
    let format = Format::of(&context)?;
    let entries = entries(like, &context)?;
    match format {
        #[cfg(feature = "npy")]
        Format::Npz => {
            let reader = npz::open(&entries, &context)?;
            read_all(like, &entries, reader, &context)
        }
        #[cfg(feature = "safetensors")]
        Format::Safetensors => {
            let reader = safetensors::SafetensorsSource::open(&context)?;
            read_all(like, &entries, reader, &context)
        }
    }
}

#[derive(Clone, Copy)]
enum Format {
    #[cfg(feature = "npy")]
    Npz,
    #[cfg(feature = "safetensors")]
    Safetensors,
}

impl Format {
    /// Returns the format for the suffix of the file's name.
    fn of(context: &FileContext<'_>) -> Result<Self> {
        let ending = context.path.extension().unwrap_or_default();
        match ending.to_ascii_lowercase().to_str() {
            #[cfg(feature = "npy")]
            Some("npz") => Ok(Self::Npz),
            #[cfg(feature = "safetensors")]
            Some("safetensors") => Ok(Self::Safetensors),
            #[cfg(not(feature = "npy"))]
            Some("npz") => Err(context.lacks_feature("npy")),
            #[cfg(not(feature = "safetensors"))]
            Some("safetensors") => Err(context.lacks_feature("safetensors")),
            _ => {
                let problem = "the name ends neither in .safetensors nor in .npz";
                Err(context.error(ErrorKind::InvalidArgument, None, problem))
            }
        }
    }
}

/// The call and the file that an error is about.
struct FileContext<'p> {
    operation: &'static str,
    path: &'p Path,
}

impl FileContext<'_> {
    /// Returns an error about the file, or about one array in it.
    #[cold]
    fn error(
        &self,
        code: impl Into<ErrorCode>,
        name: Option<&str>,
        problem: impl Display,
    ) -> Error {
        let (operation, path) = (self.operation, self.path.display());
        let name = name.map(|name| format!(", {name:?}")).unwrap_or_default();
        Error::new(code, format!("{operation}: {path}{name}: {problem}"))
    }

    #[cold]
    fn io(&self, error: std::io::Error) -> Error {
        self.error(ErrorKind::Io, None, &error).caused_by(error)
    }

    #[cfg(not(all(feature = "npy", feature = "safetensors")))]
    #[cold]
    fn lacks_feature(&self, feature: &str) -> Error {
        let problem = format!("cachescope was built without its feature `{feature}`");
        self.error(ErrorCode::Feature, None, problem)
    }
}

/// A file to write arrays to.
trait ArrayTarget {
    fn write<T: Float>(&mut self, name: &str, array: &Array<T>) -> Result<()>;

    /// Completes the file.
    fn finish(self) -> Result<()>;
}

/// A file to read arrays from.
trait ArraySource {
    /// Returns the names of the arrays in the file. If two arrays have one name, it is listed
    /// twice.
    fn names(&self) -> Vec<String>;

    /// Reads the array of that name to the device of `like`. If its type or shape differs from
    /// `like`, returns an error before memory is requested.
    fn read<T: Float>(&mut self, name: &str, like: (&Device, &Shape)) -> Result<Array<T>>;
}

fn write_all<P: Parameters, T: ArrayTarget>(parameters: &P, target: T) -> Result<()> {
    let mut writing = StructureWriter {
        place: ParameterPath::default(),
        target,
    };
    parameters.map_arrays(&mut writing)?;
    writing.target.finish()
}

struct StructureWriter<T> {
    place: ParameterPath,
    target: T,
}

impl<W: ArrayTarget> MapArrays for StructureWriter<W> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.target.write(self.place.name(), array)?;
        Ok(array.clone())
    }

    follow_place!();
}

fn read_all<P: Parameters, S: ArraySource>(
    like: &P,
    entries: &[Member],
    source: S,
    context: &FileContext<'_>,
) -> Result<P> {
    check_names(entries, &source.names(), context)?;
    like.map_arrays(&mut StructureReader {
        place: ParameterPath::default(),
        source,
    })
}

struct StructureReader<S> {
    place: ParameterPath,
    source: S,
}

impl<S: ArraySource> MapArrays for StructureReader<S> {
    fn map<T: Float>(&mut self, like: &Array<T>) -> Result<Array<T>> {
        let like = (like.device(), like.layout().shape());
        self.source.read(self.place.name(), like)
    }

    /// Reads a state, also one that was saved in the type of its parameter.
    fn map_state<T: Float>(&mut self, like: &Array<T::Computed>) -> Result<Array<T::Computed>> {
        let like = (like.device(), like.layout().shape());
        let read = self.source.read(self.place.name(), like);
        match read {
            Err(error) if is_narrow::<T>() => {
                let narrow = self.source.read::<T>(self.place.name(), like);
                narrow.map_err(|_| error)?.cast::<T::Computed>().eval()
            }
            read => read,
        }
    }

    follow_place!();
}

/// Returns an error unless the file has each name of the structure once, and no other.
fn check_names(entries: &[Member], found: &[String], context: &FileContext<'_>) -> Result<()> {
    let expected: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let mut missing = expected.clone();
    let mut beyond = Vec::new();
    for name in found {
        if !missing.remove(name.as_str()) {
            beyond.push(name.as_str());
        }
    }
    let mut problems = Vec::new();
    if !missing.is_empty() {
        let missing = missing.into_iter().collect();
        problems.push(format!("the file lacks {}", listed(missing)));
    }
    if !beyond.is_empty() {
        let twice = beyond.iter().any(|name| expected.contains(name));
        let why = if twice { ", or has twice" } else { "" };
        let beyond = listed(beyond);
        problems.push(format!("it has {beyond}, which the structure lacks{why}"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(context.error(ErrorKind::InvalidArgument, None, problems.join("; ")))
}

/// Returns the first of some names, and the number of the others.
fn listed(names: Vec<&str>) -> String {
    let mut listed: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|name| format!("{name:?}"))
        .collect();
    if names.len() > NAMED {
        listed.push(format!("{} more", names.len() - NAMED));
    }
    listed.join(", ")
}
