//! Driver results as errors of this crate.

use std::ffi::{CStr, c_char, c_uint};
use std::fmt;
use std::ptr;

use cudarc::driver::sys::CUresult;

use super::driver::Driver;
use crate::error::{Error, ErrorKind};

pub(super) type DriverResult<T = ()> = std::result::Result<T, DriverError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverError {
    call: &'static str,
    code: c_uint,
}

/// Errors after which the context is unusable. For most of these errors, the driver's documentation
/// requires a new process or context. The exceptions are the two uncorrectable hardware errors.
/// After these two errors, memory contents are undefined.
const FATAL: [CUresult; 16] = [
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
];

impl DriverError {
    pub(super) fn check(call: &'static str, code: c_uint) -> DriverResult {
        if code == CUresult::CUDA_SUCCESS as c_uint {
            return Ok(());
        }
        Err(Self { call, code })
    }

    pub(super) fn is(self, code: CUresult) -> bool {
        self.code == code as c_uint
    }

    pub(super) fn is_out_of_memory(self) -> bool {
        self.is(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Returns the error of a call that failed while `attempting` an operation. The error contains
    /// the driver's name and description of the failure.
    #[cold]
    pub(super) fn error(self, attempting: impl fmt::Display) -> Error {
        let mut text = format!("{attempting}: {self}");
        if FATAL.iter().any(|&code| self.is(code)) {
            text.push_str("; the device is unusable in this process: restart it");
        }
        Error::new(ErrorKind::Driver, text).caused_by(self)
    }
}

impl std::error::Error for DriverError {}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, words) = match Driver::loaded() {
            // SAFETY: `to` is writable, and the two functions may be called at any time.
            Some(driver) => unsafe {
                (
                    text(|to| driver.get_error_name(self.code, to)),
                    text(|to| driver.get_error_string(self.code, to)),
                )
            },
            None => (None, None),
        };
        write!(f, "{} failed with ", self.call)?;
        match name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "code {}", self.code)?,
        }
        words.map_or(Ok(()), |words| write!(f, " ({words})"))
    }
}

/// Returns the text that `query` writes through a pointer, if any.
fn text(query: impl FnOnce(*mut *const c_char) -> DriverResult) -> Option<&'static str> {
    let mut pointer = ptr::null();
    query(&mut pointer).ok()?;
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the driver's texts are zero-terminated and are never freed.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// Returns `None` if the device is out of memory.
pub(super) fn unless_exhausted<T>(outcome: DriverResult<T>) -> DriverResult<Option<T>> {
    match outcome {
        Err(failure) if failure.is_out_of_memory() => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Ignores the failure of a release after the driver has shut down: all memory is then released.
pub(super) fn ignore_at_exit(outcome: DriverResult) -> DriverResult {
    match outcome {
        Err(failure) if failure.is(CUresult::CUDA_ERROR_DEINITIALIZED) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: CUresult) -> DriverError {
        DriverError::check("cuMemAlloc_v2", code as c_uint).unwrap_err()
    }

    #[test]
    fn success_is_no_failure() {
        assert_eq!(DriverError::check("cuInit", 0), Ok(()));
    }

    #[test]
    fn an_error_names_the_attempt_and_the_call() {
        let error = failure(CUresult::CUDA_ERROR_LAUNCH_FAILED).error("reserving 512 B");
        assert_eq!(error.kind(), ErrorKind::Driver);
        let text = error.to_string();
        assert!(
            text.starts_with("reserving 512 B: cuMemAlloc_v2 failed with "),
            "{text}"
        );
        assert!(text.contains("restart it"), "{text}");
        let error = failure(CUresult::CUDA_ERROR_INVALID_VALUE).error("reserving");
        assert!(!error.to_string().contains("restart it"));
    }

    #[test]
    fn only_errors_that_end_the_context_advise_a_restart() {
        // The errors are listed by code, as in logs and in the driver's documentation.
        let fatal = [
            214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911,
        ];
        for code in 1..=1000 {
            let failed = DriverError::check("cuStreamSynchronize", code).unwrap_err();
            let text = failed.error("waiting").to_string();
            let is_fatal = text.contains("restart it");
            assert_eq!(is_fatal, fatal.contains(&code), "{code}: {text}");
        }
    }

    #[test]
    fn an_unknown_code_is_reported_by_its_number() {
        let unknown = DriverError::check("cuInit", 4_000_000_000).unwrap_err();
        assert!(unknown.to_string().contains("4000000000") || Driver::loaded().is_some());
    }

    #[test]
    fn releases_are_quiet_once_the_driver_is_gone() {
        let gone = failure(CUresult::CUDA_ERROR_DEINITIALIZED);
        assert_eq!(ignore_at_exit(Err(gone)), Ok(()));
        let other = failure(CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(ignore_at_exit(Err(other)), Err(other));
    }
}
