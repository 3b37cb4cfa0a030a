//! Without the feature `cuda`.

use std::convert::Infallible;

use crate::error::{Error, ErrorKind, Result};

/// Why this build cannot run on the CUDA device `ordinal`.
pub(crate) fn probe(ordinal: usize) -> Result<Infallible> {
    let text = format!("cuda:{ordinal}: built without the feature `cuda`");
    Err(Error::new(ErrorKind::Unsupported, text))
}
