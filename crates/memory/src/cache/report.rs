//! The statistics of every cache of a device as a table, and the growth of one cache.

use std::fmt;

use super::policy::Policy;
use super::stats::CacheStats;
use crate::error::LineUse;
use crate::naming::display_name;
use crate::size::ByteSize;

/// One named cache in a [`ScopeReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheReport {
    /// The name of the cache.
    pub name: String,
    /// The policy of the cache's next entry.
    pub policy: Policy,
    /// The statistics of the cache over all threads.
    pub stats: CacheStats,
}

/// The named caches of a device, sorted by name. `Display` prints a table. The table escapes
/// unprintable characters of names, and shortens long names. See
/// [`scope::report`](crate::scope::report).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeReport {
    /// The name of the device, such as "host" or "cuda:0".
    pub device: String,
    /// One row per cache.
    pub caches: Vec<CacheReport>,
}

impl fmt::Display for ScopeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .caches
            .iter()
            .map(|cache| display_name(&cache.name))
            .collect();
        let widths = names.iter().map(|name| name.chars().count());
        let width = widths.max().unwrap_or(0).max("cache".len());
        writeln!(f, "caches of {}", self.device)?;
        write!(
            f,
            "  {:<width$} {:<8} {:>10} {:>9} {:>11} {:>11} {:>8} {:>12}",
            "cache",
            "policy",
            "entries",
            "hit rate",
            "peak live",
            "cached",
            "escaped",
            "divergences"
        )?;
        names
            .iter()
            .zip(&self.caches)
            .try_for_each(|(name, cache)| {
                let stats = &cache.stats;
                write!(
                    f,
                    "\n  {:<width$} {:<8} {:>10} {:>9} {:>11} {:>11} {:>8} {:>12}",
                    name,
                    cache.policy.to_string(),
                    stats.entries,
                    hit_rate(stats),
                    ByteSize(stats.peak_live_bytes),
                    ByteSize(stats.cached_bytes),
                    stats.escaped_blocks,
                    stats.divergences,
                )?;
                match stats.out_of_order_exits {
                    0 => Ok(()),
                    exits => write!(
                        f,
                        "\n  {:<width$} exits while a scope entered later was open: {exits}; was a future \
                         suspended inside?",
                        ""
                    ),
                }
            })
    }
}

/// The memory that the entries of a cache allocate and do not free. See
/// [`scope::growth`](crate::scope::growth). `Display` prints a description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Growth {
    /// The number of entries with a rise of live bytes, since live bytes last fell.
    pub entries: u64,
    /// The rise of live bytes, since live bytes last fell.
    pub bytes: u64,
    /// The live allocations of the current entry and the last entry, by call site, in descending
    /// order of bytes. If [`CacheConfig::record`](crate::CacheConfig::record) is off, the list is
    /// empty.
    pub lines: Vec<LineUse>,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = ByteSize(self.bytes);
        write!(f, "{bytes} more live after {} entries", self.entries)?;
        let mut lines = self.lines.iter();
        lines.try_for_each(|line| write!(f, "\n  {line}"))
    }
}

fn hit_rate(stats: &CacheStats) -> String {
    match stats.hits + stats.misses {
        0 => "-".into(),
        requests => format!("{:.1}%", 100.0 * stats.hits as f64 / requests as f64),
    }
}
