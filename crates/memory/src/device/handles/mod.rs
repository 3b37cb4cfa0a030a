//! Address ranges whose memory is mapped in handles, like CUDA's virtual memory. This module
//! decides which handles to create, map, keep and release. A [`HandleDriver`] makes the driver
//! calls.
//!
//! A driver unmaps only whole mappings, so the handle is the unit of decommitting. Each driver call
//! costs as much as many allocations, independent of the size. So a commit uses as few handles as
//! its caller allows.

use std::collections::BTreeMap;
use std::fmt;

use super::{Destination, DevicePtr, PageCost, VirtualMemory};
use crate::error::Result;
use crate::sync::Mutex;

/// A physical allocation of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub number: u64,
    pub bytes: u64,
}

/// The calls of a driver. If the device is out of memory, a call returns `None` or false.
pub(crate) trait HandleDriver: fmt::Debug + Send + Sync {
    /// Returns the unit of addresses and sizes, a power of two.
    fn granularity_bytes(&self) -> u64;

    fn reserve_addresses(&self, bytes: u64, alignment_bytes: u64) -> Result<Option<DevicePtr>>;

    /// # Safety
    ///
    /// The addresses were reserved with this length, and nothing is mapped at them.
    unsafe fn free_addresses(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    fn create(&self, bytes: u64) -> Result<Option<Handle>>;

    /// # Safety
    ///
    /// The addresses are reserved and unmapped. The handle is not mapped yet.
    unsafe fn map(&self, address: DevicePtr, handle: Handle) -> Result<bool>;

    /// Grants kernels read and write access to a part of a range.
    ///
    /// # Safety
    ///
    /// The part consists of whole mappings.
    unsafe fn allow_access(&self, address: DevicePtr, bytes: u64) -> Result<bool>;

    /// # Safety
    ///
    /// The whole handle is mapped at `address`, and nothing uses the memory any longer.
    unsafe fn unmap(&self, address: DevicePtr, handle: Handle) -> Result<()>;

    /// # Safety
    ///
    /// The handle is not mapped, and is not used again.
    unsafe fn release(&self, handle: Handle) -> Result<()>;
}

const PAGE_BYTES: u64 = 2 << 20;
/// The divisor that limits the kept bytes: at most 1/4 of the mapped bytes are kept for the next
/// commit. If a decommit for the next growth is larger, its size is the limit.
const KEPT_DIVISOR: u64 = 4;

/// The address ranges of a device, mapped in handles.
#[derive(Debug)]
pub(crate) struct Handles<D: HandleDriver> {
    driver: D,
    state: Mutex<HandlesState>,
}

/// Invariants:
/// - `mapped` has every mapping by address, and mappings do not overlap. If the driver fails to
///   unmap a handle, the handle stays in `mapped`. The next commit at its address uses this
///   mapping.
/// - `kept` has the unmapped handles.
/// - The byte counts are the sums over `mapped` and over `kept`.
#[derive(Debug, Default)]
struct HandlesState {
    mapped: BTreeMap<u64, Handle>,
    mapped_bytes: u64,
    kept: Vec<Handle>,
    kept_bytes: u64,
}

impl HandlesState {
    fn insert(&mut self, address: u64, handle: Handle) {
        self.mapped_bytes += handle.bytes;
        let before = self.mapped.insert(address, handle);
        debug_assert_eq!(before, None, "{address:#x} is mapped");
    }

    fn remove(&mut self, address: u64) -> Option<Handle> {
        let handle = self.mapped.remove(&address)?;
        self.mapped_bytes -= handle.bytes;
        Some(handle)
    }

    fn keep(&mut self, handle: Handle) {
        self.kept_bytes += handle.bytes;
        self.kept.push(handle);
    }

    /// Removes and returns the largest kept handle of at most `bytes`.
    fn take_kept(&mut self, bytes: u64) -> Option<Handle> {
        let fitting = (0..self.kept.len()).filter(|&index| self.kept[index].bytes <= bytes);
        let largest = fitting.max_by_key(|&index| self.kept[index].bytes)?;
        let handle = self.kept.swap_remove(largest);
        self.kept_bytes -= handle.bytes;
        Some(handle)
    }

