//! The recorded events of a device, as plain data: the input of every report.

/// The events on a device from the beginning of a recording to its end.
///
/// Invariants: events are in the order of their times; every index is one of the tables here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The device, "host" or "cuda:0".
    pub device: String,
    /// The beginning of the recording, in nanoseconds since 1970 in UTC; times of events count from
    /// it.
    pub began_unix_ns: u64,
    /// The length of the recording in nanoseconds.
    pub duration_ns: u64,
    /// Lines of the program, by their number.
    pub call_sites: Vec<CallSite>,
    /// Names of scopes, by their number.
    pub scopes: Vec<String>,
    /// Backtraces, by their number, each from the innermost frame out. Empty unless the recording
    /// included them.
    pub stacks: Vec<Vec<Frame>>,
    /// The memory that was reserved as the recording began.
    pub segments: Vec<Segment>,
    /// The events, in the order of their times.
    pub events: Vec<Event>,
    /// The number of older events that newer events overwrote, because the recording was bounded.
    pub lost_events: u64,
    /// The beginning of the time in which no event was lost; 0 if none was lost at all.
    pub complete_from_ns: u64,
    /// Bytes live at the end, by the device's own counters; `None` if they are not known.
    pub live_bytes: Option<u64>,
    /// Bytes reserved at the end, by the device's own counters; `None` if they are not known.
    pub reserved_bytes: Option<u64>,
    /// The reports of the program's other devices, in the folder of this report.
    pub others: Vec<OtherReport>,
}

/// The report of another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherReport {
    /// The device, "host" or "cuda:0".
    pub device: String,
    /// The name of the file, without its folder.
    pub file: String,
}

/// A line of the program that made a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The path, as the compiler was given it.
    pub file: String,
    /// The line, from 1; 0 if `file` is the name of a buffer or a function.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// A frame of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The name of the function.
    pub function: String,
    /// The path of its file; empty where it is not known.
    pub file: String,
    /// The line, from 1; 0 where it is not known.
    pub line: u32,
}

/// Reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first address.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// A recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Nanoseconds since the beginning of the recording.
    pub time_ns: u64,
    /// The kind of the event.
    pub kind: EventKind,
    /// The thread, by its number in the process.
    pub thread: u32,
    /// The stream that orders the memory; 0 is the default stream.
    pub stream: u32,
    /// The scope of the cache, by its number; `None` for memory of no cache.
    pub scope: Option<u32>,
    /// The line that made the request, by its number. A free has the line of its allocation.
    pub call_site: Option<u32>,
    /// The backtrace, by its number.
    pub stack: Option<u32>,
    /// The first address of the memory, or 0.
    pub address: u64,
    /// The requested bytes of an allocation and its free, else the bytes that [`EventKind`]
    /// documents.
    pub bytes: u64,
    /// The length of the block, at least `bytes`; for an allocation and its free.
    pub block_bytes: u64,
}

impl Event {
    /// Returns an event of which only the kind and the time are known.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_reports::{Event, EventKind};
    ///
    /// let event = Event { bytes: 1000, ..Event::new(EventKind::Trim, 10) };
    /// assert_eq!((event.time_ns, event.bytes, event.call_site), (10, 1000, None));
    /// ```
    pub fn new(kind: EventKind, time_ns: u64) -> Self {
        Self {
            time_ns,
            kind,
            thread: 0,
            stream: 0,
            scope: None,
            call_site: None,
            stack: None,
            address: 0,
            bytes: 0,
            block_bytes: 0,
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// An allocation that the scope's cache served: a hit.
    Hit,
    /// An allocation of a scope that its cache could not serve: a miss.
    Miss,
    /// An allocation that belongs to no cache.
    Uncached,
    /// The last handle on a block was dropped.
    Free,
    /// The last handle on a block was dropped, while other streams may still use it: it is pending.
    FreePending,
    /// The block allocated last on this thread, at this address, is a copy that a write to shared
    /// memory forced.
    CopyOnWrite,
    /// Memory was reserved from the device: a segment, or pages of a segment.
    Reserve,
    /// Memory was released to the device.
    Release,
    /// A scope was entered. `bytes`: live in its cache on this thread.
    Enter,
    /// A scope was left. `bytes`: live in its cache on this thread.
    Exit,
    /// A cache was invalidated. `bytes`: returned to the pool.
    Invalidate,
    /// Idle memory was released on request. `bytes`: released.
    Trim,
    /// A request went to the reclaim ladder. `bytes`: requested.
    Retry,
    /// A request failed after the whole ladder. `bytes`: requested.
    OutOfMemory,
    /// The host waited for a stream.
    Wait,
    /// An operation began. `call_site`: the line that called it.
    OperationBegin,
    /// The operation that began last on this thread ended.
    OperationEnd,
    /// An allocation of which it is not known whether it was a hit: in recordings of other
    /// allocators.
    Allocate,
    /// Other streams have completed their uses of the pending memory from this address on. `bytes`:
    /// its length, which may be an arena with many suballocations.
    FreeCompleted,
    /// The stream waits for the work that was enqueued on another stream so far. `bytes`: the
    /// number of the other stream.
    StreamWait,
    /// Rung 2 of the reclaim ladder: idle memory is released. `bytes`: requested.
    ReleaseIdle,
    /// Rung 3: idle blocks of named caches are taken. `bytes`: requested.
    ReclaimCaches,
    /// Rung 4: the host waits for the streams of pending blocks, if there are any. `bytes`:
    /// requested.
    WaitPending,
    /// Rung 5: the pressure callbacks are called, if there are any. `bytes`: requested.
    PressureCallbacks,
    /// An operation ran on an asynchronous device, such as a CUDA device. The time is the moment
    /// when the device began the operation. `bytes`: its duration in nanoseconds.
    Kernel,
    /// Further allocations that an operation made for scratch memory and freed itself, which are
    /// not listed. `address`: their number; `bytes`: their sum; `block_bytes`: the number of hits
    /// among them. Without a scope, they belong to no cache.
    Scratch,
}

impl EventKind {
    /// Every kind, at the index of its number.
    pub const ALL: [Self; 26] = [
        Self::Hit,
        Self::Miss,
        Self::Uncached,
        Self::Free,
        Self::FreePending,
        Self::CopyOnWrite,
        Self::Reserve,
        Self::Release,
        Self::Enter,
        Self::Exit,
        Self::Invalidate,
        Self::Trim,
        Self::Retry,
        Self::OutOfMemory,
        Self::Wait,
        Self::OperationBegin,
        Self::OperationEnd,
        Self::Allocate,
        Self::FreeCompleted,
        Self::StreamWait,
        Self::ReleaseIdle,
        Self::ReclaimCaches,
        Self::WaitPending,
        Self::PressureCallbacks,
        Self::Kernel,
        Self::Scratch,
    ];

    /// Returns whether the event is an allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_reports::EventKind;
    ///
    /// assert!(EventKind::Hit.is_allocation());
    /// assert!(!EventKind::Reserve.is_allocation());
    /// ```
    pub fn is_allocation(self) -> bool {
        matches!(
            self,
            Self::Hit | Self::Miss | Self::Uncached | Self::Allocate
        )
    }

    /// Returns whether the event is a free.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_reports::EventKind;
    ///
    /// assert!(EventKind::FreePending.is_free());
    /// assert!(!EventKind::Release.is_free());
    /// ```
    pub fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::FreePending)
    }
}
