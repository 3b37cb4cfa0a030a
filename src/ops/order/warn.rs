//! Warnings about valid code that may not do what was intended, in builds with debug assertions.

use std::collections::HashSet;
use std::fmt;
use std::panic::Location;

use crate::sync::plain::Mutex;
use crate::text::write_to_stderr;

/// Writes a warning about the line `location` to standard error, unless one was written already.
#[cold]
pub(crate) fn once(location: &'static Location<'static>, warning: fmt::Arguments<'_>) {
    static REPORTED: Mutex<Option<HashSet<&'static Location<'static>>>> = Mutex::new(None);
    if !cfg!(debug_assertions) {
        return;
    }
    let mut reported = REPORTED.lock();
    if reported.get_or_insert_default().insert(location) {
        let note = "shown once per line, in builds with debug assertions";
        write_to_stderr(format_args!("warning: {location}: {warning} ({note})"));
    }
}
