//! The examples' report of the memory that a scope saved.

use cachescope::{CacheConfig, Device, Policy, cache_stats, invalidate_cache};

const KIB: u64 = 1024;

/// Returns the scope and the policy of a step. The first half of a training run has the policy
/// Recycle, the second half the policy Plan.
pub fn half(step: usize, steps: usize) -> (&'static str, Policy) {
    match 2 * step <= steps {
        true => (HALVES[0], Policy::Recycle),
        false => (HALVES[1], Policy::Plan),
    }
}

/// The names of the scopes that [`half`] returns.
pub const HALVES: [&str; 2] = ["train (recycle)", "train (plan)"];

/// Makes the scope's cache record the requests of each entry, which [`print()`] reports.
pub fn watch(scope: &str) {
    let config = CacheConfig {
        record: true,
        ..CacheConfig::default()
    };
    Device::current().configure_cache(scope, config);
}

/// Prints the statistics of the scope's cache, and invalidates it.
pub fn print(scope: &str) {
    let stats = cache_stats(scope).expect("the scope was entered");
    let record = Device::current().cache_record(scope);
    let entry_bytes: u64 = record.iter().map(|request| request.bytes).sum();
    let released = invalidate_cache(scope);
    println!(
        "\nscope \"{scope}\": {} entries, the last of them with {} requests for {} KiB together",
        stats.entries,
        record.len(),
        entry_bytes / KIB
    );
    println!(
        "  {} requests went to the device's pool, {} were served from what was freed before",
        stats.misses, stats.hits
    );
    println!(
        "  {} KiB alive at the most; {} KiB were not asked of the device again",
        stats.peak_live_bytes / KIB,
        (stats.entries * entry_bytes).saturating_sub(released.bytes) / KIB
    );
    println!(
        "  invalidated: {} blocks, {} KiB given back",
        released.blocks,
        released.bytes / KIB
    );
}
