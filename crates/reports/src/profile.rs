//! The recorded events of a device as plain data, the input of all reports.

/// The events of a device during a recording.
///
/// Invariants: events are ordered by time, and indices refer to the tables of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The name of the device: "host" or "cuda:0".
    pub device: String,
    /// The start of the recording, in nanoseconds since 1970 (UTC). Event times are relative to it.
    pub began_unix_ns: u64,
    /// The length of the recording in nanoseconds.
    pub duration_ns: u64,
    /// The lines of the program, by index.
    pub call_sites: Vec<CallSite>,
    /// The names of the scopes, by index.
    pub scopes: Vec<String>,
    /// The backtraces, by index, each from the innermost frame outwards. If backtraces were not
    /// recorded, the table is empty.
    pub stacks: Vec<Vec<Frame>>,
    /// The memory that was reserved at the start of the recording.
    pub segments: Vec<Segment>,
    /// The events, ordered by time.
    pub events: Vec<Event>,
    /// The number of older events that newer events overwrote in a bounded recording.
    pub lost_events: u64,
    /// The time from which on no event was lost; 0 if no event was lost.
    pub complete_from_ns: u64,
    /// The live bytes at the end, from the device's counters; `None` if unknown.
    pub live_bytes: Option<u64>,
    /// The reserved bytes at the end, from the device's counters; `None` if unknown.
    pub reserved_bytes: Option<u64>,
    /// The reports of the program's other devices, in the same folder as this report.
    pub others: Vec<OtherReport>,
}

/// The report of another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherReport {
    /// The name of the device: "host" or "cuda:0".
    pub device: String,
    /// The file name, without its folder.
    pub file: String,
}

/// A line of the program that requested memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The path of the file, as passed to the compiler.
    pub file: String,
    /// The line number, from 1; 0 if `file` is the name of a buffer or a function.
    pub line: u32,
    /// The column number, from 1.
    pub column: u32,
}

/// A frame of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The name of the function.
    pub function: String,
    /// The path of the source file; empty if unknown.
    pub file: String,
    /// The line number, from 1; 0 if unknown.
    pub line: u32,
}

/// A reserved address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
}

/// A recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The time of the event, in nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// The kind of the event.
    pub kind: EventKind,
    /// The index of the thread in the process.
    pub thread: u32,
    /// The index of the stream that orders the memory. Index 0 is the default stream.
    pub stream: u32,
    /// The index of the cache's scope; `None` for uncached memory.
    pub scope: Option<u32>,
    /// The index of the requesting line. A free has the line of its allocation.
    pub call_site: Option<u32>,
    /// The index of the backtrace.
    pub stack: Option<u32>,
    /// The first address of the memory, or 0.
    pub address: u64,
    /// The requested bytes for an allocation and its free. For other events, see [`EventKind`].
    pub bytes: u64,
    /// The length of the block, at least `bytes`, for an allocation and its free.
    pub block_bytes: u64,
}

impl Event {
    /// Creates an event with the given kind and time. All other fields are empty.
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
    /// A hit: the scope's cache served the allocation.
    Hit,
    /// A miss: the scope's cache could not serve the allocation.
    Miss,
    /// An allocation outside of all caches.
    Uncached,
    /// A free: the last handle of a block was dropped.
    Free,
    /// A pending free: the last handle of a block was dropped while other streams may still use the
    /// block.
    FreePending,
    /// A copy-on-write: a write to shared memory forced the last allocation of this thread, at this
    /// address.
    CopyOnWrite,
    /// A reservation of a segment, or of pages of a segment, from the device.
    Reserve,
    /// A release of memory to the device.
    Release,
    /// An Enter of a scope. `bytes`: the live bytes of its cache on this thread.
    Enter,
    /// An Exit of a scope. `bytes`: the live bytes of its cache on this thread.
    Exit,
    /// An invalidation of a cache. `bytes`: the bytes that were returned to the pool.
    Invalidate,
    /// A release of idle memory on request. `bytes`: the released bytes.
    Trim,
    /// A request that entered the reclaim ladder. `bytes`: the requested bytes.
    Retry,
    /// A request that failed after the last rung of the reclaim ladder. `bytes`: the requested
    /// bytes.
    OutOfMemory,
    /// A wait of the host for a stream.
    Wait,
    /// The begin of an operation. `call_site`: the line that called it.
    OperationBegin,
    /// The end of the operation that began last on this thread.
    OperationEnd,
    /// An allocation by another allocator, whose recordings do not distinguish hits from misses.
    Allocate,
    /// The completion of all uses of pending memory by other streams. `bytes`: the length of the
    /// memory, which may be an arena with many suballocations.
    FreeCompleted,
    /// A wait of the stream for the work that is enqueued on another stream. `bytes`: the index of
    /// the other stream.
    StreamWait,
    /// Rung 2 of the reclaim ladder: idle memory is released. `bytes`: the requested bytes.
    ReleaseIdle,
    /// Rung 3 of the reclaim ladder: idle blocks of named caches are reclaimed. `bytes`: the
    /// requested bytes.
    ReclaimCaches,
    /// Rung 4 of the reclaim ladder: the host waits for the streams of pending blocks, if any
    /// exist. `bytes`: the requested bytes.
    WaitPending,
    /// Rung 5 of the reclaim ladder: the pressure callbacks are called, if any exist. `bytes`: the
    /// requested bytes.
    PressureCallbacks,
    /// An operation on an asynchronous device, such as a CUDA device. `time_ns` is the time at
    /// which the device began the operation. `bytes`: the duration in nanoseconds.
    Kernel,
    /// A summary of an operation's further scratch allocations, which are not recorded
    /// individually. `address`: their number; `bytes`: their sum; `block_bytes`: the number of hits
    /// among them. Without a scope, they belong to no cache.
    Scratch,
}

impl EventKind {
    /// All kinds, indexed by their numbers.
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
