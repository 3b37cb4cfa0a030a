//! Properties that hold for every pool, and properties of single pools.

mod blocks;
mod exhaustion;
mod kinds;
mod limits;
mod measure;
mod report;
mod scopes;
mod training;
use std::fmt;

use cachescope::{Device, DeviceConfig, PoolKind};
use under_test::device_with;

const MIB: usize = 1 << 20;

/// A configuration of a pool, with or without segments that may grow in place.
#[derive(Clone, Copy)]
struct Setup {
    pool: PoolKind,
    expandable: bool,
}

impl Setup {
    const fn of(pool: PoolKind) -> Self {
        Self {
            pool,
            expandable: true,
        }
    }
}

impl From<PoolKind> for Setup {
    fn from(pool: PoolKind) -> Self {
        Self::of(pool)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.expandable {
            ""
        } else {
            ", whole segments"
        };
        write!(f, "{}{how}", self.pool)
    }
}

/// The pools of the host.
const POOLS: [Setup; 4] = [
    Setup::of(PoolKind::BestFit),
    Setup {
        pool: PoolKind::BestFit,
        expandable: false,
    },
    Setup::of(PoolKind::Binned),
    Setup::of(PoolKind::Direct),
];

fn config(setup: impl Into<Setup>) -> DeviceConfig {
    let Setup { pool, expandable } = setup.into();
    DeviceConfig {
        pool,
        expandable_segments: expandable,
        fill_recycled: Some(0xFF),
        ..Default::default()
    }
}

fn device(setup: impl Into<Setup>) -> Device {
    device_with(config(setup)).unwrap()
}

fn limited(setup: impl Into<Setup>, limit_bytes: usize) -> Device {
    let config = DeviceConfig {
        memory_limit: Some(limit_bytes as u64),
        ..config(setup)
    };
    device_with(config).unwrap()
}

/// Checks that no block is live, cached or in use, and that nothing is reserved.
fn assert_empty(device: &Device, setup: impl Into<Setup>) {
    let setup = setup.into();
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0), "{setup}");
    assert_eq!(
        (stats.cached_bytes, stats.allocated_bytes),
        (0, 0),
        "{setup}"
    );
    assert_eq!((stats.reserved_bytes, stats.segments), (0, 0), "{setup}");
    assert_eq!(stats.reserves, stats.releases, "{setup}");
    assert_eq!(stats.fragmentation(), 0.0, "{setup}");
}
