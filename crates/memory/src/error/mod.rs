//! The opaque error of the crate.

mod call_site;
mod code;
mod report;

use std::fmt;
use std::panic::{Location, RefUnwindSafe};
use std::sync::Arc;

pub use call_site::{CallSiteOverride, reported_call_site};
pub use code::ErrorCode;
pub use report::{CacheUse, LineUse, OutOfMemoryReport};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An exhausted device or limit, after all idle memory was released.
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
    /// A failed or missing driver of the device.
    Driver,
    /// A file that could not be read or written.
    Io,
    /// A rank of the group that ended, failed, or did not arrive in time.
    Communication,
    /// A thread of this crate that could not be started, or ended early.
    Thread,
    /// A panic in a function that this crate called, or that ran on a thread of this crate.
    Panic,
}

/// An error of this crate. `Display` writes the whole report, and the [`code`](Self::code) at its
/// end.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, ErrorKind};
///
/// let error = Buffer::new(&Device::host(), usize::MAX).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidShape);
/// assert_eq!(error.code(), "CS0202");
/// assert!(error.to_string().ends_with(" [CS0202]"));
/// ```
#[derive(Clone)]
pub struct Error {
    // The content, shared so that a lazy expression with an error can be cloned.
    inner: Arc<ErrorInner>,
    location: Option<&'static Location<'static>>,
}

#[derive(Clone)]
enum ErrorInner {
    Message {
        code: ErrorCode,
        text: String,
        source: Option<Cause>,
    },
    OutOfMemory(OutOfMemoryReport),
}

/// The error of another library that caused an error of this crate. The cause is shared, because a
/// change of the text may copy the error.
type Cause = Arc<dyn std::error::Error + Send + Sync>;

// An error does not change after its creation, so a panic cannot leave it half changed.
impl RefUnwindSafe for ErrorInner {}

impl Error {
    /// Returns an error at the line that called this crate, if every function in between is
    /// `#[track_caller]`. An [`ErrorKind`] converts to its general code.
    #[track_caller]
    #[doc(hidden)]
    pub fn new(code: impl Into<ErrorCode>, text: impl Into<String>) -> Self {
        let inner = ErrorInner::Message {
            code: code.into(),
            text: text.into(),
            source: None,
        };
        Self {
            inner: Arc::new(inner),
            location: outside(Location::caller()),
        }
    }

    /// Adds the error of another library that caused this error.
    #[cold]
    #[doc(hidden)]
    pub fn caused_by(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.change(|_, source| *source = Some(Arc::new(cause)))
    }

    pub(crate) fn out_of_memory(report: OutOfMemoryReport) -> Self {
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

    /// Prefixes the message with the name of the operation. An out-of-memory report is unchanged.
    #[cold]
    #[doc(hidden)]
    pub fn of(self, operation: &str) -> Self {
        self.change(|text, _| *text = format!("{operation}: {text}"))
    }

    /// Appends the number of later errors, which were not reported, to the message. An
    /// out-of-memory report is unchanged.
    pub(crate) fn with_omitted(self, count: u64) -> Self {
        if count == 0 {
            return self;
        }
        let errors = if count == 1 { "error" } else { "errors" };
        self.change(|text, _| *text = format!("{text} (and {count} more {errors} since)"))
    }

    /// Changes the text and the cause of a message. An out-of-memory report is unchanged.
    fn change(mut self, change: impl FnOnce(&mut String, &mut Option<Cause>)) -> Self {
        // A shared report is not copied, because memory has run out.
        if matches!(*self.inner, ErrorInner::Message { .. })
            && let ErrorInner::Message { text, source, .. } = Arc::make_mut(&mut self.inner)
        {
            change(text, source);
        }
        self
    }

    /// Returns the line of the program whose call failed. `Display` appends the line to the
    /// message. A deferred error has the line of the call that caused the error. Returns `None` if
    /// the line is not known.
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

    /// Returns the kind of the error.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{ErrorKind, Policy};
    ///
    /// let error = "lru".parse::<Policy>().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.class().kind()
    }

