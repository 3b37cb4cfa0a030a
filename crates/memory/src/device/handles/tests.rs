//! Tests of ranges over a driver that checks each call, against a set of committed pages.

use std::collections::BTreeSet;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

const PAGE: u64 = PAGE_BYTES;
const PAGES: u64 = 48;
const BEGIN: u64 = 64 * PAGE;

/// A driver that panics on each misuse.
#[derive(Debug)]
struct Checked {
    capacity_bytes: u64,
    state: Mutex<CheckedState>,
}

#[derive(Debug, Default)]
struct CheckedState {
    handles: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Handle>,
    accessible: BTreeSet<u64>,
    created: u64,
    calls: u64,
    /// The indices of the failing calls, from 1.
    failing: BTreeSet<u64>,
}

impl CheckedState {
    fn held_bytes(&self) -> u64 {
        self.handles.values().sum()
    }

    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        if self.failing.contains(&self.calls) {
            return Err(Error::new(ErrorKind::Driver, "this call fails"));
        }
        Ok(())
    }
}

impl Checked {
    fn ranges(capacity_pages: u64) -> Handles<Arc<Self>> {
        Handles::new(Arc::new(Self {
            capacity_bytes: capacity_pages * PAGE,
            state: Mutex::default(),
        }))
    }
}

impl HandleDriver for Arc<Checked> {
    fn granularity_bytes(&self) -> u64 {
        PAGE
    }

    fn reserve_addresses(&self, bytes: u64, alignment_bytes: u64) -> Result<Option<DevicePtr>> {
        assert_eq!((bytes, alignment_bytes), (PAGES * PAGE, PAGE));
        Ok(Some(DevicePtr(BEGIN)))
    }

    unsafe fn free_addresses(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        assert_eq!((address.0, bytes), (BEGIN, PAGES * PAGE));
        let mut state = self.state.lock();
        assert!(state.mapped.is_empty());
        state.call()
    }

    fn create(&self, bytes: u64) -> Result<Option<Handle>> {
        let state = &mut *self.state.lock();
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        state.call()?;
        if state.held_bytes() + bytes > self.capacity_bytes {
            return Ok(None);
        }
        state.created += 1;
        let number = state.created;
        state.handles.insert(number, bytes);
        Ok(Some(Handle { number, bytes }))
    }

    unsafe fn map(&self, address: DevicePtr, handle: Handle) -> Result<bool> {
        let state = &mut *self.state.lock();
        state.call()?;
        let end = address.0 + handle.bytes;
        assert!(address.0 >= BEGIN && end <= BEGIN + PAGES * PAGE);
        assert_eq!(state.handles.get(&handle.number), Some(&handle.bytes));
        for (&at, mapped) in &state.mapped {
            assert!(at + mapped.bytes <= address.0 || end <= at, "mapped twice");
            assert_ne!(mapped.number, handle.number, "one handle at two places");
        }
        state.mapped.insert(address.0, handle);
        Ok(true)
    }

    unsafe fn allow_access(&self, address: DevicePtr, bytes: u64) -> Result<bool> {
        let state = &mut *self.state.lock();
        state.call()?;
        let mut at = address.0;
        while at < address.0 + bytes {
            let mapped = state.mapped.get(&at).expect("whole mappings");
            state.accessible.insert(at);
            at += mapped.bytes;
        }
        assert_eq!(at, address.0 + bytes, "whole mappings");
        Ok(true)
    }

    unsafe fn unmap(&self, address: DevicePtr, handle: Handle) -> Result<()> {
        let state = &mut *self.state.lock();
        state.call()?;
        assert_eq!(state.mapped.remove(&address.0), Some(handle));
        state.accessible.remove(&address.0);
        Ok(())
    }

    unsafe fn release(&self, handle: Handle) -> Result<()> {
        let state = &mut *self.state.lock();
        state.call()?;
        assert!(state.mapped.values().all(|mapped| *mapped != handle));
        assert_eq!(state.handles.remove(&handle.number), Some(handle.bytes));
        Ok(())
    }
}

fn at(page: u64) -> DevicePtr {
    DevicePtr(BEGIN + page * PAGE)
}

struct Pair {
    ranges: Handles<Arc<Checked>>,
    committed: BTreeSet<u64>,
}

impl Pair {
    fn new(capacity_pages: u64) -> Self {
        let ranges = Checked::ranges(capacity_pages);
        ranges.reserve_range(PAGES * PAGE).unwrap();
        Self {
            ranges,
            committed: BTreeSet::new(),
        }
    }

