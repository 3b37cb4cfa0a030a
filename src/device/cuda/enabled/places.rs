//! Which places of a stream are done, and the events that stand for those that are not.

use std::collections::VecDeque;
use std::ptr;

use cudarc::driver::sys::{CUevent_flags, CUevent_st, CUresult};

use super::context::Raw;
use super::driver::Driver;
use super::error::Outcome;

/// The places of a stream, which are the numbers of the work before them.
///
/// Invariants: all up to `done` is done. `waiting` rises, from above `done`; the driver has recorded each of
/// its events behind the work of its place. `idle` are events of places that are done; they are used for this
/// stream alone, so that one who still waits for such an event waits for a later place, never for less.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) done: u64,
    pub(super) waiting: VecDeque<(u64, Raw<CUevent_st>)>,
    pub(super) idle: Vec<Raw<CUevent_st>>,
}

impl Places {
    /// Everything up to `position` is done.
    pub(super) fn pass(&mut self, position: u64) {
        self.done = self.done.max(position);
        while let Some(&(place, event)) = self.waiting.front()
            && place <= self.done
        {
            self.waiting.pop_front();
            self.idle.push(event);
        }
    }

    /// What the driver has recorded at `position`, or else behind it; `None` where that is done.
    pub(super) fn event(&self, position: u64) -> Option<(u64, Raw<CUevent_st>)> {
        if position <= self.done {
            return None;
        }
        let index = self.waiting.partition_point(|&(place, _)| place < position);
        self.waiting.get(index).copied()
    }

    /// Looks whether the first places are done, so that a program that only ever records has as many events
    /// as its stream has unfinished work, and not more and more.
    pub(super) fn pass_first(&mut self, driver: &Driver) -> Outcome {
        while let Some(&(place, event)) = self.waiting.front() {
            if !is_done(driver, event)? {
                break;
            }
            self.pass(place);
        }
        Ok(())
    }
}

/// Whether the driver has passed what it recorded.
pub(super) fn is_done(driver: &Driver, event: Raw<CUevent_st>) -> Outcome<bool> {
    // SAFETY: events of a stream are destroyed with the stream, which whoever asks has.
    match unsafe { driver.event_query(event.0) } {
        Ok(()) => Ok(true),
        Err(failure) if failure.is(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(failure) => Err(failure),
    }
}

pub(super) fn new_event(driver: &Driver) -> Outcome<Raw<CUevent_st>> {
    let mut event = Raw(ptr::null_mut());
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: `event` can be written to; the caller has made the context current.
    unsafe { driver.event_create(&mut event.0, flags) }?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> Raw<CUevent_st> {
        Raw(ptr::without_provenance_mut(number))
    }

    fn places() -> Places {
        Places {
            done: 2,
            waiting: [3, 5, 9].map(|place| (place as u64, event(place))).into(),
            idle: Vec::new(),
        }
    }

    #[test]
    fn a_place_is_waited_for_by_its_own_event_or_a_later_one() {
        let places = places();
        let found = |position| places.event(position).map(|(place, _)| place);
        let wanted = [None, None, Some(3), Some(5), Some(5), Some(9), Some(9)];
        assert_eq!([1, 2, 3, 4, 5, 6, 9].map(found), wanted);
    }

    #[test]
    fn events_of_places_that_are_done_are_used_again() {
        let mut places = places();
        places.pass(4);
        assert_eq!(places.idle.len(), 1);
        places.pass(1);
        assert_eq!((places.done, places.waiting.len()), (4, 2));
        places.pass(9);
        assert_eq!((places.idle.len(), places.waiting.len()), (3, 0));
        assert!(places.event(9).is_none());
    }
}