    /// Returns the stable code of the error: `CS` and four digits. `docs/errors.md` has a heading
    /// for each code, with the cause and the remedy. `Display` writes the code at the end of the
    /// message.
    ///
    /// The first two digits name the kind. A code keeps its meaning in all versions, while
    /// the text of a message may change.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// let error = "lru".parse::<cachescope::Policy>().unwrap_err();
    /// assert_eq!(error.code(), "CS0503");
    /// ```
    pub fn code(&self) -> &'static str {
        self.class().text()
    }

    /// Returns the class of the error, to create another error of this class.
    #[doc(hidden)]
    pub fn class(&self) -> ErrorCode {
        match &*self.inner {
            ErrorInner::Message { code, .. } => *code,
            ErrorInner::OutOfMemory(_) => ErrorCode::DeviceMemory,
        }
    }

    /// Returns whether memory was exhausted.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
    /// let error = Buffer::new(&Device::host_with(config)?, 4 << 20).unwrap_err();
    /// assert!(error.is_out_of_memory());
    /// assert!(!Buffer::new(&Device::host(), usize::MAX).unwrap_err().is_out_of_memory());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn is_out_of_memory(&self) -> bool {
        self.kind() == ErrorKind::OutOfMemory
    }

    /// Returns the out-of-memory report of an exhausted device, as data. `Display` of the error
    /// writes the report as text.
    ///
    /// Returns `None` for every other error, even if the host has no memory for a computation (code
    /// `CS0102`).
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// let error = Buffer::new(&device, 4 << 20).unwrap_err();
    /// let report = error.out_of_memory_report().expect("the device is exhausted");
    /// assert_eq!((report.requested_bytes, report.limit_bytes), (4 << 20, Some(1 << 20)));
    /// assert!(error.to_string().contains(&report.remedy()));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn out_of_memory_report(&self) -> Option<&OutOfMemoryReport> {
        match &*self.inner {
            ErrorInner::OutOfMemory(report) => Some(report),
            ErrorInner::Message { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.location.map(|location| format!(" at {location}"));
        let place = place.as_deref().unwrap_or_default();
        match &*self.inner {
            ErrorInner::Message { text, .. } => write!(f, "{text}{place}")?,
            ErrorInner::OutOfMemory(report) => report.write(f, place)?,
        }
        write!(f, " [{}]", self.code())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {
    /// Returns the error of the operating system, the driver or a library that caused this error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.inner {
            ErrorInner::Message { source, .. } => {
                let source = source.as_deref()?;
                Some(source)
            }
            ErrorInner::OutOfMemory(_) => None,
        }
    }
}

