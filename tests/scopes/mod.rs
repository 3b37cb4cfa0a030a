//! The semantics of scopes: tests of the numbered rules of the contract.

mod bump;
mod changes;
mod devices;
mod drift;
mod empty;
mod endings;
mod escape;
mod invalidation;
mod lengths;
mod limits;
mod names;
mod nesting;
mod plan;
mod policies;
mod record;
mod report;
mod reuse;
mod sequences;
mod suspended;
mod threads;
mod unwinding;

use cachescope::{CacheStats, Device, DeviceConfig, Policy};
use under_test::device_with;

const MIB: usize = 1 << 20;

const POLICIES: [Policy; 4] = [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan];

/// Returns a device with its own memory and caches.
fn device() -> Device {
    device_with(DeviceConfig::default()).unwrap()
}

fn stats(device: &Device, name: &str) -> CacheStats {
    device.cache_stats(name).unwrap()
}