    /// Returns the mappings that lie completely in a part.
    fn mapped_in(
        &self,
        address: u64,
        bytes: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, Handle)> {
        let end = address + bytes;
        let begun = self.mapped.range(address..end);
        let begun = begun.map(|(&at, &handle)| (at, handle));
        begun.filter(move |(at, handle)| at + handle.bytes <= end)
    }

    fn overlapping(&self, address: u64, bytes: u64) -> Vec<(u64, Handle)> {
        let before = self.mapped.range(..address).next_back();
        let before = before.filter(|(at, handle)| *at + handle.bytes > address);
        let inside = self.mapped.range(address..address + bytes);
        let all = before.into_iter().chain(inside);
        all.map(|(&at, &handle)| (at, handle)).collect()
    }

    fn gaps_in(&self, address: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = address + bytes;
        let before = self.mapped.range(..address).next_back();
        let before = before.map_or(address, |(at, handle)| at + handle.bytes);
        let (mut gaps, mut at) = (Vec::new(), before.max(address));
        for (&next, handle) in self.mapped.range(address..end) {
            if at < next {
                gaps.push((at, next - at));
            }
            at = next + handle.bytes;
        }
        if at < end {
            gaps.push((at, end - at));
        }
        gaps
    }
}

impl<D: HandleDriver> Handles<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self {
            driver,
            state: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// Maps handles into a gap, and appends the addresses of the mappings to `fresh`. Returns false
    /// if the device is exhausted.
    fn fill(
        &self,
        state: &mut HandlesState,
        (address, bytes): (u64, u64),
        max_handle_bytes: u64,
        fresh: &mut Vec<u64>,
    ) -> Result<bool> {
        let mut at = address;
        while at < address + bytes {
            let wanted_bytes = address + bytes - at;
            let Some(handle) = self.handle(state, wanted_bytes, max_handle_bytes)? else {
                return Ok(false);
            };
            // SAFETY: the gap is unmapped. The handle is new or was kept, so it is not mapped. By
            // the contract of `commit`, the gap lies in a reserved range.
            let mapped = unsafe { self.driver.map(DevicePtr(at), handle) };
            if !matches!(mapped, Ok(true)) {
                state.keep(handle);
                return mapped;
            }
            state.insert(at, handle);
            fresh.push(at);
            at += handle.bytes;
        }
        // SAFETY: the gap is filled with whole mappings.
        unsafe { self.driver.allow_access(DevicePtr(address), bytes) }
    }

    /// Returns a handle of at most `bytes` and `max_handle_bytes`: a kept handle if one fits, else
    /// a new handle. Before it creates a handle, it releases the kept handles. So the held memory
    /// never exceeds the larger of the earlier held memory and the committed memory.
    fn handle(
        &self,
        state: &mut HandlesState,
        bytes: u64,
        max_handle_bytes: u64,
    ) -> Result<Option<Handle>> {
        if let Some(kept) = state.take_kept(bytes.min(max_handle_bytes)) {
            return Ok(Some(kept));
        }
        self.release_all_kept(state)?;
        self.driver.create(bytes.min(max_handle_bytes))
    }

    /// Unmaps and keeps the handles at these addresses. Tries every address, and returns the first
    /// failure.
    fn unmap(&self, state: &mut HandlesState, addresses: &[u64]) -> Result<()> {
        let mut outcome = Ok(());
        for &address in addresses {
            let handle = state.mapped[&address];
            // SAFETY: `mapped` has the handle at this address. The callers ensure that nothing uses
            // its memory.
            let unmapped = unsafe { self.driver.unmap(DevicePtr(address), handle) };
            if unmapped.is_ok() {
                state.keep(handle);
                state.remove(address);
            }
            outcome = outcome.and(unmapped);
        }
        outcome
    }

