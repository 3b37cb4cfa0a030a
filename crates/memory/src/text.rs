//! Sizes and names in messages. This module is below [`error`](crate::error), because `error` uses
//! it.

use std::fmt;
use std::io::{self, Write};

pub use cachescope_reports::ByteSize;

/// Writes a line to standard error in one piece, so that other threads do not write into it.
/// Ignores failures, which no caller could handle. If standard error is closed, `eprintln!` would
/// panic.
pub fn write_to_stderr(line: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Returns the next multiple of `unit`, a power of two; `None` on overflow.
#[inline]
pub(crate) const fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    debug_assert!(unit.is_power_of_two());
    let mask = unit - 1;
    match bytes.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

const MAX_NAME_CHARS: usize = 60;

/// Returns a name for a table or a message: on one line, escaped, and shortened in the middle.
pub(crate) fn display_name(name: &str) -> String {
    let printed = |character: char| -> Vec<char> {
        match character {
            '\'' | '"' => vec![character],
            _ => character.escape_debug().collect(),
        }
    };
    let begin: Vec<char> = name
        .chars()
        .take(MAX_NAME_CHARS + 1)
        .flat_map(printed)
        .collect();
    if begin.len() <= MAX_NAME_CHARS {
        return begin.into_iter().collect();
    }
    let last: Vec<char> = name.chars().rev().take(MAX_NAME_CHARS / 3).collect();
    let end: Vec<char> = last.into_iter().rev().flat_map(printed).collect();
    let tail = &end[end.len() - MAX_NAME_CHARS / 3..];
    let head = &begin[..MAX_NAME_CHARS - tail.len() - 1];
    head.iter().chain(&['…']).chain(tail).collect()
}
