//! Ends a communicator whose calls do not end: NCCL waits for a rank that never comes for ever.

use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use crate::collective::queue::Queue;
use crate::context::Device;
use crate::device::Event;
use crate::device::cuda::Communicator;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// A thread that looks whether calls end. It ends when this drops, and the calls have.
#[derive(Debug)]
pub(super) struct Watch {
    expected: Queue<Expected>,
    device: Device,
}

/// A call that a stream was given.
#[derive(Debug)]
struct Expected {
    operation: &'static str,
    /// Before it on its stream, and after it.
    events: [Event; 2],
    timeout: Duration,
    /// Alive as long as it is looked at.
    device: Device,
    communicator: Arc<Communicator>,
}

/// How long the thread sleeps between two looks: at first little, since most calls end soon.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

impl Watch {
    #[track_caller]
    pub(super) fn start(device: &Device, (rank, key): (usize, u64)) -> Result<Self> {
        let expected = Queue::new();
        let calls: Queue<Expected> = expected.share();
        let thread = Builder::new().name(format!("cachescope-watch-{rank}"));
        let of_thread = device.clone();
        let run = move || {
            while let Some(call) = calls.pop() {
                call.await_end(key);
            }
            // Now that nothing uses what is registered, and nobody has the group.
            of_thread.memory().detach_all(key);
            if let Some(gpu) = of_thread.backend().cuda() {
                gpu.forget_communication(key);
            }
        };
        thread.spawn(run).map_err(|error| {
            let text = format!("the thread that watches rank {rank} was not started: {error}");
            Error::new(ErrorKind::Driver, text).caused_by(error)
        })?;
        Ok(Self {
            expected,
            device: device.clone(),
        })
    }

    /// Looks after a call that was just given to the stream of the event `ready`, which came before
    /// it.
    #[track_caller]
    pub(super) fn expect(
        &self,
        (operation, ready): (&'static str, Event),
        communicator: &Arc<Communicator>,
        timeout: Duration,
    ) -> Result<()> {
        let end = self.device.backend().record_event(ready.stream)?;
        let expected = Expected {
            operation,
            events: [ready, end],
            timeout,
            device: self.device.clone(),
            communicator: Arc::clone(communicator),
        };
        // The queue is open as long as this lives.
        let _ = self.expected.push(expected);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.expected.close();
    }
}

impl Expected {
    /// Returns when the call has ended, by itself or, too late, by an abort. Who waits for the
    /// device then hears why.
    fn await_end(&self, key: u64) {
        let mut pause = PAUSES[0];
        let backend = self.device.backend();
        // Since it might have begun.
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
                break format!("not all ranks have come within {:?}", self.timeout);
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