    fn state(&self) -> crate::sync::MutexGuard<'_, CheckedState> {
        self.ranges.driver().state.lock()
    }

    fn commit(&mut self, first: u64, count: u64, most_pages: u64) -> Result<bool> {
        // SAFETY: the callers commit only uncommitted pages.
        let done = unsafe {
            self.ranges
                .commit(at(first), count * PAGE, most_pages * PAGE)
        };
        if matches!(done, Ok(true)) {
            self.committed.extend(first..first + count);
        }
        done
    }

    /// Decommits every handle in a part. Returns the count of decommitted pages.
    fn give(&mut self, first: u64, count: u64, recycles: bool) -> Result<u64> {
        let mut pages = 0;
        for (address, bytes) in self.ranges.separable(at(first), count * PAGE) {
            let to = match recycles {
                true => Destination::NextGrowth,
                false => Destination::Device,
            };
            // SAFETY: nothing uses the memory.
            unsafe { self.ranges.decommit(address, bytes, to)? };
            let first = (address.0 - BEGIN) / PAGE;
            for page in first..first + bytes / PAGE {
                assert!(self.committed.remove(&page));
            }
            pages += bytes / PAGE;
        }
        Ok(pages)
    }

    fn check(&self) {
        let state = self.state();
        let mut mapped = BTreeSet::new();
        for (&address, handle) in &state.mapped {
            assert!(state.accessible.contains(&address));
            let first = (address - BEGIN) / PAGE;
            mapped.extend(first..first + handle.bytes / PAGE);
        }
        assert_eq!(mapped, self.committed);
        let committed_bytes = self.committed.len() as u64 * PAGE;
        assert_eq!(
            state.held_bytes(),
            committed_bytes + self.ranges.kept_bytes()
        );
        let own = self.ranges.state.lock();
        assert_eq!(own.mapped, state.mapped);
        assert_eq!(own.mapped_bytes, committed_bytes);
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

#[test]
fn a_commit_takes_as_few_handles_as_it_may() {
    let mut pair = Pair::new(PAGES);
    for (first, count, most, handles) in [(0, 8, 16, 1), (8, 8, 4, 2), (16, 7, 4, 2), (23, 3, 1, 3)]
    {
        let before = pair.state().created;
        let accesses = pair.state().calls;
        assert!(pair.commit(first, count, most).unwrap());
        assert_eq!(pair.state().created - before, handles);
        assert_eq!(pair.state().calls - accesses, 2 * handles + 1);
        pair.check();
    }
}

#[test]
fn only_whole_handles_can_be_released() {
    let mut pair = Pair::new(PAGES);
    assert!(pair.commit(4, 8, 4).unwrap());
    assert!(pair.ranges.separable(at(5), 3 * PAGE).is_empty());
    assert_eq!(pair.ranges.separable(at(5), 7 * PAGE), [(at(8), 4 * PAGE)]);
    assert_eq!(pair.give(4, 8, false).unwrap(), 8);
    pair.check();
    assert_eq!(pair.state().held_bytes(), 0);
}

#[test]
fn what_is_recycled_moves_without_a_new_handle() {
    let mut pair = Pair::new(PAGES);
    for first in [0, 8, 16] {
        assert!(pair.commit(first, 4, 4).unwrap());
    }
    assert_eq!(pair.give(8, 4, true).unwrap(), 4);
    assert_eq!(pair.ranges.kept_bytes(), 4 * PAGE);
    pair.check();
    let created = pair.state().created;
    assert!(pair.commit(24, 4, 4).unwrap());
    pair.check();
    assert_eq!(
        (pair.state().created, pair.ranges.kept_bytes()),
        (created, 0)
    );

    // A kept handle that does not fit is released before a new handle is created. So the device
    // never holds the two handles at once.
    assert_eq!(pair.give(24, 4, true).unwrap(), 4);
    assert!(pair.commit(30, 3, 4).unwrap());
    pair.check();
    assert_eq!(pair.state().held_bytes(), 11 * PAGE);
    // A kept handle above the maximum handle size is also released.
    assert_eq!(pair.give(0, 4, true).unwrap(), 4);
    assert!(pair.commit(24, 4, 2).unwrap());
    assert_eq!(pair.ranges.separable(at(24), 4 * PAGE).len(), 2);
    pair.ranges.release_kept().unwrap();
    pair.check();
    assert_eq!(pair.state().held_bytes(), 11 * PAGE);
}

#[test]
fn no_more_is_kept_than_its_share() {
    let mut pair = Pair::new(PAGES);
    assert!(pair.commit(0, 40, 1).unwrap());
    for page in (0..40).step_by(2) {
        assert_eq!(pair.give(page, 1, true).unwrap(), 1);
        pair.check();
        let kept = pair.ranges.kept_bytes() / PAGE;
        assert!(kept <= (pair.committed.len() as u64 / KEPT_DIVISOR).max(1));
    }
    pair.ranges.release_kept().unwrap();
    assert_eq!(pair.ranges.kept_bytes(), 0);
    pair.check();
}

/// Commits and decommits parts at random. Returns the number of refused commits.
fn run(pair: &mut Pair, seed: u64, check: bool) -> Result<u32> {
    let (mut random, mut refused) = (seed, 0);
    for _ in 0..120 {
        let (first, most) = (next(&mut random) % PAGES, 1 << (next(&mut random) % 4));
        let count = 1 + next(&mut random) % 12;
        let count = count.min(PAGES - first);
        let action = next(&mut random) % 5;
        if action < 3 {
            let gap = (first..first + count).take_while(|page| !pair.committed.contains(page));
            let count = gap.count() as u64;
            if count > 0 {
                refused += u32::from(!pair.commit(first, count, most)?);
            }
        } else {
            pair.give(first, count, action == 3)?;
        }
        if check {
            pair.check();
        }
    }
    Ok(refused)
}

#[test]
fn random_programs_hold_what_they_committed_at_every_step() {
    for capacity in [PAGES, 20] {
        let mut refused = 0;
        for seed in 0..40 {
            let mut pair = Pair::new(capacity);
            refused += run(&mut pair, seed, true).unwrap();
            // SAFETY: nothing uses the memory.
            unsafe { pair.ranges.release_range(at(0), PAGES * PAGE) }.unwrap();
            assert_eq!(pair.state().held_bytes(), 0);
        }
        assert_eq!(refused > 0, capacity < PAGES);
    }
}

/// If any driver call fails, no handle is lost. Releasing the range still releases all memory.
#[test]
fn a_call_that_fails_loses_nothing() {
    let mut pair = Pair::new(30);
    run(&mut pair, 7, true).unwrap();
    let calls = pair.state().calls;
    assert!(calls > 200, "{calls}");
    let mut errors = 0;
    for failing in 1..=calls {
        let mut pair = Pair::new(30);
        pair.state().failing.insert(failing);
        errors += u32::from(run(&mut pair, 7, false).is_err());
        let own = pair.ranges.state.lock();
        assert_eq!(own.mapped, pair.state().mapped);
        assert_eq!(own.mapped_bytes + own.kept_bytes, pair.state().held_bytes());
        drop(own);
        // SAFETY: nothing uses the memory.
        unsafe { pair.ranges.release_range(at(0), PAGES * PAGE) }.unwrap();
        assert_eq!(pair.state().held_bytes(), 0, "call {failing}");
    }
    assert!(errors > 100, "{errors}");
}

/// If the driver fails to unmap a handle, a later commit reuses the mapping, even beyond the
/// commit's bounds.
#[test]
fn a_commit_over_what_stayed_mapped_fills_the_rest() {
    let mut pair = Pair::new(PAGES);
    assert!(pair.commit(8, 4, 4).unwrap());
    let failing = pair.state().calls + 1;
    pair.state().failing.insert(failing);
    // SAFETY: nothing uses the memory.
    unsafe { pair.ranges.decommit(at(8), 4 * PAGE, Destination::Device) }.unwrap_err();
    pair.committed.clear();
    assert!(pair.commit(10, 8, 8).unwrap());
    assert_eq!(
        pair.ranges.separable(at(10), 8 * PAGE),
        [(at(12), 6 * PAGE)]
    );
    assert!(pair.commit(4, 4, 8).unwrap());
    assert_eq!(
        pair.ranges.separable(at(4), 14 * PAGE),
        [(at(4), 4 * PAGE), (at(8), 4 * PAGE), (at(12), 6 * PAGE)]
    );
    assert_eq!(pair.state().held_bytes(), 14 * PAGE);
}

/// A failed release does not undo the preceding unmap. The unmapped memory is not committed, and
/// counts once as kept.
#[test]
fn what_cannot_be_released_is_kept() {
    for recycles in [false, true] {
        let mut pair = Pair::new(PAGES);
        assert!(pair.commit(0, 8, 4).unwrap());
        assert!(pair.commit(8, 2, 2).unwrap());
        // Two pages are kept. The next decommit unmaps four pages, which exceeds the limit of kept
        // pages.
        assert_eq!(pair.give(8, 2, true).unwrap(), 2);
        let calls = pair.state().calls;
        pair.state().failing.extend(calls + 2..calls + 4);
        assert_eq!(pair.give(0, 4, recycles).unwrap(), 4);
        pair.check();
        pair.state().failing.clear();
        pair.ranges.release_kept().unwrap();
        pair.check();
        assert_eq!(pair.state().held_bytes(), 4 * PAGE);
    }
}

/// After a failed access call and a failed unmap, the next commit over the mapping grants kernel
/// access.
#[test]
fn a_commit_lets_kernels_at_what_stayed_mapped() {
    let mut pair = Pair::new(PAGES);
    // Calls 1 and 2 create and map the handle. Call 3 (access) and call 4 (unmap) fail.
    pair.state().failing.extend([3, 4]);
    pair.commit(4, 4, 4).unwrap_err();
    assert_eq!(pair.state().mapped.len(), 1);
    assert!(pair.state().accessible.is_empty());
    assert!(pair.commit(4, 4, 4).unwrap());
    pair.check();
    assert_eq!(pair.state().created, 1, "it is used as it is");
}

#[test]
fn a_range_that_cannot_be_emptied_releases_the_rest() {
    let mut pair = Pair::new(PAGES);
    assert!(pair.commit(0, 12, 4).unwrap());
    // The first unmap and its retry fail.
    let calls = pair.state().calls;
    pair.state().failing.extend([calls + 1, calls + 4]);
    // SAFETY: nothing uses the memory.
    unsafe { pair.ranges.release_range(at(0), PAGES * PAGE) }.unwrap_err();
    assert_eq!(pair.state().held_bytes(), 4 * PAGE);
}
