//! Scope semantics, rule by rule, as the contract numbers them.

mod bump;
mod devices;
mod drift;
mod escape;
mod invalidation;
mod limits;
mod nesting;
mod plan;
mod policies;
mod record;
mod report;
mod reuse;
mod sequences;
mod threads;

use cachescope::{CacheStats, Device, DeviceConfig};

const MIB: usize = 1 << 20;

/// A device whose memory and caches are the test's own.
fn device() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

fn stats(device: &Device, name: &str) -> CacheStats {
    device.cache_stats(name).unwrap()
}
