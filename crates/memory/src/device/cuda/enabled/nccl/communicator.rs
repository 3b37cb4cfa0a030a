//! A communicator whose NCCL calls do not block. After a call, the status is polled until the call
//! is no longer in progress, or the timeout has passed.

use crate::device::cuda::enabled::Opaque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent_st, CUstream, CUstream_st};

use super::super::Cuda;
use super::super::context::{Context, RawHandle};
use super::super::driver::Driver;
use super::super::progress::{is_done, new_event};
use super::{CommHandle, Functions, begun, config, error};
use crate::device::cuda::enabled::headers::nccl::{NO_COLOR, UniqueId};
use crate::device::cuda::enabled::library::{LibraryError, LibraryResult};
use crate::device::cuda::nccl::{NcclCall, NcclId};
use crate::device::{Backend, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{Mutex, yield_now};

/// The number of polls before the first pause. Most calls are enqueued within these polls.
const EAGER_QUESTIONS: u64 = 64;
/// The pause between later polls.
const PAUSE: Duration = Duration::from_micros(100);

/// One rank of a communicator, on its device.
///
/// Any failed NCCL call, except a registration, aborts the communicator. Otherwise the peers of
/// this rank would wait for ever. An enqueued call might also begin after its memory was reused.
/// Every later call fails, with the reason.
///
/// A drop does not wait. If the streams have completed the calls, the drop destroys the
/// communicator. Otherwise it aborts the communicator. To wait for the peers, synchronise the
/// streams before the drop. Calls that graphs launch are not tracked.
pub struct Communicator {
    shared: Arc<SharedCommunicator>,
}

/// Memory that is registered with NCCL. The registration ends when this value drops, or when the
/// communicator ends.
pub struct Registration {
    shared: Arc<SharedCommunicator>,
    handle: RawHandle<c_void>,
}

/// The state that a communicator shares with its registrations.
///
/// Locks are taken in the order `calls`, `state`, `marks`.
struct SharedCommunicator {
    context: Arc<Context>,
    functions: &'static Functions,
    rank: usize,
    size: usize,
    /// The maximum duration of a call.
    timeout: Duration,
    /// The lock of a call, held until the call is no longer in progress. While a call is in
    /// progress, NCCL accepts no other call.
    calls: Mutex<()>,
    /// The state of the communicator. The lock is held for one NCCL function at a time, so that an
    /// abort can run between two polls.
    state: Mutex<CommunicatorState>,
    /// One event per stream, recorded after the last call on the stream.
    marks: Mutex<Vec<StreamMark>>,
}

#[derive(Clone)]
enum CommunicatorState {
    Alive(RawHandle<c_void>),
    /// A communicator without a handle, and the reason of its end.
    Ended(String),
}

#[derive(Clone, Copy)]
struct StreamMark {
    stream: RawHandle<CUstream_st>,
    event: RawHandle<CUevent_st>,
}

impl Cuda {
    /// Joins a communicator as a rank on this device. Waits at most `timeout` until all ranks have
    /// joined. Every later call has this timeout too.
    ///
    /// # Errors
    ///
    /// If NCCL is missing or fails, or if not all ranks have joined before the timeout.
    pub fn join(
        &self,
        id: &NcclId,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Communicator> {
        if self.context.is_imitated() {
            let text = "NCCL cannot run on a device without data: use Group::threads";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let (context, attempting) = (&self.context, "joining a communicator");
        let rank_name = rank_name(context, rank, size);
        let functions = Functions::get()?;
        let [number, count] = [rank, size].map(c_int::try_from);
        let (Ok(number), Ok(count)) = (number, count) else {
            let text = format!("{rank_name}: expected at most {} ranks", c_int::MAX);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        context.make_current(attempting)?;
        let id = UniqueId {
            internal: id.0.map(|byte| byte as c_char),
        };
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` and the configuration are writable, and the context is current.
        begun(unsafe { functions.init(&mut handle, count, id, number, &mut config()) })
            .map_err(|failure| error(&rank_name, attempting, failure))?;
        let made = Communicator::of(context, functions, (rank, size), timeout, handle);
        made.shared.settle(attempting)?;
        Ok(made)
    }

    /// Enqueues this rank's part of an operation on `stream`. The operation begins once all ranks
    /// have called it. A failure ends the communicator. If the stream is captured, the call becomes
    /// part of the graph instead.
    ///
    /// # Safety
    ///
    /// The addresses must point to memory of this device that is as long as the call requires. Work
    /// that is not ordered with `stream` must not write memory that the call reads. It must not use
    /// memory that the call writes.
    pub unsafe fn communicate(
        &self,
        communicator: &Communicator,
        stream: StreamId,
        call: &NcclCall,
    ) -> Result<()> {
        let (shared, attempting) = (&*communicator.shared, call.operation.name());
        if !Arc::ptr_eq(&shared.context, &self.context) {
            let text = format!("{}: {communicator:?} belongs to another device", self.id());
            return Err(Error::new(ErrorKind::DeviceMismatch, text));
        }
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        let is_captured = self.streams.capture.captures(stream);
        let _calls = shared.calls.lock();
        shared.context.make_current(attempting)?;
        shared.call(attempting, |functions, handle| {
            // SAFETY: the addresses are valid by this function's contract. Streams live as long as
            // `self`. The handle belongs to a communicator of `shared.size` ranks.
            unsafe { functions.issue((handle, shared.size), raw, call) }
        })?;
        shared.settle(attempting)?;
        if is_captured {
            return Ok(());
        }
        let mark = |driver: &'static Driver| shared.mark(driver, raw);
        let marked = shared.context.run(attempting, mark);
        marked.inspect_err(|failure| shared.end(&failure.to_string()))
    }
}

impl Communicator {
    fn of(
        context: &Arc<Context>,
        functions: &'static Functions,
        (rank, size): (usize, usize),
        timeout: Duration,
        handle: CommHandle,
    ) -> Self {
        let shared = SharedCommunicator {
            context: Arc::clone(context),
            functions,
            rank,
            size,
            timeout,
            calls: Mutex::default(),
            state: Mutex::new(CommunicatorState::Alive(RawHandle(handle))),
            marks: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Creates one communicator for the ranks of each color. The ranks of a new communicator are
    /// ordered by their keys, then by their present rank. All ranks must call `split`. A rank
    /// without a color gets `None`.
    pub fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Self>> {
        let (shared, attempting) = (&*self.shared, "splitting the communicator");
        let numbers = (
            color.map_or(Ok(NO_COLOR), c_int::try_from),
            c_int::try_from(key),
        );
        let (Ok(color_number), Ok(key)) = numbers else {
            let text = format!(
                "{shared}: {attempting}: the color or key is too large, expected at most {}",
                c_int::MAX
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        let _calls = shared.calls.lock();
        shared.context.make_current(attempting)?;
        // While the call is in progress, the library may write the handle. If the call never ends,
        // the handle's memory is never freed.
        let made: &'static mut RawHandle<c_void> = Box::leak(Box::new(RawHandle(ptr::null_mut())));
        let place: *mut RawHandle<c_void> = made;
        shared.call(attempting, |functions, handle| {
            // SAFETY: `place` points to memory for a handle. This memory is never freed while the
            // library may write to it. The configuration is writable.
            unsafe { functions.split(handle, color_number, key, place.cast(), &mut config()) }
        })?;
        shared.settle(attempting)?;
        // SAFETY: `place` was leaked above. The call has completed, so the library no longer writes
        // to this memory.
        let handle = unsafe { Box::from_raw(place) }.0;
        if color.is_none() || handle.is_null() {
            return Ok(None);
        }
        let (context, functions) = (&shared.context, shared.functions);
        // Until `with_place` sets the new rank, errors name the rank in the parent communicator.
        let place = (shared.rank, shared.size);
        let child = Self::of(context, functions, place, shared.timeout, handle);
        child.shared.settle(attempting)?;
        child.with_place(attempting).map(Some)
    }

    /// Sets rank and size of a new communicator to the values that the library has assigned.
    fn with_place(mut self, attempting: &str) -> Result<Self> {
        let (mut rank, mut size) = (0, 0);
        self.shared.call(attempting, |functions, handle| {
            // SAFETY: `rank` and `size` are writable, and the handle is the communicator's.
            unsafe {
                functions.user_rank(handle, &mut rank)?;
                functions.count(handle, &mut size)
            }
        })?;
        let [rank, size] = [rank, size].map(|number| usize::try_from(number).unwrap_or(0));
        let shared = Arc::get_mut(&mut self.shared).expect("the communicator is not yet shared");
        (shared.rank, shared.size) = (rank, size);
        Ok(self)
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Returns an error if NCCL has reported a failure of any rank to this rank. The failure ends
    /// the communicator.
    pub fn async_error(&self) -> Result<()> {
        let attempting = "collectives";
        let status = self.shared.status(attempting)?;
        let failed = status.err().filter(|failure| !is_in_progress(*failure));
        failed.map_or(Ok(()), |failure| {
            Err(self.shared.failed(attempting, failure))
        })
    }

    /// Aborts the communicator. The streams of all ranks continue without the uncompleted calls,
    /// and every later call fails.
    pub fn abort(&self) {
        self.shared.end("it was aborted");
    }

    /// Registers memory, so that peers access it in place. The memory must be in one allocation,
    /// and must not be freed before the registration drops.
    pub fn register(&self, address: DevicePtr, bytes: u64) -> Result<Registration> {
        let (shared, attempting) = (&*self.shared, "registering memory");
        let _calls = shared.calls.lock();
        shared.context.make_current(attempting)?;
        let mut handle = RawHandle(ptr::null_mut());
        let Ok(length) = usize::try_from(bytes) else {
            let text = format!("{shared}: {attempting}: {bytes} bytes");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        // A failure does not end the communicator: no peer waits for this call.
        let outcome = shared.with_handle(attempting, |functions, raw| {
            // SAFETY: `handle` is writable. The library checks the range.
            unsafe { functions.register(raw, address.0 as Opaque, length, &mut handle.0) }
        })?;
        outcome.map_err(|failure| error(&shared.to_string(), attempting, failure))?;
        Ok(Registration {
            shared: Arc::clone(&self.shared),
            handle,
        })
    }
}

impl SharedCommunicator {
    /// Calls the library under the lock of the state, so that no other thread aborts the
    /// communicator during the call.
    fn with_handle<T>(
        &self,
        attempting: &str,
        call: impl FnOnce(&Functions, CommHandle) -> T,
    ) -> Result<T> {
        match &*self.state.lock() {
            CommunicatorState::Alive(handle) => Ok(call(self.functions, handle.0)),
            CommunicatorState::Ended(why) => {
                let text = format!("{self}: {attempting}: the communicator has ended: {why}");
                Err(Error::new(ErrorKind::Driver, text))
            }
        }
    }

    /// Begins a call. A failure ends the communicator.
    fn call(
        &self,
        attempting: &str,
        call: impl FnOnce(&Functions, CommHandle) -> LibraryResult,
    ) -> Result<()> {
        let outcome = self.with_handle(attempting, call)?;
        begun(outcome).map_err(|failure| self.failed(attempting, failure))
    }

    /// Waits until a call is no longer in progress. A failure or the timeout ends the communicator.
    fn settle(&self, attempting: &str) -> Result<()> {
        let begin = Instant::now();
        for question in 0_u64.. {
            match self.status(attempting)? {
                Ok(()) => return Ok(()),
                Err(failure) if !is_in_progress(failure) => {
                    return Err(self.failed(attempting, failure));
                }
                Err(_) if begin.elapsed() > self.timeout => break,
                Err(_) if question < EAGER_QUESTIONS => yield_now(),
                Err(_) => thread::sleep(PAUSE),
            }
        }
        let text = format!(
            "{self}: {attempting}: still in progress after {:?}: not all ranks have made the \
             matching call",
            self.timeout
        );
        self.end(&text);
        Err(Error::new(ErrorKind::Driver, text))
    }

    /// Returns the status of the communicator. If the communicator has ended, the outer result is
    /// an error.
    fn status(&self, attempting: &str) -> Result<LibraryResult> {
        self.with_handle(attempting, |functions, handle| {
            let mut status: c_uint = 0;
            // SAFETY: `status` is writable and as large as the library's enumeration, and the
            // handle is a communicator's.
            unsafe { functions.async_error(handle, &mut status) }?;
            match status {
                0 => Ok(()),
                status => Err(LibraryError {
                    library: &super::LIBRARY,
                    call: "ncclCommGetAsyncError",
                    status,
                }),
            }
        })
    }

    /// Returns the error of a failure, and ends the communicator.
    #[cold]
    fn failed(&self, attempting: &str, failure: LibraryError) -> Error {
        let error = error(&self.to_string(), attempting, failure);
        self.end(&error.to_string());
        error
    }

    fn end(&self, why: &str) {
        let mut state = self.state.lock();
        let CommunicatorState::Alive(handle) = &*state else {
            return;
        };
        self.context.discard(|_| {
            // SAFETY: the state is locked until it becomes `Ended`, so nothing else uses the
            // handle.
            let _ = unsafe { self.functions.abort(handle.0) };
            Ok(())
        });
        *state = CommunicatorState::Ended(why.to_owned());
    }

    /// Records the event of `stream` behind the last call on the stream.
    fn mark(&self, driver: &Driver, stream: CUstream) -> super::super::error::DriverResult {
        let mut marks = self.marks.lock();
        let known = marks.iter().find(|mark| mark.stream.0 == stream).copied();
        let mark = known.map_or_else(
            || {
                let event = new_event(driver)?;
                let stream = RawHandle(stream);
                marks.push(StreamMark { stream, event });
                Ok(StreamMark { stream, event })
            },
            Ok,
        )?;
        // SAFETY: the caller holds a submission, so the stream lives. The event is this
        // communicator's own.
        unsafe { driver.event_record(mark.event.0, stream) }
    }
}

fn is_in_progress(failure: LibraryError) -> bool {
    failure.status == super::IN_PROGRESS
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let shared = &*self.shared;
        let marks = std::mem::take(&mut *shared.marks.lock());
        let mut is_idle = false;
        shared.context.discard(|driver| {
            is_idle = marks
                .iter()
                .all(|mark| is_done(driver, mark.event).unwrap_or(false));
            for mark in &marks {
                // SAFETY: the event is this communicator's own, and nothing waits for it.
                let _ = unsafe { driver.event_destroy(mark.event.0) };
            }
            Ok(())
        });
        let is_settled = matches!(shared.status("dropping the communicator"), Ok(Ok(())));
        if !is_idle || !is_settled {
            return shared.end("it was dropped before its calls had completed");
        }
        let mut state = shared.state.lock();
        if let CommunicatorState::Alive(handle) = &*state {
            // SAFETY: the state is locked until it becomes `Ended`, so nothing else uses the
            // handle.
            let _ = unsafe { shared.functions.destroy(handle.0) };
            *state = CommunicatorState::Ended("it was dropped".to_owned());
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // If the communicator has ended, its registrations have ended too.
        let _ = self
            .shared
            .with_handle("deregistering memory", |functions, raw| {
                // SAFETY: the registration is this communicator's, and ends only once.
                unsafe { functions.deregister(raw, self.handle.0) }
            });
    }
}

/// Writes the beginning of error messages.
impl fmt::Display for SharedCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rank_name(&self.context, self.rank, self.size))
    }
}

fn rank_name(context: &Context, rank: usize, size: usize) -> String {
    format!("{}: rank {rank} of {size}", context.id())
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator({})", self.shared)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.shared)
    }
}
