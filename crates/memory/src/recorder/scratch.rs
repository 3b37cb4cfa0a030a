//! Requests for scratch memory inside of an operation. All requests are counted. Only the requests
//! that are live at the peak of scratch memory are listed, each as an event.
//!
//! An operation that computes in blocks makes thousands of requests for memory that it frees
//! itself. Recording each request would hide the program's own requests, and fill the ring.
//!
//! A region lists its requests when it ends. So if no memory outside of the region is freed before
//! this end, the peak of live memory is exact. Blocks that outlive the region are listed like other
//! blocks.

use std::cell::RefCell;
use std::mem::take;
use std::panic::Location;
use std::ptr;

use cachescope_reports::EventKind;

use super::event::{EventRecord, ScopeNumber};
use super::{NO_STACK, Recorder};
use crate::error::reported_call_site;

std::thread_local! {
    static REGION: RefCell<Option<Region>> = const { RefCell::new(None) };
}

/// The requests of one thread on one device that are not listed yet.
///
/// Invariant: `live_bytes` is the sum of the bytes of `live`, and `peak` is an earlier state of
/// `live`.
#[derive(Debug)]
struct Region {
    /// The recorder's address, which is only compared. The guard's borrow keeps the recorder alive.
    recorder: *const Recorder,
    live: Vec<ScratchBlock>,
    live_bytes: u64,
    /// The blocks that were live when `live_bytes` was highest.
    peak: Vec<ScratchBlock>,
    peak_bytes: u64,
    totals: Vec<Totals>,
    requests: u64,
}

#[derive(Clone, Copy, Debug)]
struct ScratchBlock {
    /// The number of the request, which distinguishes two blocks of one address.
    number: u64,
    allocation: EventRecord,
}

/// The requests of one line in one scope that were not listed.
#[derive(Debug)]
struct Totals {
    call_site: Option<&'static Location<'static>>,
    scope: ScopeNumber,
    requests: u64,
    hits: u64,
    bytes: u64,
}

/// A guard that ends this thread's region when the guard drops. If the thread was already inside of
/// a region, the guard does nothing.
#[must_use]
#[derive(Debug)]
pub(crate) struct ScratchRegion<'a>(Option<&'a Recorder>);

impl<'a> ScratchRegion<'a> {
    /// Begins a region of this thread, for the events of `recorder`.
    pub(crate) fn begin(recorder: &'a Recorder) -> Self {
        let begun = REGION.try_with(|region| {
            let mut region = region.borrow_mut();
            if region.is_some() {
                return false;
            }
            *region = Some(Region::of(recorder));
            true
        });
        Self(begun.unwrap_or(false).then_some(recorder))
    }
}

impl Drop for ScratchRegion<'_> {
    fn drop(&mut self) {
        let Some(recorder) = self.0 else { return };
        let region = REGION.try_with(|region| region.borrow_mut().take());
        if let Ok(Some(region)) = region {
            region.list(recorder);
        }
    }
}

pub(crate) fn is_inside(recorder: &Recorder) -> bool {
    let inside = REGION.try_with(|region| {
        let region = region.borrow();
        region.as_ref().is_some_and(|own| own.is_of(recorder))
    });
    inside.unwrap_or(false)
}

/// Adds an event to the region of this thread. Returns false if the event must be listed now.
pub(super) fn absorb(recorder: &Recorder, event: &EventRecord) -> bool {
    let absorbed = REGION.try_with(|region| {
        let mut region = region.borrow_mut();
        match region.as_mut().filter(|own| own.is_of(recorder)) {
            Some(own) => own.absorb(recorder, event),
            None => false,
        }
    });
    absorbed.unwrap_or(false)
}

impl Region {
    fn of(recorder: &Recorder) -> Self {
        Self {
            recorder: ptr::from_ref(recorder),
            live: Vec::new(),
            live_bytes: 0,
            peak: Vec::new(),
            peak_bytes: 0,
            totals: Vec::new(),
            requests: 0,
        }
    }

