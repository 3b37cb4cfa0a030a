//! The host device: the reference backend, which uses the process's memory. Its streams run work at
//! once on the calling thread. In a test mode, its streams run work as late as possible. A meta
//! device is a host device that runs no work. Its addresses are read-only.

mod meta;
mod ranges;
pub(crate) mod streams;

use std::alloc::{Layout, alloc, dealloc};
use std::mem::MaybeUninit;

use super::budget::Budget;
use super::host_streams::{HostStream, HostStreams, StealWork};
use super::{Backend, DeviceId, DevicePtr, Event, HostExecution, StreamId, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Weak};
use ranges::Ranges;
use streams::{DelayedStreams, StreamIds};

/// The alignment of reservations: one page, so that no array shares a page with foreign data.
const ALIGNMENT_BYTES: usize = 4096;

/// The backend of host devices and meta devices.
#[derive(Debug)]
pub(crate) struct HostBackend {
    /// The budget of all reservations and commits, including those in progress. Its limit is the
    /// machine's memory. Above this limit, an operating system that overcommits would grant memory,
    /// and later kill the process.
    budget: Arc<Budget>,
    /// The address ranges; `None` if the platform has no virtual memory.
    ranges: Option<Ranges>,
    ids: StreamIds,
    mode: Mode,
    host_streams: HostStreams,
}

/// The time at which the device runs work.
#[derive(Debug)]
enum Mode {
    AtOnce,
    Delayed(DelayedStreams),
    Meta { assumed_count: Option<usize> },
}

impl HostBackend {
    pub(crate) fn new() -> Self {
        Self::of(physical_memory_bytes())
    }

    pub(crate) fn of(total_bytes: u64) -> Self {
        let budget = Arc::new(Budget::new(total_bytes));
        Self::over(Ranges::new(&budget), budget, Mode::AtOnce)
    }

    /// Creates a meta device, which has no data. Returns `None` on a platform without virtual
    /// memory.
    pub(crate) fn meta(total_bytes: u64, assumed_count: Option<usize>) -> Option<Self> {
        let budget = Arc::new(Budget::new(total_bytes));
        let ranges = Ranges::without_data(&budget)?;
        Some(Self::over(
            Some(ranges),
            budget,
            Mode::Meta { assumed_count },
        ))
    }

    fn over(ranges: Option<Ranges>, budget: Arc<Budget>, mode: Mode) -> Self {
        Self {
            budget,
            ranges,
            ids: StreamIds::default(),
            mode,
            host_streams: HostStreams::default(),
        }
    }

    /// Creates a host device whose streams delay their work as long as stream order allows.
    pub(crate) fn delaying() -> Self {
        Self {
            mode: Mode::Delayed(DelayedStreams::default()),
            ..Self::new()
        }
    }

    /// Returns whether all reserved memory was released.
    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        let everything = self.budget.limit_bytes();
        let is_there = self.budget.claim(everything);
        if is_there {
            self.budget.unclaim(everything);
        }
        is_there
    }

    /// Returns the ranges if the device is a meta device.
    fn without_data(&self) -> Option<&Ranges> {
        self.ranges.as_ref().filter(|_| self.is_meta())
    }
}

/// Returns the layout of a reservation, or `None` if the address space cannot hold `bytes`.
fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, ALIGNMENT_BYTES).ok()
}

impl Backend for HostBackend {
    fn id(&self) -> DeviceId {
        DeviceId::Host
    }

