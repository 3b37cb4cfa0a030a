//! The progress of a stream: its completed position, and the events of later positions.

use std::collections::VecDeque;
use std::ptr;

use cudarc::driver::sys::{CUevent_flags, CUevent_st, CUresult};

use super::context::RawHandle;
use super::driver::Driver;
use super::error::DriverResult;

/// The progress of a stream. A position is the number of submissions before it.
///
/// Invariants:
///
/// - Every position up to `done` is done.
/// - `outstanding` is sorted by position, and its positions are above `done`.
/// - The driver has recorded each outstanding event behind the work of its position.
/// - `free_events` are events of done positions. Only this stream reuses them. So a thread that
///   still waits for a reused event waits for a later position, never for an earlier position.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    pub(super) done: u64,
    pub(super) outstanding: VecDeque<(u64, RawHandle<CUevent_st>)>,
    pub(super) free_events: Vec<RawHandle<CUevent_st>>,
    /// Set from before the driver's capture begins until after it ends. Meanwhile, all work that
    /// was submitted before the capture is done. A recorded event would become part of the graph.
    pub(super) is_captured: bool,
}

impl StreamProgress {
    /// Marks every position up to `position` as done.
    pub(super) fn complete_through(&mut self, position: u64) {
        self.done = self.done.max(position);
        while let Some(&(position, event)) = self.outstanding.front()
            && position <= self.done
        {
            self.outstanding.pop_front();
            self.free_events.push(event);
        }
    }

    /// Returns the first event at or after `position`; `None` if the position is done.
    pub(super) fn event(&self, position: u64) -> Option<(u64, RawHandle<CUevent_st>)> {
        if position <= self.done {
            return None;
        }
        let index = self
            .outstanding
            .partition_point(|&(recorded, _)| recorded < position);
        self.outstanding.get(index).copied()
    }

    /// Marks the leading positions whose events are complete as done. So the unfinished work bounds
    /// the number of events, even in a program that records events and never waits.
    pub(super) fn poll_completed(&mut self, driver: &Driver) -> DriverResult {
        while let Some(&(position, event)) = self.outstanding.front() {
            if !is_done(driver, event)? {
                break;
            }
            self.complete_through(position);
        }
        Ok(())
    }
}

pub(super) fn is_done(driver: &Driver, event: RawHandle<CUevent_st>) -> DriverResult<bool> {
    // SAFETY: events of a stream are destroyed with the stream, which the caller holds.
    match unsafe { driver.event_query(event.0) } {
        Ok(()) => Ok(true),
        Err(failure) if failure.is(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(failure) => Err(failure),
    }
}

pub(super) fn new_event(driver: &Driver) -> DriverResult<RawHandle<CUevent_st>> {
    let mut event = RawHandle(ptr::null_mut());
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: `event` is writable. The caller has made the context current.
    unsafe { driver.event_create(&mut event.0, flags) }?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> RawHandle<CUevent_st> {
        RawHandle(ptr::without_provenance_mut(number))
    }

    fn progress() -> StreamProgress {
        StreamProgress {
            done: 2,
            outstanding: [3, 5, 9]
                .map(|position| (position as u64, event(position)))
                .into(),
            ..StreamProgress::default()
        }
    }

    #[test]
    fn a_place_is_waited_for_by_its_own_event_or_a_later_one() {
        let progress = progress();
        let found = |position| progress.event(position).map(|(position, _)| position);
        let wanted = [None, None, Some(3), Some(5), Some(5), Some(9), Some(9)];
        assert_eq!([1, 2, 3, 4, 5, 6, 9].map(found), wanted);
    }

    #[test]
    fn events_of_places_that_are_done_are_used_again() {
        let mut progress = progress();
        progress.complete_through(4);
        assert_eq!(progress.free_events.len(), 1);
        progress.complete_through(1);
        assert_eq!((progress.done, progress.outstanding.len()), (4, 2));
        progress.complete_through(9);
        assert_eq!(
            (progress.free_events.len(), progress.outstanding.len()),
            (3, 0)
        );
        assert!(progress.event(9).is_none());
    }
}
