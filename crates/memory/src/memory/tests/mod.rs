//! Tests of the memory over the host: the ladder, ranges, and random programs against a model.

mod attachments;
mod ladder;
mod model;
mod ranges;

use super::*;
use crate::device::host::HostBackend;
use crate::error::ErrorKind;

const UNIT: u64 = 512;
const MIB: u64 = 1 << 20;

fn memory(limit_bytes: Option<u64>, fault: Option<FaultPlan>) -> DeviceMemory {
    memory_of(PoolKind::BestFit, limit_bytes, fault)
}

fn without_ranges(limit_bytes: Option<u64>, fault: Option<FaultPlan>) -> DeviceMemory {
    memory_with(&MemoryConfig {
        limit_bytes,
        fault,
        expandable: false,
        ..MemoryConfig::default()
    })
}

fn memory_of(pool: PoolKind, limit_bytes: Option<u64>, fault: Option<FaultPlan>) -> DeviceMemory {
    memory_with(&MemoryConfig {
        pool,
        limit_bytes,
        fault,
        ..MemoryConfig::default()
    })
}

fn memory_with(config: &MemoryConfig) -> DeviceMemory {
    DeviceMemory::new(Arc::new(HostBackend::new()), config).unwrap()
}

fn request(bytes: u64) -> Request<'static> {
    Request {
        bytes,
        stream: StreamId::default(),
        scope: None,
    }
}

impl DeviceMemory {
    fn take_of(&self, bytes: u64) -> Block {
        let block = self.allocate(&request(bytes)).unwrap();
        self.check();
        block
    }

    fn idle_bytes(&self) -> u64 {
        let state = self.state.lock();
        let segments = state.pool.idle_segments();
        let segments = segments.iter().map(|&id| state.segment(id).held_bytes);
        let pages = state.pool.idle_pages(self.page_bytes());
        segments.sum::<u64>() + pages.iter().map(|pages| pages.bytes).sum::<u64>()
    }
}