    fn is_of(&self, recorder: &Recorder) -> bool {
        ptr::eq(self.recorder, recorder)
    }

    fn absorb(&mut self, recorder: &Recorder, event: &EventRecord) -> bool {
        match event.kind {
            EventKind::Hit | EventKind::Miss | EventKind::Uncached => {
                self.allocate(*event);
                true
            }
            EventKind::Free => self.remove(event.address).is_some(),
            // Later events refer to the block, so its allocation is listed now.
            EventKind::FreePending | EventKind::CopyOnWrite => {
                if let Some(block) = self.remove(event.address) {
                    self.peak.retain(|own| own.number != block.number);
                    recorder.write(recorder.time_ns(), &self.listed(block));
                }
                false
            }
            _ => false,
        }
    }

    fn allocate(&mut self, mut allocation: EventRecord) {
        allocation.call_site = allocation.call_site.map(reported_call_site);
        self.requests += 1;
        self.live_bytes += allocation.bytes;
        self.live.push(ScratchBlock {
            number: self.requests,
            allocation,
        });
        let totals = self.totals_of(&allocation);
        totals.requests += 1;
        totals.hits += u64::from(allocation.kind == EventKind::Hit);
        totals.bytes = totals.bytes.saturating_add(allocation.bytes);
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.peak.clone_from(&self.live);
        }
    }

    fn totals_of(&mut self, allocation: &EventRecord) -> &mut Totals {
        let (call_site, scope) = (allocation.call_site, allocation.scope);
        let is_own = |own: &Totals| (own.call_site, own.scope) == (call_site, scope);
        let index = self.totals.iter().position(is_own).unwrap_or_else(|| {
            self.totals.push(Totals {
                call_site,
                scope,
                requests: 0,
                hits: 0,
                bytes: 0,
            });
            self.totals.len() - 1
        });
        &mut self.totals[index]
    }

    fn remove(&mut self, address: u64) -> Option<ScratchBlock> {
        let is_own = |own: &ScratchBlock| own.allocation.address == address;
        let block = self.live.swap_remove(self.live.iter().rposition(is_own)?);
        self.live_bytes -= block.allocation.bytes;
        Some(block)
    }

    /// Subtracts a block from the totals, and returns its allocation.
    fn listed(&mut self, block: ScratchBlock) -> EventRecord {
        let ScratchBlock { allocation, .. } = block;
        let totals = self.totals_of(&allocation);
        totals.requests -= 1;
        totals.hits -= u64::from(allocation.kind == EventKind::Hit);
        totals.bytes = totals.bytes.saturating_sub(allocation.bytes);
        allocation
    }

    /// Writes the blocks of the peak, and the frees of peak blocks that are not live any more. Then
    /// writes the other live blocks, and the totals of the remaining requests.
    fn list(mut self, recorder: &Recorder) {
        let time_ns = recorder.time_ns();
        let (peak, live) = (take(&mut self.peak), take(&mut self.live));
        for block in &peak {
            recorder.write(time_ns, &self.listed(*block));
        }
        let is_in = |all: &[ScratchBlock], number| all.iter().any(|own| own.number == number);
        for block in peak.iter().filter(|own| !is_in(&live, own.number)) {
            let free = EventRecord {
                kind: EventKind::Free,
                call_site: None,
                stack: NO_STACK,
                ..block.allocation
            };
            recorder.write(time_ns, &free);
        }
        for block in live.iter().filter(|own| !is_in(&peak, own.number)) {
            recorder.write(time_ns, &self.listed(*block));
        }
        for totals in self.totals.iter().filter(|own| own.requests > 0) {
            let event = EventRecord {
                scope: totals.scope,
                call_site: totals.call_site,
                address: totals.requests,
                block_bytes: totals.hits,
                ..EventRecord::of(EventKind::Scratch, totals.bytes)
            };
            recorder.write(time_ns, &event);
        }
    }
}
