//! The opaque error of the crate.

mod asking;
mod report;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

pub use asking::{Asking, asked_at};
pub(crate) use report::{CacheUse, LineUse, OomReport};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device, or its limit, is exhausted after everything idle was given back.
    OutOfMemory,
    /// A rank above 8, a size that overflows, or a reshape to another length.
    InvalidShape,
    /// Shapes that do not broadcast or multiply.
    ShapeMismatch,
    /// Operands on different devices.
    DeviceMismatch,
    /// An axis, count, index or setting out of range.
    InvalidArgument,
    /// Something that this device or build does not support.
    Unsupported,
    /// The device's driver failed or is missing.
    Driver,
    /// A file could not be read or written.
    Io,
    /// Another rank of a group ended, failed, or did not come in time.
    Communication,
}

/// An error of this crate; `Display` writes the whole report.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, ErrorKind};
///
/// let error = Buffer::new(&Device::host(), usize::MAX).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidShape);
/// ```
#[derive(Clone)]
pub struct Error {
    // Shared, so that a lazy expression with an error can be cloned.
    inner: Arc<ErrorInner>,
    location: Option<&'static Location<'static>>,
}

enum ErrorInner {
    Message { kind: ErrorKind, text: String },
    OutOfMemory(OomReport),
}

impl Error {
    /// An error at the line that called this crate, if every function in between is `#[track_caller]`.
    #[track_caller]
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            inner: Arc::new(ErrorInner::Message { kind, text }),
            location: outside(Location::caller()),
        }
    }

    pub(crate) fn out_of_memory(report: OomReport) -> Self {
        Self {
            inner: Arc::new(ErrorInner::OutOfMemory(report)),
            location: None,
        }
    }

    /// Adds the location of the caller, unless the error has one.
    #[cold]
    #[doc(hidden)]
    pub fn at(mut self, location: &'static Location<'static>) -> Self {
        self.location = self.location.or(outside(location));
        self
    }

    /// Prefixes the name of the operation; an out-of-memory report is unchanged.
    #[cold]
    #[doc(hidden)]
    pub fn of(self, operation: &str) -> Self {
        match &*self.inner {
            ErrorInner::Message { kind, text } => {
                self.with_text(*kind, format!("{operation}: {text}"))
            }
            ErrorInner::OutOfMemory(_) => self,
        }
    }

    /// Appends the number of errors that were not reported; an out-of-memory report is unchanged.
    pub(crate) fn with_omitted(self, count: u64) -> Self {
        match &*self.inner {
            ErrorInner::Message { kind, text } if count > 0 => {
                let errors = if count == 1 { "error" } else { "errors" };
                self.with_text(*kind, format!("{text} (and {count} more {errors} since)"))
            }
            _ => self,
        }
    }

    fn with_text(&self, kind: ErrorKind, text: String) -> Self {
        Self {
            inner: Arc::new(ErrorInner::Message { kind, text }),
            location: self.location,
        }
    }

    /// The line of the program whose call failed, which `Display` appends to the message. For a deferred error
    /// it is the call that caused it. `None` where the line is not known.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// let error = Buffer::new(&Device::host(), usize::MAX).unwrap_err();
    /// let location = error.location().unwrap();
    /// assert_eq!((location.file(), location.line()), (file!(), line!() - 2));
    /// ```
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match &*self.inner {
            ErrorInner::Message { kind, .. } => *kind,
            ErrorInner::OutOfMemory(_) => ErrorKind::OutOfMemory,
        }
    }

    /// Whether the device was exhausted.
    pub fn is_out_of_memory(&self) -> bool {
        self.kind() == ErrorKind::OutOfMemory
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.location.map(|location| format!(" at {location}"));
        let place = place.as_deref().unwrap_or_default();
        match &*self.inner {
            ErrorInner::Message { text, .. } => write!(f, "{text}{place}"),
            ErrorInner::OutOfMemory(report) => report.write(f, place),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {}

/// Adds the caller's location to errors of layers that do not know it.
pub trait AtCaller {
    /// Adds the caller's location to an error that has none.
    fn at_caller(self) -> Self;
}

impl<T> AtCaller for Result<T> {
    #[inline]
    #[track_caller]
    fn at_caller(self) -> Self {
        let location = Location::caller();
        self.map_err(|error| error.at(location))
    }
}

/// Returns `location`, unless it is in this crate, in the crate `cachescope`, or in the standard library, which calls
/// `from_str` and `try_from`.
pub(crate) fn outside(location: &'static Location<'static>) -> Option<&'static Location<'static>> {
    let file = location.file();
    let is_std = file.starts_with("/rustc/") || file.contains("/rustlib/src/rust/");
    let own = file!().trim_end_matches("error.rs");
    let is_own = file.starts_with(own) || file.starts_with(&sources_of_arrays(own));
    (!is_std && !is_own).then_some(location)
}

/// Returns the folder of the sources of `cachescope`, where those of this crate are in the folder `own`: above it in the
/// repository, and beside it among packages.
pub(crate) fn sources_of_arrays(own: &str) -> String {
    let package = own.trim_end_matches(['/', '\\']);
    let package = package.strip_suffix("src").unwrap_or(package);
    let slash = &own[own.len() - 1..];
    match package.strip_suffix(&format!("memory{slash}")) {
        Some(root) if root.is_empty() || root.ends_with(slash) => format!("{root}src{slash}"),
        _ => own.replace("cachescope-memory", "cachescope"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_arrays_are_above_or_beside_these() {
        for (own, expected) in [
            ("memory/src/", "src/"),
            (
                "/home/me/cachescope/memory/src/",
                "/home/me/cachescope/src/",
            ),
            ("C:\\work\\memory\\src\\", "C:\\work\\src\\"),
            (
                "/registry/cachescope-memory-0.1.0/src/",
                "/registry/cachescope-0.1.0/src/",
            ),
            ("/vendor/cachescope-memory/src/", "/vendor/cachescope/src/"),
        ] {
            assert_eq!(sources_of_arrays(own), expected);
        }
        let own = file!().trim_end_matches("error.rs");
        assert!(own.ends_with(['/', '\\']), "{own}");
    }

    #[test]
    fn lines_of_this_crate_are_not_reported() {
        assert_eq!(outside(Location::caller()), None);
    }
}
