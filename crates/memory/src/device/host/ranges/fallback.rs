//! Ranges for platforms without virtual memory.

use crate::device::budget::Budget;
use crate::device::{Destination, DevicePtr, PageCost, VirtualMemory};
use crate::error::Result;
use crate::sync::Arc;

/// An uninhabited type for the ranges of a host device.
#[derive(Debug)]
pub(in crate::device::host) enum Ranges {}

impl Ranges {
    pub(in crate::device::host) fn new(_budget: &Arc<Budget>) -> Option<Self> {
        None
    }

    pub(in crate::device::host) fn without_data(_budget: &Arc<Budget>) -> Option<Self> {
        None
    }

    uninhabited! {
        pub(in crate::device::host) fn make_readable(
            &self, _address: DevicePtr, _bytes: u64
        ) -> Result<bool>;
    }
}

impl VirtualMemory for Ranges {
    uninhabited! {
        fn page_bytes(&self) -> u64;
        fn min_page_bytes(&self) -> u64;
        fn page_cost(&self) -> PageCost;
        fn reserve_range(&self, _bytes: u64) -> Result<Option<DevicePtr>>;
        unsafe fn release_range(&self, _range: DevicePtr, _bytes: u64) -> Result<()>;
        unsafe fn commit(
            &self, _address: DevicePtr, _bytes: u64, _max_handle_bytes: u64
        ) -> Result<bool>;
        unsafe fn decommit(
            &self, _address: DevicePtr, _bytes: u64, _to: Destination
        ) -> Result<()>;
    }
}
