//! The stub without the feature `mpi`: there is no world of MPI.

use crate::collective::carrier::HostCarrier;
use crate::error::{Error, ErrorCode, Result};

#[track_caller]
pub(super) fn world(_takes_device_memory: Option<bool>) -> Result<HostCarrier> {
    let text =
        r#"Group::mpi: built without the feature `mpi`: add `features = ["mpi"]` in Cargo.toml"#;
    Err(Error::new(ErrorCode::Feature, text))
}