    /// Releases kept handles until at most `most_bytes` are kept. If the driver fails to release a
    /// handle, this handle stays kept, and further handles are released. Returns the first failure.
    fn release_kept_beyond(&self, state: &mut HandlesState, most_bytes: u64) -> Result<()> {
        let mut outcome = Ok(());
        let mut failed = Vec::new();
        while state.kept_bytes > most_bytes
            && let Some(handle) = state.kept.pop()
        {
            state.kept_bytes -= handle.bytes;
            // SAFETY: a kept handle is not mapped, and `kept` had its only copy.
            let released = unsafe { self.driver.release(handle) };
            if released.is_err() {
                failed.push(handle);
            }
            outcome = outcome.and(released);
        }
        for handle in failed {
            state.keep(handle);
        }
        outcome
    }

    fn release_all_kept(&self, state: &mut HandlesState) -> Result<()> {
        self.release_kept_beyond(state, 0)
    }

    fn addresses_in(state: &HandlesState, address: DevicePtr, bytes: u64) -> Vec<u64> {
        let mapped = state.mapped_in(address.0, bytes);
        mapped.map(|(address, _)| address).collect()
    }
}

impl<D: HandleDriver> VirtualMemory for Handles<D> {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES.max(self.driver.granularity_bytes())
    }

    fn min_page_bytes(&self) -> u64 {
        self.driver.granularity_bytes()
    }

    fn page_cost(&self) -> PageCost {
        PageCost::High
    }

    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        self.driver.reserve_addresses(bytes, self.page_bytes())
    }

    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()> {
        let state = &mut *self.state.lock();
        let mut unmapped = self.unmap(state, &Self::addresses_in(state, range, bytes));
        if unmapped.is_err() {
            // Retries now, because no later call unmaps the remaining handles.
            unmapped = self.unmap(state, &Self::addresses_in(state, range, bytes));
        }
        let released = self.release_all_kept(state);
        unmapped?;
        // SAFETY: by this function's contract, the range was reserved. `unmap` has unmapped all of
        // its handles.
        unsafe { self.driver.free_addresses(range, bytes) }?;
        released
    }

    unsafe fn commit(&self, address: DevicePtr, bytes: u64, max_handle_bytes: u64) -> Result<bool> {
        let state = &mut *self.state.lock();
        // A mapping may remain from a failed call, possibly without kernel access.
        for (at, handle) in state.overlapping(address.0, bytes) {
            // SAFETY: `overlapping` returns whole mappings.
            if !unsafe { self.driver.allow_access(DevicePtr(at), handle.bytes) }? {
                return Ok(false);
            }
        }
        let mut fresh = Vec::new();
        for gap in state.gaps_in(address.0, bytes) {
            let filled = self.fill(state, gap, max_handle_bytes, &mut fresh);
            if !matches!(filled, Ok(true)) {
                let undone = self.unmap(state, &fresh);
                let released = self.release_all_kept(state);
                return filled.and_then(|_| undone.and(released).map(|()| false));
            }
        }
        Ok(true)
    }

    unsafe fn decommit(&self, address: DevicePtr, bytes: u64, to: Destination) -> Result<()> {
        let state = &mut *self.state.lock();
        self.unmap(state, &Self::addresses_in(state, address, bytes))?;
        let most_bytes = match to {
            Destination::Device => 0,
            Destination::NextGrowth => (state.mapped_bytes / KEPT_DIVISOR).max(bytes),
        };
        // The error is ignored, because a handle that cannot be released stays kept and counted.
        // `release_kept` retries the release and returns the error.
        let _ = self.release_kept_beyond(state, most_bytes);
        Ok(())
    }

    fn separable(&self, address: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        let state = self.state.lock();
        let mapped = state.mapped_in(address.0, bytes);
        mapped
            .map(|(address, handle)| (DevicePtr(address), handle.bytes))
            .collect()
    }

    fn kept_bytes(&self) -> u64 {
        self.state.lock().kept_bytes
    }

    fn release_kept(&self) -> Result<()> {
        self.release_all_kept(&mut self.state.lock())
    }
}

#[cfg(test)]
mod tests;
