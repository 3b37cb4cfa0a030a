//! Changes of caches, limits and pools, and reads of statistics, concurrent with other threads.

use std::panic::panic_any;
use std::time::Duration;

use cachescope::scope;
use cachescope::{CacheConfig, Stream};

use super::{Invalidates, NAMES, OnPurpose, POLICIES, Worker};
use crate::stress::owned::fail;

impl Worker {
    pub(super) fn change_caches(&mut self) {
        let (index, device) = self.device();
        let name = self.name();
        match self.random.below(8) {
            0..=2 => {
                device.invalidate_cache(&name);
            }
            3 => {
                device.invalidate_all_caches();
            }
            4 if self.round.removes => {
                device.remove_cache(&name);
            }
            5 => {
                let _invalidates = Invalidates {
                    device: &device,
                    index,
                    name: NAMES[self.random.below(NAMES.len())],
                    bindings: self.bindings.clone(),
                };
                if self.random.once_in(2) {
                    panic_any(OnPurpose);
                }
            }
            _ => device.configure_cache(
                &name,
                CacheConfig {
                    policy: *self.random.one_of(&POLICIES),
                    max_bytes: *self.random.one_of(&[None, None, Some(0), Some(100_000)]),
                    max_idle: *self.random.one_of(&[None, Some(Duration::ZERO)]),
                    keep_entries: *self.random.one_of(&[None, Some(1), Some(64)]),
                    record: self.random.once_in(4),
                },
            ),
        }
    }

    pub(super) fn change_memory(&mut self) {
        let (index, device) = self.device();
        match self.random.below(4) {
            0 => {
                device.trim(self.random.next() % (8 << 20));
            }
            1 => device.set_memory_limit(Some(self.random.next() % (24 << 20))),
            2 => device.set_memory_limit(self.round.limits[index]),
            _ => device.reset_peaks(),
        }
    }

    pub(super) fn look(&mut self) {
        let (index, device) = self.device();
        let name = self.name();
        match self.random.below(6) {
            0 => {
                let stats = device.memory_stats();
                let fragmentation = stats.fragmentation();
                if !(0.0..=1.0).contains(&fragmentation) {
                    fail(format!("a fragmentation of {fragmentation}: {stats:?}"));
                }
            }
            1 => drop(device.cache_stats(&name)),
            2 => drop(scope::report().to_string()),
            3 => drop(device.memory_report().to_string()),
            4 => drop(device.cache_record(&name)),
            _ => {
                let streams = &self.round.streams[index];
                let done = streams
                    .iter()
                    .try_for_each(Stream::synchronize)
                    .and_then(|()| device.synchronize());
                done.unwrap_or_else(|error| fail(format!("waiting: {error}")));
            }
        }
        let own = scope::current().map(|handle| handle.name().to_owned());
        drop(own);
    }
}
