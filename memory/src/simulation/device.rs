//! The simulated device: addresses without memory, and a ledger of the calls.

use std::collections::BTreeMap;

use super::costs::DriverCall;
use super::ledger::DriverLedger;
use crate::device::handles::{Handle, HandleDriver, Handles};
use crate::device::host_streams::{HostStream, StealWork};
use crate::device::{Backend, DeviceId, DevicePtr, Event, StreamId, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Mutex, Weak};

/// The unit of the driver's virtual memory.
const GRANULARITY_BYTES: u64 = 2 << 20;

/// A CUDA device with one stream, on which nothing runs.
#[derive(Debug)]
pub(super) struct SimulatedDevice {
    driver: Arc<SimulatedDriver>,
    ranges: Handles<Arc<SimulatedDriver>>,
}

/// The simulated driver. It hands out each address only once.
#[derive(Debug)]
pub(super) struct SimulatedDriver {
    total_bytes: u64,
    state: Mutex<DriverState>,
}

#[derive(Debug)]
struct DriverState {
    ledger: DriverLedger,
    used_bytes: u64,
    next_address: u64,
    next_handle: u64,
    /// The length of each mapping.
    mapped: BTreeMap<u64, u64>,
}

impl SimulatedDevice {
    pub(super) fn new(ledger: DriverLedger, total_bytes: u64) -> Self {
        let driver = Arc::new(SimulatedDriver {
            total_bytes,
            state: Mutex::new(DriverState {
                ledger,
                used_bytes: 0,
                next_address: GRANULARITY_BYTES,
                next_handle: 1,
                mapped: BTreeMap::new(),
            }),
        });
        Self {
            ranges: Handles::new(Arc::clone(&driver)),
            driver,
        }
    }

    /// Returns the bytes that are reserved from the device.
    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        self.driver.state.lock().used_bytes
    }

    /// Reads or writes the ledger.
    pub(super) fn with_ledger<T>(&self, look: impl FnOnce(&mut DriverLedger) -> T) -> T {
        look(&mut self.driver.state.lock().ledger)
    }
}

impl SimulatedDriver {
    /// Charges a call that reserves memory. Returns whether the device has enough. A refused call
    /// costs as much as a call over 0 bytes.
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

/// Fails: there is nothing to read or write.
fn without_memory<T>() -> Result<T> {
    let text = "a simulated device has addresses, and no memory";
    Err(Error::new(ErrorKind::Unsupported, text))
}

impl Backend for SimulatedDevice {
    fn id(&self) -> DeviceId {
        DeviceId::Cuda(0)
    }

    fn total_bytes(&self) -> u64 {
        self.driver.total_bytes
    }

    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        if !self.driver.take(DriverCall::MemAlloc, bytes) {
            return Ok(None);
        }
        Ok(self.driver.addresses(bytes))
    }

    fn release(&self, _address: DevicePtr, bytes: u64) -> Result<()> {
        self.driver.give(DriverCall::MemFree, bytes);
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(&self.ranges)
    }

    unsafe fn upload(&self, _: StreamId, _: DevicePtr, _: &[u8]) -> Result<()> {
        without_memory()
    }

    unsafe fn download(&self, _: StreamId, _: DevicePtr, _: &mut [u8]) -> Result<()> {
        without_memory()
    }

    unsafe fn fill(&self, _: StreamId, _: DevicePtr, _: u64, _: &[u8]) -> Result<()> {
        without_memory()
    }

    fn synchronize(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn new_stream(&self) -> Result<StreamId> {
        let text = "a simulated device has one stream";
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    fn new_host_stream(&self, _executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>> {
        without_memory()
    }

    fn retire_stream(&self, _: StreamId) {}

    fn streams(&self) -> u16 {
        1
    }

    fn uses_streams(&self) -> bool {
        false
    }

    fn record_event(&self, stream: StreamId) -> Result<Event> {
        Ok(Event {
            stream,
            position: 0,
        })
    }

    fn stream_wait_event(&self, _: StreamId, _: &Event) -> Result<()> {
        Ok(())
    }

    fn query_event(&self, _: &Event) -> Result<bool> {
        Ok(true)
    }

    fn synchronize_event(&self, _: &Event) -> Result<()> {
        Ok(())
    }
}