/// A trait that adds the caller's location to errors of layers that do not record it.
pub trait AtCaller {
    /// Adds the caller's location to an error that has no location.
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

/// Returns `location`. For a location in this crate, in a crate that builds on it, or in the
/// standard library, returns `None`. `str::parse` and `try_into` call this crate from the standard
/// library.
pub(crate) fn outside(location: &'static Location<'static>) -> Option<&'static Location<'static>> {
    let file = location.file();
    let is_std = file.starts_with("/rustc/") || file.contains("/rustlib/src/rust/");
    let own = file!().trim_end_matches("error/mod.rs");
    let is_own = file.starts_with(own) || is_above(file, own);
    (!is_std && !is_own).then_some(location)
}

/// Returns true if `file` is in the sources of `cachescope` or `cachescope-tools`. These two crates
/// build on this crate. `own` is the source folder of this crate, `crates/memory/src` in the
/// repository. In the repository, the source folders of the two crates are `src` and
/// `crates/tools/src`. Outside the repository, the packages of the two crates are beside the
/// package of this crate.
pub(crate) fn is_above(file: &str, own: &str) -> bool {
    // This function must not allocate, because each step of a backward pass calls it.
    let slash = &own[own.len() - 1..];
    let is_in = |folder: &[&str]| {
        let mut parts = folder.iter();
        parts
            .try_fold(file, |rest, part| rest.strip_prefix(part))
            .is_some()
    };
    let root = own
        .strip_suffix(slash)
        .and_then(|own| own.strip_suffix("src"));
    let root = root.and_then(|root| root.strip_suffix(slash)?.strip_suffix("memory"));
    let root = root.and_then(|root| root.strip_suffix(slash)?.strip_suffix("crates"));
    if let Some(root) = root.filter(|root| root.is_empty() || root.ends_with(slash)) {
        return is_in(&[root, "src", slash])
            || is_in(&[root, "crates", slash, "tools", slash, "src", slash]);
    }
    let packages = own.rsplit_once("cachescope-memory");
    packages.is_some_and(|(before, after)| {
        ["cachescope", "cachescope-tools"]
            .into_iter()
            .any(|name| is_in(&[before, name, after]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_other_crates_are_near_these() {
        for (own, arrays, tools) in [
            ("crates/memory/src/", "src/", "crates/tools/src/"),
            (
                "/home/me/cachescope/crates/memory/src/",
                "/home/me/cachescope/src/",
                "/home/me/cachescope/crates/tools/src/",
            ),
            (
                "C:\\work\\crates\\memory\\src\\",
                "C:\\work\\src\\",
                "C:\\work\\crates\\tools\\src\\",
            ),
            (
                "/registry/cachescope-memory-0.1.0/src/",
                "/registry/cachescope-0.1.0/src/",
                "/registry/cachescope-tools-0.1.0/src/",
            ),
            (
                "/vendor/cachescope-memory/src/",
                "/vendor/cachescope/src/",
                "/vendor/cachescope-tools/src/",
            ),
        ] {
            for above in [arrays, tools] {
                assert!(is_above(&format!("{above}lib.rs"), own), "{above}");
            }
            for other in [own, "tests/", "/home/me/src/", "C:\\work\\tests\\"] {
                assert!(
                    !is_above(&format!("{other}lib.rs"), own),
                    "{other} by {own}"
                );
            }
        }
        let own = file!().trim_end_matches("error/mod.rs");
        assert!(own.ends_with(['/', '\\']), "{own}");
    }

    #[test]
    fn a_message_ends_with_its_code_once() {
        let error = Error::new(ErrorCode::Axis, "axis 3 is out of range");
        assert_eq!(error.to_string(), "axis 3 is out of range [CS0501]");
        assert_eq!(
            (error.code(), error.kind()),
            ("CS0501", ErrorKind::InvalidArgument)
        );
        let error = error.of("sum").with_omitted(2);
        let expected = "sum: axis 3 is out of range (and 2 more errors since) [CS0501]";
        assert_eq!(error.to_string(), expected);
        assert_eq!(format!("{error:?}"), format!("InvalidArgument: {expected}"));
        assert_eq!(Error::new(ErrorKind::Io, "").code(), "CS0800");
    }

    #[test]
    fn the_cause_stays_with_an_error_that_gets_another_text() {
        use std::error::Error as _;
        use std::io;

        let cause = io::Error::from(io::ErrorKind::NotFound);
        let error = Error::new(ErrorKind::Io, format!("file: {cause}")).caused_by(cause);
        for error in [
            error.clone(),
            error.clone().of("read"),
            error.with_omitted(1),
        ] {
            let cause = error.source().and_then(|cause| cause.downcast_ref());
            assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        }
        assert!(Error::new(ErrorKind::Io, "").source().is_none());
    }

    #[test]
    fn the_text_of_an_out_of_memory_error_is_that_of_its_report() {
        let report = OutOfMemoryReport {
            device: "host".into(),
            requested_bytes: 8 << 20,
            rounded_bytes: 8 << 20,
            limit_bytes: Some(4 << 20),
            total_bytes: 1 << 30,
            ..OutOfMemoryReport::default()
        };
        let error = Error::out_of_memory(report.clone());
        assert_eq!(error.to_string(), format!("{report} [CS0101]"));
        assert!(error.to_string().contains(&report.remedy()));
        let given = error.clone().of("zeros");
        let given = given.out_of_memory_report().expect("it is kept");
        assert_eq!(given.requested_bytes, report.requested_bytes);
        assert!(error.is_out_of_memory());
        let workspace = Error::new(ErrorKind::OutOfMemory, "no workspace");
        assert!(workspace.is_out_of_memory() && workspace.out_of_memory_report().is_none());
    }

    #[test]
    fn lines_of_this_crate_are_not_reported() {
        assert_eq!(outside(Location::caller()), None);
    }
}
