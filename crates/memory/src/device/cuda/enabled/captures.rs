//! The captures in progress in a context, and the library calls that would invalidate the captures.
//!
//! A wait for a whole context invalidates each capture in the context. The capture mode does not
//! matter, nor does the thread or device that captures. cuBLAS and cuSOLVER wait for the context
//! when a handle is destroyed. cuFFT waits when it makes a plan for a length with a prime factor
//! above 127. So this module makes captures and these calls exclude each other.
//!
//! `StreamTable::begin_capture` publishes a capture, and then waits for the earlier work of the
//! stream. So no other thread submits more work during the wait. Another thread may still record an
//! event behind the earlier work. To record it, the thread locks the stream's `progress`. The wait
//! does not hold this lock, because the earlier work may be an exchange that needs the other
//! thread.

#![cfg_attr(
    not(feature = "fft"),
    allow(dead_code, reason = "only plans of cuFFT wait for captures")
)]

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorCode, Result};
use crate::sync::plain::{Condvar, Mutex, MutexGuard};
use crate::sync::thread_token;

/// The maximum wait for captures to end. A capture lasts milliseconds, unless its body waits for
/// the waiting thread.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A gate between captures and calls that wait for the context. It admits several captures, or one
/// call.
#[derive(Debug, Default)]
pub(super) struct CaptureGate {
    captures: Mutex<Captures>,
    all_ended: Condvar,
}

#[derive(Default)]
pub(super) struct Captures {
    /// The tokens of the capturing threads.
    threads: Vec<u64>,
    /// The calls to make when the last capture has ended.
    postponed: Vec<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for Captures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Captures")
            .field("threads", &self.threads)
            .field("postponed", &self.postponed.len())
            .finish()
    }
}

/// Proof that no capture is in progress. While the guard lives, no capture begins.
pub(super) type NoCapture<'a> = MutexGuard<'a, Captures>;

impl CaptureGate {
    /// Records that the calling thread is about to begin a capture.
    pub(super) fn begin(&self) {
        self.captures.lock().threads.push(thread_token());
    }

    /// Records that the calling thread has ended its capture. The end of the last capture makes the
    /// postponed calls.
    pub(super) fn end(&self) {
        let mut captures = self.captures.lock();
        let own = captures
            .threads
            .iter()
            .position(|&token| token == thread_token());
        own.map(|own| captures.threads.swap_remove(own));
        if captures.threads.is_empty() {
            captures.postponed.drain(..).for_each(|call| call());
            self.all_ended.notify_all();
        }
    }

    /// Makes a call that waits for the context. If a capture is in progress, postpones the call
    /// until the last capture has ended.
    pub(super) fn make_or_postpone(&self, call: impl FnOnce() + Send + 'static) {
        let mut captures = self.captures.lock();
        match captures.threads.is_empty() {
            true => call(),
            false => captures.postponed.push(Box::new(call)),
        }
    }

    /// Waits until no capture is in progress. No capture begins until the guard drops.
    ///
    /// # Errors
    ///
    /// If the calling thread captures, or if other threads capture for ten seconds without a pause.
    pub(super) fn wait_for_captures(&self, what: &str) -> Result<NoCapture<'_>> {
        let begun = Instant::now();
        let mut captures = self.captures.lock();
        while !captures.threads.is_empty() {
            if captures.threads.contains(&thread_token()) {
                let why = "cannot be captured: run the work once before its capture";
                return Err(refused(what, why));
            }
            let left = LONGEST_WAIT.checked_sub(begun.elapsed());
            let left =
                left.ok_or_else(|| refused(what, "waited 10 s for the captures of other threads"))?;
            captures = self.all_ended.wait_timeout(&self.captures, captures, left);
        }
        Ok(captures)
    }
}

#[cold]
fn refused(what: &str, why: &str) -> Error {
    Error::new(ErrorCode::Capture, format!("{what} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::plain::{AtomicUsize, Ordering};

    #[test]
    fn calls_are_made_at_once_or_after_the_last_capture() {
        let gate = CaptureGate::default();
        let made = Arc::new(AtomicUsize::new(0));
        let call = || {
            let made = Arc::clone(&made);
            gate.make_or_postpone(move || _ = made.fetch_add(1, Ordering::Relaxed));
        };
        let assert_made = |count| assert_eq!(made.load(Ordering::Relaxed), count);
        call();
        assert_made(1);
        gate.begin();
        call();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.begin();
                call();
                gate.end();
                assert_made(1);
            });
        });
        gate.end();
        assert_made(3);
        call();
        assert_made(4);
    }

    #[test]
    fn a_wait_ends_with_the_last_capture() {
        let gate = CaptureGate::default();
        gate.begin();
        let own = gate.wait_for_captures("a plan").map(drop).unwrap_err();
        assert!(
            own.to_string().contains("a plan cannot be captured"),
            "{own}"
        );
        let is_ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _none = gate.wait_for_captures("a plan").unwrap();
                assert_eq!(is_ended.load(Ordering::SeqCst), 1);
            });
            std::thread::sleep(Duration::from_millis(20));
            is_ended.store(1, Ordering::SeqCst);
            gate.end();
        });
    }
}
