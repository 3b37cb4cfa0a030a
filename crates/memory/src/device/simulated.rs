//! The simulated driver: addresses without memory, and a ledger of the calls.

use std::collections::BTreeMap;

use super::DevicePtr;
use super::handles::{Handle, HandleDriver};
use crate::costs::{DriverCall, DriverLedger};
use crate::error::Result;
use crate::sync::{Arc, Mutex};

/// The unit of the driver's virtual memory.
const GRANULARITY_BYTES: u64 = 2 << 20;

/// The simulated driver. It returns each address only once.
#[derive(Debug)]
pub(crate) struct SimulatedDriver {
    total_bytes: u64,
    state: Mutex<DriverState>,
}

#[derive(Debug)]
struct DriverState {
    ledger: DriverLedger,
    used_bytes: u64,
    next_address: u64,
    next_handle: u64,
    /// The length of each mapping, by address.
    mapped: BTreeMap<u64, u64>,
}

impl SimulatedDriver {
    /// Creates the driver of a device with `total_bytes` of memory. The driver charges its calls to
    /// `ledger`.
    pub(crate) fn new(ledger: DriverLedger, total_bytes: u64) -> Self {
        Self {
            total_bytes,
            state: Mutex::new(DriverState {
                ledger,
                used_bytes: 0,
                next_address: GRANULARITY_BYTES,
                next_handle: 1,
                mapped: BTreeMap::new(),
            }),
        }
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    pub(crate) fn with_ledger<T>(&self, look: impl FnOnce(&mut DriverLedger) -> T) -> T {
        look(&mut self.state.lock().ledger)
    }

    /// Allocates memory outside the ranges. Returns `None` if the device is exhausted.
    pub(crate) fn allocate(&self, bytes: u64) -> Option<DevicePtr> {
        let is_taken = self.take(DriverCall::MemAlloc, bytes);
        is_taken.then(|| self.addresses(bytes)).flatten()
    }

    pub(crate) fn free(&self, bytes: u64) {
        self.give(DriverCall::MemFree, bytes);
    }

    /// Charges a call that takes memory. Returns whether the device has enough free memory. A
    /// refused call costs as much as a call for 0 bytes.
    fn take(&self, call: DriverCall, bytes: u64) -> bool {
        let state = &mut *self.state.lock();
        let used_bytes = state.used_bytes.checked_add(bytes);
        let used_bytes = used_bytes.filter(|&bytes| bytes <= self.total_bytes);
        state.ledger.charge(call, used_bytes.map_or(0, |_| bytes));
        state.used_bytes = used_bytes.unwrap_or(state.used_bytes);
        used_bytes.is_some()
    }

    fn give(&self, call: DriverCall, bytes: u64) {
        let state = &mut *self.state.lock();
        state.ledger.charge(call, bytes);
        state.used_bytes -= bytes;
    }

    fn addresses(&self, bytes: u64) -> Option<DevicePtr> {
        let state = &mut *self.state.lock();
        let address = state.next_address;
        let end = address.checked_add(bytes)?;
        state.next_address = end.checked_next_multiple_of(GRANULARITY_BYTES)?;
        Some(DevicePtr(address))
    }
}

impl HandleDriver for Arc<SimulatedDriver> {
    fn granularity_bytes(&self) -> u64 {
        GRANULARITY_BYTES
    }

    fn reserve_addresses(&self, bytes: u64, _alignment_bytes: u64) -> Result<Option<DevicePtr>> {
        let address = self.addresses(bytes);
        let mut state = self.state.lock();
        state.ledger.charge(DriverCall::MemAddressReserve, bytes);
        Ok(address)
    }

    unsafe fn free_addresses(&self, _address: DevicePtr, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.ledger.charge(DriverCall::MemAddressFree, bytes);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Option<Handle>> {
        if !self.take(DriverCall::MemCreate, bytes) {
            return Ok(None);
        }
        let state = &mut *self.state.lock();
        state.next_handle += 1;
        let number = state.next_handle;
        Ok(Some(Handle { number, bytes }))
    }

    unsafe fn map(&self, address: DevicePtr, handle: Handle) -> Result<bool> {
        let state = &mut *self.state.lock();
        state.ledger.charge(DriverCall::MemMap, handle.bytes);
        state.mapped.insert(address.0, handle.bytes);
        Ok(true)
    }

    unsafe fn allow_access(&self, address: DevicePtr, bytes: u64) -> Result<bool> {
        let state = &mut *self.state.lock();
        let mapped = state.mapped.range(address.0..address.0 + bytes);
        let mapped = mapped.map(|(_, &bytes)| bytes);
        state.ledger.charge_each(DriverCall::MemSetAccess, mapped);
        Ok(true)
    }

    unsafe fn unmap(&self, address: DevicePtr, handle: Handle) -> Result<()> {
        let state = &mut *self.state.lock();
        state.ledger.charge(DriverCall::MemUnmap, handle.bytes);
        state.mapped.remove(&address.0);
        Ok(())
    }

    unsafe fn release(&self, handle: Handle) -> Result<()> {
        self.give(DriverCall::MemRelease, handle.bytes);
        Ok(())
    }
}