    fn total_bytes(&self) -> u64 {
        self.budget.limit_bytes()
    }

    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        if let Some(ranges) = self.without_data() {
            return meta::reserve(ranges, &self.budget, bytes);
        }
        let Some(layout) = layout(bytes).filter(|layout| layout.size() > 0) else {
            return Ok(None);
        };
        if !self.budget.claim(bytes) {
            return Ok(None);
        }
        // SAFETY: the filter above ensures that `layout` has a size above 0.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            self.budget.unclaim(bytes);
        }
        Ok((!address.is_null()).then_some(DevicePtr(address.expose_provenance() as u64)))
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        if let Some(ranges) = self.without_data() {
            return meta::release(ranges, &self.budget, address, bytes);
        }
        let layout = layout(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::Driver,
                "released a segment that was never reserved",
            )
        })?;
        // SAFETY: the caller passes an address that `reserve` returned for the same `bytes`, hence
        // for the same layout.
        unsafe { dealloc(host_pointer(address), layout) };
        self.budget.unclaim(bytes);
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        let ranges = self.ranges.as_ref()?;
        Some(ranges)
    }

    fn name(&self) -> String {
        match self.mode {
            Mode::Meta { .. } => "meta".to_owned(),
            Mode::AtOnce | Mode::Delayed(_) => self.id().to_string(),
        }
    }

    fn host_execution(&self) -> HostExecution<'_> {
        match &self.mode {
            Mode::AtOnce => HostExecution::AtOnce,
            Mode::Delayed(streams) => HostExecution::Delayed(streams),
            Mode::Meta { .. } => HostExecution::Never,
        }
    }

    fn assumed_count(&self, most: usize) -> Option<usize> {
        match self.mode {
            Mode::Meta { assumed_count } => Some(assumed_count.map_or(most, |n| n.min(most))),
            Mode::AtOnce | Mode::Delayed(_) => None,
        }
    }

    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()> {
        if self.is_meta() {
            return Ok(());
        }
        if let Some(delayed) = self.delayed() {
            let copy: Box<[u8]> = source.into();
            // SAFETY: by this function's contract, `target` points to `copy.len()` bytes. Stream
            // order extends the contract to the time when the closure runs. Only the closure refers
            // to the copy.
            delayed.push(stream, move || unsafe { write_bytes(target, &copy) });
            return Ok(());
        }
        // SAFETY: by this function's contract, `target` points to `source.len()` writable bytes.
        // The contract excludes other accesses to these bytes, so `source` does not overlap them.
        unsafe { write_bytes(target, source) };
        Ok(())
    }

    unsafe fn download(
        &self,
        stream: StreamId,
        source: DevicePtr,
        target: &mut [u8],
    ) -> Result<()> {
        self.synchronize(stream)?;
        // SAFETY: by this function's contract, `source` points to `target.len()` initialised bytes.
        // The exclusive reference `target` overlaps no other memory.
        unsafe {
            target
                .as_mut_ptr()
                .copy_from_nonoverlapping(host_pointer(source), target.len());
        }
        Ok(())
    }

    unsafe fn fill(
        &self,
        stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        pattern: &[u8],
    ) -> Result<()> {
        if self.is_meta() {
            return Ok(());
        }
        // A reserved size fits `usize`.
        let bytes = bytes as usize;
        if let Some(delayed) = self.delayed() {
            let pattern: Box<[u8]> = pattern.into();
            // SAFETY: by this function's contract, `target` points to `bytes` writable bytes.
            // Stream order extends the contract to the time when the closure runs.
            delayed.push(stream, move || unsafe {
                fill_bytes(target, bytes, &pattern);
            });
            return Ok(());
        }
        // SAFETY: by this function's contract, `target` points to `bytes` writable bytes.
        unsafe { fill_bytes(target, bytes, pattern) };
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        if let Some(host_stream) = self.host_streams.of(stream) {
            return host_stream.synchronize();
        }
        if let Some(delayed) = self.delayed() {
            delayed.wait_for(delayed.record(stream))?;
        }
        Ok(())
    }

    fn new_stream(&self) -> Result<StreamId> {
        self.ids.acquire()
    }

    fn new_host_stream(&self, executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>> {
        self.host_streams
            .open(executor, || self.ids.acquire_fresh())
    }

    fn host_stream(&self, stream: StreamId) -> Option<Arc<HostStream>> {
        self.host_streams.named(stream)
    }

    fn retire_stream(&self, stream: StreamId) {
        self.ids.retire(stream);
    }

    fn streams(&self) -> u16 {
        self.ids.count()
    }

    fn uses_streams(&self) -> bool {
        self.delayed().is_some() && self.streams() > 1 || self.host_streams.are_any()
    }

    fn record_event(&self, stream: StreamId) -> Result<Event> {
        if let Some(host_stream) = self.host_streams.of(stream) {
            return Ok(host_stream.event());
        }
        Ok(match self.delayed() {
            Some(delayed) => delayed.record(stream),
            None => Event {
                stream,
                position: 0,
            },
        })
    }

    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()> {
        if let Some(host_stream) = self.host_streams.of(event.stream) {
            return host_stream.wait_for(event);
        }
        match self.delayed() {
            // The next work of a host stream may run immediately, so this call waits for the event.
            Some(delayed) if self.host_streams.of(stream).is_some() => delayed.wait_for(*event),
            Some(delayed) => {
                delayed.wait(stream, *event);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn query_event(&self, event: &Event) -> Result<bool> {
        if let Some(host_stream) = self.host_streams.of(event.stream) {
            return Ok(host_stream.is_done(event));
        }
        let is_done = |delayed: &DelayedStreams| delayed.is_done(*event);
        Ok(self.delayed().is_none_or(is_done))
    }

    fn synchronize_event(&self, event: &Event) -> Result<()> {
        if let Some(host_stream) = self.host_streams.of(event.stream) {
            return host_stream.wait_for(event);
        }
        if let Some(delayed) = self.delayed() {
            delayed.wait_for(*event)?;
        }
        Ok(())
    }
}

/// Copies `source` to `target`.
///
/// # Safety
///
/// `target` must point to `source.len()` writable bytes that do not overlap `source`.
unsafe fn write_bytes(target: DevicePtr, source: &[u8]) {
    // SAFETY: by this function's contract, `target` points to `source.len()` writable bytes. These
    // bytes do not overlap `source`.
    unsafe { host_pointer(target).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
}

/// Fills `bytes` bytes at `target` with `pattern`.
///
/// # Safety
///
/// The conditions of [`fill`](Backend::fill) hold: `target` points to `bytes` writable bytes.
/// `bytes` and the address are multiples of the pattern's length.
unsafe fn fill_bytes(target: DevicePtr, bytes: usize, pattern: &[u8]) {
    let pointer = host_pointer(target);
    // SAFETY: by this function's contract, `target` points to `bytes` writable bytes, and is a
    // multiple of the pattern's length.
    unsafe {
        match *pattern {
            [value, ref others @ ..] if others.iter().all(|&other| other == value) => {
                pointer.write_bytes(value, bytes);
            }
            [a, b] => fill_words(pointer, bytes, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => fill_words(pointer, bytes, u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                fill_words(pointer, bytes, u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
            }
            ref long => match long.as_chunks() {
                (&[first, second], []) => {
                    fill_words(pointer, bytes, [first, second].map(u64::from_ne_bytes));
                }
                _ => debug_assert!(false, "a pattern has 1, 2, 4, 8 or 16 bytes"),
            },
        }
    }
}

/// Fills `bytes` bytes with copies of `value`.
///
/// # Safety
///
/// The conditions of [`fill_bytes`] hold for a pattern of `size_of::<T>()` bytes.
unsafe fn fill_words<T: Copy>(pointer: *mut u8, bytes: usize, value: T) {
    let count = bytes / size_of::<T>();
    // SAFETY: by this function's contract, the pointer is aligned, and `count` values fit at it.
    let words = unsafe { std::slice::from_raw_parts_mut(pointer.cast::<MaybeUninit<T>>(), count) };
    words.fill(MaybeUninit::new(value));
}

/// Converts a host address to a pointer.
pub fn host_pointer(address: DevicePtr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// Returns the bytes of the machine's memory. If the platform does not report them, returns
/// `isize::MAX`.
fn physical_memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            kib.checked_mul(1024)
        })
        .unwrap_or(isize::MAX as u64)
}
