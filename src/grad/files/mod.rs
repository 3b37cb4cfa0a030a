//! Parameters in files, each array under its name.
//!
//! Names are as in PyTorch's `state_dict`: the names of the fields that contain the array, joined
//! by dots. Elements of a `Vec` or an array, members of a tuple, and fields without names have
//! numbers. For example, the bias of the second element of a field `layers` is `layers.1.bias`. An
//! `Option` or a `Box` adds nothing to the name of its contents. An array outside of a structure is
//! named `array`. A field marked `#[parameters(skip)]` is not written.
//!
//! Beside the parameters, files contain the [buffers](super::MapBuffers) of layers, under PyTorch's
//! names. For example, a field `norm` that is a [`BatchNorm`](super::nn::BatchNorm) has
//! `norm.running_mean`, `norm.running_var` and `norm.num_batches_tracked`.
//!
//! The suffix of a file's name determines its format:
//! - `.safetensors`, with the feature `safetensors`: the format of PyTorch, JAX and Hugging Face's
//!   libraries;
//! - `.npz`, with the default feature `npy`: the format that `np.load` reads. NumPy has no `bf16`.
//!
//! A file of another program may have names that no structure of this program has. Read such a file
//! array by array with `SafetensorsReader` or `npy::NpzReader`.
//!
//! Arrays are written and read one by one. Beside the arrays of the program, host memory holds a
//! copy of one device array, and a buffer of constant size.
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
mod structure;

use std::collections::HashSet;
use std::fmt::Display;
use std::panic::Location;
use std::path::Path;

use draft::Draft;
#[cfg(feature = "safetensors")]
pub use safetensors::SafetensorsReader;
use structure::{Structure, read_all, write_all};

use super::parameters::Parameters;
use super::place::Member;
use crate::array::{AnyArray, DType, Shape};
use crate::context::Device;
use crate::error::{AtCaller, Error, ErrorCode, ErrorKind, Result};

/// Writes the arrays of `parameters`, and the buffers of its layers, to the file at `path`.
///
/// Arrays and buffers are first written to a draft in the folder of the file to replace. When the
/// draft is complete and on the disk, it replaces the old file. A call that fails leaves the old
/// file unchanged. The new file has the permissions of the old file. If `path` is a symbolic link,
/// the linked file is replaced, and the link is unchanged.
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
/// arrays have equal names. [`Unsupported`](ErrorKind::Unsupported) for a format whose feature this
/// build lacks, and for `bf16` in `.npz`. [`Io`](ErrorKind::Io), naming the file, if the file
/// cannot be written. [`Driver`](ErrorKind::Driver) if a device fails to deliver the elements.
#[track_caller]
pub fn save<P: Parameters>(parameters: &P, path: impl AsRef<Path>) -> Result<()> {
    save_to(parameters, path.as_ref()).at_caller()
}

/// Reads the file at `path` into a new structure with the names, shapes and types of `like`. Each
/// array is on the device of the corresponding array of `like`. The values of `like` are not read,
/// and its fields marked `#[parameters(skip)]` are cloned.
///
/// The new structure has its own buffers, so that later updates do not change `like`. A buffer of
/// floats is read from any float type. Files of earlier versions of this crate have no buffers. If
/// the file has no buffers, the buffers are copied from `like`. A build with debug assertions then
/// warns once for each calling line. A file may also lack `num_batches_tracked`, like files of old
/// versions of PyTorch.
///
/// The types and shapes in the file are compared with `like` before an array is read. Therefore
/// `load` never requests more memory than the arrays of `like` use.
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
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the arrays and the file, if the names in
/// the file and in `like` differ. [`InvalidArgument`](ErrorKind::InvalidArgument) if the type of an
/// array differs, or if the file's name has another suffix.
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the shape of an array differs.
/// [`Unsupported`](ErrorKind::Unsupported) as for [`save`]. [`Io`](ErrorKind::Io), naming the file,
/// if the file cannot be read, is damaged or is truncated. [`OutOfMemory`](ErrorKind::OutOfMemory).
#[track_caller]
pub fn load<P: Parameters>(like: &P, path: impl AsRef<Path>) -> Result<P> {
    load_from(like, path.as_ref(), Location::caller()).at_caller()
}

fn save_to<P: Parameters>(parameters: &P, path: &Path) -> Result<()> {
    let context = FileContext {
        operation: "save",
        path,
    };
    let format = Format::of(&context)?;
    let mut structure = Structure::of(parameters)?;
    check_names(&structure, &context)?;
    let draft = Draft::begin(&context)?;
    match format {
        #[cfg(feature = "npy")]
        Format::Npz => {
            let writer = npz::create(&draft.path, structure.entries(), &context)?;
            write_all(&mut structure, writer)?;
        }
        #[cfg(feature = "safetensors")]
        Format::Safetensors => {
            let entries: Vec<&Member> = structure.entries().collect();
            let writer = safetensors::SafetensorsTarget::create(&draft.path, &entries, &context)?;
            write_all(&mut structure, writer)?;
        }
    }
    draft.finish(&context)
}

/// Returns an error if two parameters or buffers of the structure have equal names.
#[track_caller]
fn check_names<P>(structure: &Structure<P>, context: &FileContext<'_>) -> Result<()> {
    let mut names = HashSet::new();
    for Member { name, .. } in structure.entries() {
        if !names.insert(name) {
            let problem = "two arrays of the structure have this name, expected a different name \
                           for each array";
            return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
        }
    }
    Ok(())
}

fn load_from<P: Parameters>(
    like: &P,
    path: &Path,
    call_site: &'static Location<'static>,
) -> Result<P> {
    let context = FileContext {
        operation: "load",
        path,
    };
    let format = Format::of(&context)?;
    let structure = Structure::of(like)?;
    check_names(&structure, &context)?;
    match format {
        #[cfg(feature = "npy")]
        Format::Npz => {
            let reader = npz::open(structure.entries(), &context)?;
            read_all(&structure, reader, (&context, call_site))
        }
        #[cfg(feature = "safetensors")]
        Format::Safetensors => {
            let reader = safetensors::SafetensorsSource::open(&context)?;
            read_all(&structure, reader, (&context, call_site))
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
                let problem = "the file name has an unknown ending, expected .safetensors or .npz";
                Err(context.error(ErrorKind::InvalidArgument, None, problem))
            }
        }
    }
}

/// The operation and the file that an error names.
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
        let problem = format!(
            r#"built without the feature `{feature}`: add `features = ["{feature}"]` in Cargo.toml"#
        );
        self.error(ErrorCode::Feature, None, problem)
    }
}

/// A file to write arrays to.
trait ArrayTarget {
    fn write(&mut self, name: &str, array: &AnyArray) -> Result<()>;

    fn finish(self) -> Result<()>;
}

/// A file to read arrays from.
trait ArraySource {
    /// Returns the names of the arrays in the file. If two arrays have one name, the name is listed
    /// twice.
    fn names(&self) -> Vec<String>;

    /// Reads the array `name` to a device. If the array's type or shape differs, returns an error
    /// before memory is requested. The error for a type is
    /// [`InvalidArgument`](ErrorKind::InvalidArgument).
    fn read(
        &mut self,
        name: &str,
        dtype: DType,
        device: &Device,
        shape: &Shape,
    ) -> Result<AnyArray>;
}
