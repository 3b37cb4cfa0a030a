//! The simulated device: a backend over the simulated driver.

use crate::costs::DriverLedger;
use crate::device::handles::Handles;
use crate::device::host_streams::{HostStream, StealWork};
use crate::device::simulated::SimulatedDriver;
use crate::device::{Backend, DeviceId, DevicePtr, Event, StreamId, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Weak};

/// A CUDA device with one stream, which runs no work.
#[derive(Debug)]
pub(super) struct SimulatedDevice {
    driver: Arc<SimulatedDriver>,
    ranges: Handles<Arc<SimulatedDriver>>,
}

impl SimulatedDevice {
    pub(super) fn new(ledger: DriverLedger, total_bytes: u64) -> Self {
        let driver = Arc::new(SimulatedDriver::new(ledger, total_bytes));
        Self {
            ranges: Handles::new(Arc::clone(&driver)),
            driver,
        }
    }

    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        self.driver.used_bytes()
    }

    pub(super) fn with_ledger<T>(&self, look: impl FnOnce(&mut DriverLedger) -> T) -> T {
        self.driver.with_ledger(look)
    }
}

/// Fails, because the device has no memory to read or write.
fn without_memory<T>() -> Result<T> {
    let text = "a simulated device has addresses, but no memory";
    Err(Error::new(ErrorKind::Unsupported, text))
}

impl Backend for SimulatedDevice {
    fn id(&self) -> DeviceId {
        DeviceId::Cuda(0)
    }

    fn total_bytes(&self) -> u64 {
        self.driver.total_bytes()
    }

    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        Ok(self.driver.allocate(bytes))
    }

    fn release(&self, _address: DevicePtr, bytes: u64) -> Result<()> {
        self.driver.free(bytes);
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
