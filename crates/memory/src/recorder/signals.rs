//! Reports at the signals that end a program, and reports at an interval.

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

/// Calls `write` on a separate thread when SIGINT or SIGTERM arrives, then ends the process as the
/// signal would. A second signal, of either kind, ends the process at once. In a forked child,
/// which lacks the thread, the first signal ends the process.
///
/// On Linux and Android, a signal that the program already handles or ignores keeps the program's
/// action. Other platforms do not report the signals that a program handles. On these platforms, a
/// handler of the program runs first, and then the signal ends the process.
///
/// # Errors
///
/// If the signals cannot be handled, or the thread cannot be started. Signals then end the process.
#[cfg(all(unix, feature = "signals"))]
pub(super) fn write_on_signals(write: fn()) -> Result<()> {
    use std::process;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::{emulate_default_handler, register};

    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    signals.retain(|&signal| !is_taken(&status, signal));
    // The signals share this flag, which is true until the thread waits. If a step fails, the
    // registered actions must stay, because an unregistered signal is ignored.
    let ends_process = Arc::new(AtomicBool::new(true));
    let registering_process = process::id();
    let handle = || -> std::io::Result<Signals> {
        for &signal in &signals {
            let ends_process = Arc::clone(&ends_process);
            let action = move || {
                let is_child = process::id() != registering_process;
                if ends_process.swap(true, Ordering::SeqCst) || is_child {
                    let _ = emulate_default_handler(signal);
                }
            };
            // SAFETY: the action is async-signal-safe: it uses an atomic, `getpid`, and a function
            // that is documented as async-signal-safe. The action does not panic.
            unsafe { register(signal, action) }?;
        }
        // This step is last, so that the thread is not notified of a signal that ends the process.
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
    })?;
    ends_process.store(false, Ordering::SeqCst);
    Ok(())
}

/// Does nothing, because the platform has no such signals or the feature `signals` is off.
#[cfg(not(all(unix, feature = "signals")))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the other implementation may fail"
)]
pub(super) fn write_on_signals(_write: fn()) -> Result<()> {
    Ok(())
}

/// Returns whether the process handles or ignores a signal, given the text of `/proc/self/status`.
/// Only Linux and Android have this file. For an empty text, returns false.
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
    use std::ffi::c_int;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::Duration;

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::low_level::exit;

    use super::{is_taken, write_on_signals};

    unsafe extern "C" {
        fn fork() -> c_int;
        fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    }

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

    fn wait() -> ! {
        std::thread::sleep(Duration::from_secs(20));
        exit(0)
    }

    fn write_slowly() {
        println!("writes");
        wait();
    }

    #[test]
    #[ignore = "run by the tests of signals, in a process of its own"]
    fn a_program_that_writes_slowly() {
        write_on_signals(write_slowly).unwrap();
        println!("waits");
        wait();
    }

    #[test]
    #[ignore = "run by the tests of signals, in a process of its own"]
    fn a_program_without_files_for_signals() {
        assert!(write_on_signals(write_slowly).is_err());
        println!("waits");
        wait();
    }

    #[test]
    #[ignore = "run by the tests of signals, in a process of its own"]
    fn a_program_that_forks() {
        write_on_signals(write_slowly).unwrap();
        // SAFETY: the child only sleeps and exits, which is async-signal-safe.
        let child = unsafe { fork() };
        if child == 0 {
            wait();
        }
        send("-TERM", child);
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status & 0x7f, SIGTERM, "the number of the signal");
    }

    /// Starts an ignored test in a process that may have at most `most_files` open files. Returns
    /// when the test waits.
    fn waiting(test: &str, most_files: u32) -> (Child, BufReader<ChildStdout>) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {most_files}; exec \"$@\""), "sh"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("recorder::signals::tests::{test}")]);
        command.args(["--ignored", "--nocapture"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        read_until("waits", &mut output);
        (child, output)
    }

    fn read_until(text: &str, output: &mut BufReader<ChildStdout>) {
        let mut lines = output.lines();
        assert!(lines.any(|line| line.unwrap().contains(text)), "no {text}");
    }

    fn send(signal: &str, process: impl ToString) {
        let kill = Command::new("kill")
            .args([signal, &process.to_string()])
            .status();
        assert!(kill.unwrap().success());
    }

    #[test]
    fn a_second_signal_of_the_other_kind_ends_the_program_at_once() {
        // Shells let jobs in the background ignore SIGINT.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if is_taken(&status, SIGINT) {
            return;
        }
        let (mut child, mut output) = waiting("a_program_that_writes_slowly", 64);
        send("-INT", child.id());
        read_until("writes", &mut output);
        send("-TERM", child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn signals_end_a_program_that_cannot_handle_them() {
        // The process may open one file beside the standard streams, and signals need two files.
        let (mut child, _output) = waiting("a_program_without_files_for_signals", 4);
        send("-TERM", child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn a_signal_ends_a_forked_child() {
        let test = "recorder::signals::tests::a_program_that_forks";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let run = command.args(["--exact", test, "--ignored"]).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{run:?}");
    }
}
