//! The settings of a group's calls.

use std::time::Duration;

/// The default timeout of calls, as in PyTorch. `Group::timeout` sets another.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// The settings of calls, which must be equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) timeout: Duration,
    pub(super) checks: bool,
}
