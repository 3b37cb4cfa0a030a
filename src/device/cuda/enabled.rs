//! With the feature `cuda`: ask the driver, which is loaded at run time.

use std::convert::Infallible;

use cudarc::driver::sys;

use crate::error::{Error, ErrorKind, Result};

/// Why this build cannot run on the CUDA device `ordinal`.
///
/// cudarc panics where the library is absent, so that is asked first.
pub(crate) fn probe(ordinal: usize) -> Result<Infallible> {
    // SAFETY: loading the driver library runs its initialisers, which NVIDIA supports at any time.
    if !unsafe { sys::is_culib_present() } {
        let text = format!(
            "cuda:{ordinal}: no CUDA driver was found: install NVIDIA's driver (libcuda.so.1)"
        );
        return Err(Error::new(ErrorKind::Driver, text));
    }
    let text = format!("cuda:{ordinal}: this version of cachescope runs on the host device only");
    Err(Error::new(ErrorKind::Unsupported, text))
}
