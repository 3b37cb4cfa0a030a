//! NVIDIA's libraries that are loaded at their first use: tables of their functions, and their
//! errors.
//!
//! This crate has its own tables, because cudarc panics if a function is missing.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::c_uint;
use std::fmt::{self, Display};

use crate::error::{Error, ErrorCode, ErrorKind};

/// The description of a library: its file names, and its texts in error messages.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: &'static str,
    /// The name of the file without the prefix and suffix of the platform.
    pub(super) file: &'static str,
    /// The versions of the interface in file names, the newest first. A file without a version is
    /// preferred.
    pub(super) versions: &'static [&'static str],
    pub(super) operation: &'static str,
    pub(super) install: &'static str,
    pub(super) statuses: &'static [(c_uint, &'static str)],
    /// The statuses of operations that the device does not support. No retry or installation
    /// repairs such a failure.
    pub(super) unsupported: &'static [c_uint],
}

impl Library {
    /// Loads the library, or returns one more handle of the loaded library.
    pub(super) fn open(&self) -> Option<libloading::Library> {
        // SAFETY: loading the library runs its initialisers, which NVIDIA supports at any time.
        let open = |name: String| unsafe { libloading::Library::new(name) }.ok();
        self.file_names().find_map(open)
    }

    fn file_names(&self) -> impl Iterator<Item = String> {
        let file = self.file;
        let versioned = self.versions.iter().map(move |version| match DLL_SUFFIX {
            ".dll" => format!("{file}64_{version}.dll"),
            suffix => format!("{DLL_PREFIX}{file}{suffix}.{version}"),
        });
        [format!("{DLL_PREFIX}{file}{DLL_SUFFIX}")]
            .into_iter()
            .chain(versioned)
    }

    #[cold]
    pub(super) fn missing(&self) -> Error {
        let Self {
            name,
            operation,
            install,
            ..
        } = self;
        let text = format!("{operation} on CUDA needs {name}, which was not found: {install}");
        Error::new(ErrorCode::Library, text)
    }

    #[cold]
    pub(super) fn lacks(&self, symbol: &str) -> Error {
        let Self {
            name,
            operation,
            install,
            ..
        } = self;
        let text = format!("{operation} on CUDA: {name} has no function {symbol}: {install}");
        Error::new(ErrorCode::Library, text)
    }
}

pub(super) type LibraryResult<T = ()> = Result<T, LibraryError>;

#[derive(Clone, Copy, Debug)]
pub(super) struct LibraryError {
    pub(super) library: &'static Library,
    pub(super) call: &'static str,
    pub(super) status: c_uint,
}

impl LibraryError {
    pub(super) fn kind(self) -> ErrorKind {
        if self.library.unsupported.contains(&self.status) {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Driver
        }
    }

    /// Returns an error with this text, caused by the failed call.
    #[cold]
    pub(super) fn because(self, text: String) -> Error {
        Error::new(self.kind(), text).caused_by(self)
    }

    /// Returns the error of the operation `attempting` on `device`, caused by the failed call.
    #[cold]
    pub(super) fn of(self, device: impl Display, attempting: &str) -> Error {
        self.because(format!("{device}: {attempting}: {self}"))
    }
}

impl std::error::Error for LibraryError {}

impl Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses = self.library.statuses.iter();
        let named = statuses.clone().find(|(status, _)| *status == self.status);
        match named {
            Some((_, name)) => write!(f, "{} failed with {name}", self.call),
            None => write!(f, "{} failed with status {}", self.call, self.status),
        }
    }
}

