//! Error codes, with a message per thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cachescope_memory::{Error, ErrorKind};

/// The codes of `cs_error` in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Argument = -1,
    Memory = -2,
    State = -3,
    Io = -4,
    Device = -5,
    Internal = -6,
}

#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Self::new(Code::Internal, format!("the library panicked: {text}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::InvalidShape => Code::Memory,
            ErrorKind::InvalidArgument => Code::Argument,
            ErrorKind::Io => Code::Io,
            _ => Code::Device,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the message of this thread's last failure, or an empty text.
pub(crate) fn last_error() -> *const c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(NONE.as_ptr())
}

fn note(failure: &Failure) {
    let text = failure.text.replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    // If the thread's locals are being destroyed, the message is lost.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs a call. If it fails or panics, stores the message, and returns the result of `failed`.
fn call<R>(failed: impl FnOnce(Code) -> R, body: impl FnOnce() -> Outcome<R>) -> R {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let outcome = outcome.unwrap_or_else(|payload| Err(Failure::of_panic(&*payload)));
    outcome.unwrap_or_else(|failure| {
        note(&failure);
        failed(failure.code)
    })
}

/// Runs a call that returns a pointer, or null after a failure.
pub(crate) fn pointer<T>(body: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    call(|_| ptr::null_mut(), body)
}

/// Runs a call that returns 0, or an error code after a failure.
pub(crate) fn code(body: impl FnOnce() -> Outcome<()>) -> c_int {
    call(|code| code as c_int, || body().map(|()| 0))
}
