//! A watchdog that aborts a communicator if a call does not end. NCCL itself has no timeout for a
//! rank that never arrives.

use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use crate::collective::channel::Queue;
use crate::collective::worker::not_started;
use crate::context::Device;
use crate::device::Event;
use crate::device::cuda::Communicator;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// A handle of the thread that checks whether calls end. The thread ends when the `Watch` has
/// dropped and all calls have ended.
#[derive(Debug)]
pub(super) struct Watch {
    expected: Queue<WatchedCall>,
    device: Device,
}

/// A call that was enqueued on a stream.
#[derive(Debug)]
struct WatchedCall {
    operation: &'static str,
    /// The events before and after the call on its stream.
    events: [Event; 2],
    timeout: Duration,
    /// A handle that keeps the device alive while the thread queries its events.
    device: Device,
    communicator: Arc<Communicator>,
}

/// The first and the longest pause between two checks. Most calls end soon.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

impl Watch {
    #[track_caller]
    pub(super) fn start(device: &Device, (rank, key): (usize, u64)) -> Result<Self> {
        let expected = Queue::new();
        let calls: Queue<WatchedCall> = expected.share();
        let thread = Builder::new().name(format!("cachescope-watch-{rank}"));
        let of_thread = device.clone();
        let run = move || {
            while let Some(call) = calls.pop() {
                call.await_end(key);
            }
            // No call uses the registered memory now, and no handle of the group exists. Therefore
            // the registrations can be released.
            of_thread.memory().detach_all(key);
            if let Some(gpu) = of_thread.backend().cuda() {
                gpu.forget_communication(key);
            }
        };
        let thread = thread.spawn(run);
        let name = || format!("the thread that watches rank {rank}");
        thread.map_err(|error| not_started(&name(), error))?;
        Ok(Self {
            expected,
            device: device.clone(),
        })
    }

    /// Watches a call that was just enqueued. `ready` is the event before the call on its stream.
    #[track_caller]
    pub(super) fn expect(
        &self,
        (operation, ready): (&'static str, Event),
        communicator: &Arc<Communicator>,
        timeout: Duration,
    ) -> Result<()> {
        let end = self.device.backend().record_event(ready.stream)?;
        let expected = WatchedCall {
            operation,
            events: [ready, end],
            timeout,
            device: self.device.clone(),
            communicator: Arc::clone(communicator),
        };
        // The push succeeds, because the queue is open while `self` lives.
        let _ = self.expected.push(expected);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.expected.close();
    }
}

impl WatchedCall {
    /// Waits until the call ends, and aborts the communicator after the timeout. After an abort,
    /// threads that wait for the device receive the reason.
    fn await_end(&self, key: u64) {
        let mut pause = PAUSES[0];
        let backend = self.device.backend();
        // The time at which the call became ready to run.
        let mut ready: Option<Instant> = None;
        let problem = loop {
            match backend.query_event(&self.events[1]) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => break error.to_string(),
            }
            if let Err(error) = self.communicator.async_error() {
                break error.to_string();
            }
            if ready.is_none() && backend.query_event(&self.events[0]).unwrap_or(true) {
                ready = Some(Instant::now());
            }
            if ready.is_some_and(|ready| ready.elapsed() > self.timeout) {
                break format!(
                    "not all ranks have made the matching call within {:?}",
                    self.timeout
                );
            }
            sleep(pause);
            pause = (pause * 2).min(PAUSES[1]);
        };
        let text = format!("{}: {}: {problem}", self.device, self.operation);
        if let Some(gpu) = self.device.backend().cuda() {
            gpu.fail_communication(key, Error::new(ErrorKind::Communication, text));
        }
        self.communicator.abort();
    }
}
