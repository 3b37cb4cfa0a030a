//! Errors about ranks that do not take part.

use std::time::Duration;

use crate::error::{Error, ErrorCode};

/// The time that a failed rank has to report why it failed. A failed rank drops its groups before
/// this report. Therefore a dropped group counts as an absence only after this time. The constant
/// is also the interval between searches for a deadlock.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// The reason reported for a rank that has dropped the group.
pub(super) const DROPPED: &str = "it has dropped the group";

#[cold]
pub(super) fn rank_gone(operation: &str, rank: usize, reason: &str) -> Error {
    let text = format!("{operation}: rank {rank} no longer participates: {reason}");
    Error::new(ErrorCode::Gone, text)
}

/// Returns the error of each call that this rank issues after it has left.
#[cold]
pub(super) fn has_left(reason: &str) -> Error {
    let text = format!("this rank no longer participates: {reason}");
    Error::new(ErrorCode::Gone, text)
}

#[cold]
pub(super) fn deadlocked(operation: &str, own: usize, other: usize) -> Error {
    let text = format!(
        "{operation}: deadlock: ranks {own} and {other} wait for each other in different calls: \
         use groups that share ranks in one order on all ranks"
    );
    Error::new(ErrorCode::Deadlock, text)
}

#[cold]
pub(super) fn timed_out(operation: &str, timeout: Duration, missing: &[usize]) -> Error {
    let ranks: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let ranks = ranks.join(", ");
    let who = match missing {
        [_] => format!("rank {ranks} has"),
        _ => format!("ranks {ranks} have"),
    };
    let text = format!("{operation}: {who} not made the matching call within {timeout:?}");
    Error::new(ErrorCode::Late, text)
}
