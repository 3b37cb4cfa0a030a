//! A source without a device, which checks its callers.

use std::collections::BTreeMap;

use super::{ReserveAt, Source, SourcePart};
use crate::device::{Destination, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;

/// A source that hands out addresses up to a capacity, and rejects releases that match no
/// reservation.
#[derive(Debug)]
pub(crate) struct TestSource {
    state: Mutex<TestSourceState>,
}

#[derive(Debug, Default)]
struct TestSourceState {
    capacity: u64,
    next_address: u64,
    held: BTreeMap<u64, u64>,
    broken: bool,
}

impl TestSourceState {
    fn held_bytes(&self) -> u64 {
        self.held.values().sum()
    }

    fn broken(&self) -> Result<()> {
        if self.broken {
            return Err(Error::new(ErrorKind::Driver, "the device broke down"));
        }
        Ok(())
    }
}

impl TestSource {
    pub(crate) fn new(capacity: u64) -> Self {
        let state = TestSourceState {
            capacity,
            next_address: 4096,
            ..TestSourceState::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.state.lock().held_bytes()
    }

    /// Makes every later call fail.
    pub(crate) fn break_down(&self) {
        self.state.lock().broken = true;
    }
}

impl Source for TestSource {
    fn reserve(&self, _at: ReserveAt, bytes: u64, _stream: StreamId) -> Result<Option<DevicePtr>> {
        let mut state = self.state.lock();
        state.broken()?;
        let Some(sum) = state.held_bytes().checked_add(bytes) else {
            return Ok(None);
        };
        if sum > state.capacity {
            return Ok(None);
        }
        let address = state.next_address;
        state.next_address += 4096;
        state.held.insert(address, bytes);
        Ok(Some(DevicePtr(address)))
    }

    fn release(&self, part: SourcePart, _to: Destination) -> Result<()> {
        let SourcePart { address, bytes, .. } = part;
        let mut state = self.state.lock();
        state.broken()?;
        assert_eq!(state.held.remove(&address.0), Some(bytes), "{address:?}");
        Ok(())
    }
}

/// Reserves a segment for stream 0 on a working device.
pub(crate) fn try_reserve(source: &dyn Source, bytes: u64) -> Option<DevicePtr> {
    source
        .reserve(ReserveAt::Anywhere, bytes, StreamId(0))
        .unwrap()
}

/// Reserves a segment that must be granted.
pub(crate) fn reserve(source: &dyn Source, bytes: u64) -> DevicePtr {
    let reserved = try_reserve(source, bytes);
    reserved.unwrap_or_else(|| panic!("{bytes} bytes were refused by {source:?}"))
}

/// Reserves a segment that must be refused.
pub(crate) fn reserve_none(source: &dyn Source, bytes: u64) {
    assert_eq!(try_reserve(source, bytes), None, "{bytes} bytes");
}

/// Releases a segment, which must succeed.
pub(crate) fn release(source: &dyn Source, address: DevicePtr, bytes: u64) {
    release_on(source, address, bytes, StreamId(0));
}

/// Like [`release`], for a segment that was reserved for `stream`.
pub(crate) fn release_on(source: &dyn Source, address: DevicePtr, bytes: u64, stream: StreamId) {
    let part = SourcePart::new(address, bytes, stream);
    source.release(part, Destination::Device).unwrap();
}
