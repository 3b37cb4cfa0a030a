//! Callbacks at the end of the process: statics are not dropped.

use std::ffi::c_int;

unsafe extern "C" {
    /// The C library's function, which every platform of `std` has.
    safe fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Calls `callback` as the process ends by returning from `main` or by `exit`. If the C library has
/// no space to register `callback`, the callback is not called.
pub fn at_exit(callback: extern "C" fn()) {
    let _ = atexit(callback);
}
