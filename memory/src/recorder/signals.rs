//! Reports of programs that a signal ends, and reports every few seconds.

use std::thread::Builder;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Calls `write` every `interval` on a thread of its own, until the process ends.
///
/// # Errors
///
/// If the thread cannot be started.
pub(super) fn write_every(interval: Duration, write: fn()) -> Result<()> {
    let run = move || {
        loop {
            std::thread::sleep(interval);
            write();
        }
    };
    start(run)
}

/// Starts a thread that lives as long as the process.
fn start(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = Builder::new().name("cachescope-profile".into()).spawn(run);
    let started = started.map_err(|error| {
        let text = format!("CACHESCOPE_PROFILE: no thread can be started: {error}");
        Error::new(ErrorKind::Thread, text).caused_by(error)
    });
    started.map(drop)
}

/// Calls `write` when SIGINT or SIGTERM arrives, on a thread of its own, and then ends the process
/// as the signal would. A second signal ends it at once. If the program handles or ignores a signal
/// already, that signal is left to it.
///
/// # Errors
///
/// If the signals cannot be handled, or the thread cannot be started.
#[cfg(all(unix, feature = "signals"))]
pub(super) fn write_on_signals(write: fn()) -> Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    signals.retain(|&signal| !is_taken(&status, signal));
    let handle = || -> std::io::Result<Signals> {
        for &signal in &signals {
            let has_arrived = Arc::new(AtomicBool::new(false));
            // In this order, so that the first signal does not end the process.
            flag::register_conditional_default(signal, Arc::clone(&has_arrived))?;
            flag::register(signal, has_arrived)?;
        }
        Signals::new(&signals)
    };
    let mut handled = handle().map_err(|error| {
        let text = format!("CACHESCOPE_PROFILE: signals cannot be handled: {error}");
        Error::new(ErrorKind::Io, text).caused_by(error)
    })?;
    start(move || {
        for signal in handled.forever() {
            write();
            let _ = emulate_default_handler(signal);
        }
    })
}

/// Does nothing: the platform has no such signals, or the feature `signals` is off.
#[cfg(not(all(unix, feature = "signals")))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the other implementation may fail"
)]
pub(super) fn write_on_signals(_write: fn()) -> Result<()> {
    Ok(())
}

/// Returns whether the process handles or ignores a signal, given the text of `/proc/self/status`.
/// On platforms without that file, no signal is known to be taken.
#[cfg(all(unix, feature = "signals"))]
fn is_taken(status: &str, signal: i32) -> bool {
    let mut lines = status.lines();
    lines.any(|line| {
        let (name, mask) = line.split_once(':').unwrap_or_default();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
        matches!(name, "SigCgt" | "SigIgn") && mask >> (signal - 1) & 1 == 1
    })
}

#[cfg(all(test, unix, feature = "signals", not(loom)))]
mod tests {
    use super::is_taken;

    #[test]
    fn signals_of_the_program_are_left_to_it() {
        let status =
            "SigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000004002\n";
        assert!(is_taken(status, 2), "handled");
        assert!(is_taken(status, 13), "ignored");
        assert!(is_taken(status, 15), "handled");
        assert!(!is_taken(status, 1));
        assert!(!is_taken("", 2));
    }
}
