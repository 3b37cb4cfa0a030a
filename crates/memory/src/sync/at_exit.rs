//! Callbacks at the end of the process, because statics are not dropped.

use std::ffi::c_int;

unsafe extern "C" {
    /// The C library's `atexit`, which every platform of `std` has.
    safe fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Registers `callback`. It is called when the process ends by a return from `main` or by `exit`.
/// If the C library has no space to register `callback`, it is not called.
pub fn at_exit(callback: extern "C" fn()) {
    let _ = atexit(callback);
}
