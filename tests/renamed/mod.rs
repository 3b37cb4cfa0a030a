//! The macros, with every warning denied. The code is compiled in edition 2021 with a renamed
//! crate, and in edition 2024 as a module of `tests/macros.rs`.

#![deny(warnings, clippy::all)]

pub mod clean;

#[cfg(test)]
mod angle;
#[cfg(test)]
mod control_flow;
#[cfg(test)]
mod elementwise;
#[cfg(test)]
mod hygiene;
#[cfg(test)]
mod options;
#[cfg(test)]
mod temporaries;
#[cfg(test)]
mod values;

/// Returns whether the cache `name` serves an allocation on the current device.
#[cfg(test)]
fn is_bound(name: &str) -> bool {
    let requests = || scoped::cache_stats(name).map_or(0, |stats| stats.hits + stats.misses);
    let before = requests();
    let probe = scoped::Buffer::new(&scoped::Device::current(), 256);
    drop(probe.expect("256 bytes are there"));
    requests() > before
}

/// Returns the number of entries of the cache with this name on the current device.
#[cfg(test)]
fn entries(name: &str) -> u64 {
    scoped::cache_stats(name).map_or(0, |stats| stats.entries)
}
