//! What a scope saved, told by every example in the same way.

use cachescope::{CacheConfig, Device, cache_stats, invalidate_cache};

const KIB: u64 = 1024;

/// Has the cache note what each entry asks for, so that [`print`] can tell.
pub(crate) fn watch(scope: &str) {
    let config = CacheConfig {
        record: true,
        ..CacheConfig::default()
    };
    Device::current().configure_cache(scope, config);
}

/// Prints what the scope's cache did, and gives its memory back.
pub(crate) fn print(scope: &str) {
    let stats = cache_stats(scope).expect("the scope was entered");
    let record = Device::current().cache_record(scope);
    let entry_bytes: u64 = record.iter().map(|request| request.bytes).sum();
    let given_back = invalidate_cache(scope);
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
        (stats.entries * entry_bytes).saturating_sub(given_back.bytes) / KIB
    );
    println!(
        "  invalidated: {} blocks, {} KiB given back",
        given_back.blocks,
        given_back.bytes / KIB
    );
}