/// Declares the functions of the library `$library` as methods of `Functions`. A row is `method =
/// symbol(arguments);` or `method = [symbol for f32, symbol for f64](arguments);`. In the second
/// form, the argument `width` of the method selects the symbol.
macro_rules! library_functions {
    ($library:ident: $($method:ident = $symbols:tt($($argument:ident: $type:ty),* $(,)?);)+) => {
        #[derive(Debug)]
        struct Functions {
            $($method: $crate::device::cuda::enabled::library::library_functions!(
                @table $symbols unsafe extern "C" fn($($type),*) -> std::ffi::c_uint
            ),)+
        }

        impl Functions {
            /// Returns the library's functions. The first call loads the library. If the library is
            /// missing, the next call searches for it again.
            fn get() -> $crate::error::Result<&'static Self> {
                static LOADED: Mutex<Option<&'static Functions>> = Mutex::new(None);
                let mut loaded = LOADED.lock();
                if let Some(functions) = *loaded {
                    return Ok(functions);
                }
                let library = $library.open().ok_or_else(|| $library.missing())?;
                let functions: &'static Self = Box::leak(Box::new(Self::look_up(&library)?));
                // The library is never unloaded, because its threads may still run.
                std::mem::forget(library);
                *loaded = Some(functions);
                Ok(functions)
            }

            fn look_up(library: &libloading::Library) -> $crate::error::Result<Self> {
                Ok(Self {
                    $($method: {
                        type Called = unsafe extern "C" fn($($type),*) -> std::ffi::c_uint;
                        let find = |symbol: &str| -> $crate::error::Result<Called> {
                            // SAFETY: the type is what the library's header declares for this name.
                            let found = unsafe { library.get::<Called>(symbol.as_bytes()) };
                            Ok(*found.map_err(|_| $library.lacks(symbol))?)
                        };
                        $crate::device::cuda::enabled::library::library_functions!(@find find $symbols)
                    },)+
                })
            }

            $($crate::device::cuda::enabled::library::library_functions! {
                @method $library $method $symbols ($($argument: $type),*)
            })+
        }
    };
    (@table $symbol:ident $called:ty) => { $called };
    (@table [$single:ident, $double:ident] $called:ty) => { [$called; 2] };
    (@find $find:ident $symbol:ident) => { $find(stringify!($symbol))? };
    (@find $find:ident [$single:ident, $double:ident]) => {
        [$find(stringify!($single))?, $find(stringify!($double))?]
    };
    (@method $library:ident $method:ident $symbol:ident ($($argument:ident: $type:ty),*)) => {
        /// # Safety
        ///
        /// The conditions of the library's documentation for the function must hold.
        #[allow(clippy::too_many_arguments, reason = "as the library's function has")]
        unsafe fn $method(&self, $($argument: $type),*) -> LibraryResult {
            // SAFETY: by this function's contract.
            match unsafe { (self.$method)($($argument),*) } {
                0 => Ok(()),
                status => Err(LibraryError { library: &$library, call: stringify!($symbol), status }),
            }
        }
    };
    (
        @method $library:ident $method:ident [$single:ident, $double:ident] ($($argument:ident: $type:ty),*)
    ) => {
        /// # Safety
        ///
        /// The conditions of the library's documentation for the function must hold.
        #[allow(clippy::too_many_arguments, reason = "as the library's function has")]
        unsafe fn $method(&self, width: usize, $($argument: $type),*) -> LibraryResult {
            // SAFETY: by this function's contract.
            match unsafe { (self.$method[width])($($argument),*) } {
                0 => Ok(()),
                status => {
                    let call = [stringify!($single), stringify!($double)][width];
                    Err(LibraryError { library: &$library, call, status })
                }
            }
        }
    };
}

pub(super) use library_functions;

#[cfg(test)]
mod tests {
    use super::*;

    static LIBRARY: Library = Library {
        name: "cuThis",
        file: "cuthis",
        versions: &["2", "1"],
        operation: "this",
        install: "install cuThis (libcuthis.so.1)",
        statuses: &[(2, "CUTHIS_ALLOC_FAILED"), (9, "CUTHIS_NOT_SUPPORTED")],
        unsupported: &[9],
    };

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_without_a_version_is_preferred_then_the_newest() {
        let names: Vec<String> = LIBRARY.file_names().collect();
        assert_eq!(names, ["libcuthis.so", "libcuthis.so.2", "libcuthis.so.1"]);
        assert!(LIBRARY.open().is_none());
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_install() {
        for (error, name) in [
            (LIBRARY.lacks("cuthisRun"), "cuthisRun"),
            (LIBRARY.missing(), "cuThis"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Driver);
            let text = error.to_string();
            assert!(
                text.contains(name) && text.contains("libcuthis.so.1"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_failure_names_the_call_and_its_status() {
        let failure = |status| LibraryError {
            library: &LIBRARY,
            call: "cuthisRun",
            status,
        };
        assert_eq!(
            failure(2).to_string(),
            "cuthisRun failed with CUTHIS_ALLOC_FAILED"
        );
        assert_eq!(failure(99).to_string(), "cuthisRun failed with status 99");
        assert_eq!(
            [2, 9, 99].map(|status| failure(status).kind()),
            [ErrorKind::Driver, ErrorKind::Unsupported, ErrorKind::Driver,]
        );
        let error = failure(2).of("cuda:0", "this");
        assert_eq!(
            error.to_string(),
            "cuda:0: this: cuthisRun failed with CUTHIS_ALLOC_FAILED [CS0700]"
        );
    }
}
