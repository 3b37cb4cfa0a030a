//! The out-of-memory report: who holds the memory, and what would help.

use std::fmt;
use std::panic::Location;

use crate::naming::display_name;
use crate::size::{ByteSize, round_up};

/// The lines of a scope that the report names at most.
const LINES: usize = 5;

/// A scope that grew in so many entries is said to leak.
const LEAKING_ENTRIES: u64 = 3;

/// The state of a device when an allocation failed; plain data that each layer fills in.
#[derive(Clone, Debug, Default)]
pub(crate) struct OomReport {
    /// The name of the device.
    pub device: String,
    /// The innermost requesting scope, if any.
    pub scope: Option<String>,
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The limit on reserved bytes, if one is set.
    pub limit_bytes: Option<u64>,
    /// The total memory of the device.
    pub total_bytes: u64,
    /// The requested bytes of everything alive.
    pub live_bytes: u64,
    /// The named caches that hold something.
    pub caches: Vec<CacheUse>,
    /// The bytes held from the device.
    pub reserved_bytes: u64,
    /// The bytes that await a stream event.
    pub pending_bytes: u64,
    /// The free bytes of the pool.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
}

/// What a named cache holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheUse {
    pub name: String,
    pub cached_bytes: u64,
    pub live_bytes: u64,
    /// The most that was ever live.
    pub peak_live_bytes: u64,
    pub escaped_blocks: u64,
    /// By how much live bytes rose from exit to exit since they last fell, and in how many entries.
    pub grown_bytes: u64,
    pub grown_entries: u64,
    /// Whether nothing is reused before the exit, as under Bump.
    pub keeps_until_exit: bool,
    /// Of the present entry and the last one, where they are recorded: what is live or has escaped, by line.
    pub lines: Vec<LineUse>,
}

/// What one line of the program holds.
#[derive(Clone, Debug)]
pub(crate) struct LineUse {
    pub location: &'static Location<'static>,
    pub bytes: u64,
    pub blocks: u64,
}

impl OomReport {
    fn cached_bytes(&self) -> u64 {
        self.caches.iter().map(|cache| cache.cached_bytes).sum()
    }

    /// What the device may give at most.
    fn ceiling_bytes(&self) -> u64 {
        self.limit_bytes
            .map_or(self.total_bytes, |limit| limit.min(self.total_bytes))
    }

    /// The cache of the requesting scope.
    fn requester(&self) -> Option<&CacheUse> {
        let scope = self.scope.as_ref()?;
        self.caches.iter().find(|cache| cache.name == *scope)
    }

    /// The change that would help most, the most local one first.
    fn remedy(&self) -> String {
        let requested = self.requested_bytes;
        if requested > self.total_bytes {
            return "the request alone is larger than the device: split it".into();
        }
        if requested > self.ceiling_bytes() {
            let limit = enough(self.live_bytes.saturating_add(requested));
            return format!(
                "the request alone is larger than the limit: raise it to {limit} or more"
            );
        }
        if self.live_bytes.saturating_add(requested) > self.ceiling_bytes() {
            self.remedy_for_live()
        } else {
            self.remedy_for_idle()
        }
    }

    /// Live arrays fill the device.
    fn remedy_for_live(&self) -> String {
        let leaking = self
            .caches
            .iter()
            .filter(|cache| cache.is_leaking(self.live_bytes));
        if let Some(cache) = leaking.max_by_key(|cache| cache.grown_bytes) {
            let name = display_name(&cache.name);
            let how = if cache.lines.is_empty() {
                "; `CacheConfig { record: true, .. }` for it makes this report name the lines"
            } else {
                ""
            };
            return format!(
                "the scope \"{name}\" grows from entry to entry: drop what escapes from it, or keep a number instead of \
                 an array; a higher limit only delays this{how}"
            );
        }
        let (wanted, scope_text) = self.wanted_bytes();
        if self.limit_bytes.is_some() && wanted <= self.total_bytes {
            let limit = enough(wanted);
            return format!(
                "live arrays leave no room: drop some, use smaller batches, or raise the memory limit to {limit} or \
                 more{scope_text}"
            );
        }
        "live arrays leave no room: drop some before this allocation, or use smaller batches".into()
    }

    /// Enough is not live, but cannot be had.
    fn remedy_for_idle(&self) -> String {
        let requester = self.requester().filter(|cache| cache.keeps_until_exit);
        if let Some(cache) = requester.filter(|cache| cache.cached_bytes > 0) {
            let name = display_name(&cache.name);
            return format!(
                "under Bump the scope \"{name}\" reuses nothing before its exit: give it `Policy::Recycle` or \
                 `Policy::Plan`, which need only what is live at once"
            );
        }
        if self.cached_bytes() > 0 {
            return "a cache cannot give its idle blocks back: another thread is inside its scope, or a live array \
                    shares their arena or slab; leave the scope, drop the array, or set `max_bytes`"
                .into();
        }
        if self.free_bytes >= self.requested_bytes {
            return "enough is free, but fragmented: allocate large arrays first, or drop long-lived small ones"
                .into();
        }
        if self.limit_bytes.is_none() {
            return "the device refused although it has room: other processes may hold its memory"
                .into();
        }
        let limit = enough(self.reserved_bytes.saturating_add(self.requested_bytes));
        format!(
            "neither the free blocks nor the rest of the limit suffice: raise the memory limit to {limit} or more"
        )
    }

    /// A limit under which the request, and the whole entry as far as one is known, would find room, and which of both.
    fn wanted_bytes(&self) -> (u64, String) {
        let for_request = self.live_bytes.saturating_add(self.requested_bytes);
        let Some(scope) = self.requester() else {
            return (for_request, String::new());
        };
        let name = display_name(&scope.name);
        let elsewhere_bytes = self.live_bytes.saturating_sub(scope.live_bytes);
        let for_entry = elsewhere_bytes.saturating_add(scope.peak_live_bytes);
        if for_entry > for_request {
            let text = format!(", which the largest entry of \"{name}\" so far took");
            (for_entry, text)
        } else {
            let text =
                format!("; that is for this request, and the rest of \"{name}\" may need more");
            (for_request, text)
        }
    }

    /// Writes the report, with `place` after the request.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, place: &str) -> fmt::Result {
        let requested = ByteSize(self.requested_bytes);
        write!(f, "out of memory on {}: requested {requested}", self.device)?;
        if let Some(scope) = &self.scope {
            write!(f, " in the scope \"{}\"", display_name(scope))?;
        }
        f.write_str(place)?;
        let limit = match self.limit_bytes {
            Some(bytes) => ByteSize(bytes).to_string(),
            None => format!("none (the device has {})", ByteSize(self.total_bytes)),
        };
        write!(f, "\n  limit               {limit}")?;
        self.write_row(f, "live", self.live_bytes)?;
        let holders = self.caches.iter().filter(|cache| cache.live_bytes > 0);
        holders.clone().try_for_each(|cache| cache.write_live(f))?;
        let in_scopes: u64 = holders.map(|cache| cache.live_bytes).sum();
        if in_scopes > 0 && in_scopes < self.live_bytes {
            let outside = ByteSize(self.live_bytes - in_scopes);
            write!(f, "\n    outside of every scope: {outside}")?;
        }
        self.write_row(f, "reserved", self.reserved_bytes)?;
        self.write_row(f, "pending", self.pending_bytes)?;
        self.write_row(f, "free in the pool", self.free_bytes)?;
        self.write_row(f, "largest free block", self.largest_free_block_bytes)?;
        self.write_row(f, "cached", self.cached_bytes())?;
        for cache in self.caches.iter().filter(|cache| cache.cached_bytes > 0) {
            let (name, bytes) = (display_name(&cache.name), ByteSize(cache.cached_bytes));
            write!(f, "\n    by \"{name}\": {bytes}")?;
        }
        write!(f, "\n  remedy: {}", self.remedy())
    }

    fn write_row(&self, f: &mut fmt::Formatter<'_>, label: &str, bytes: u64) -> fmt::Result {
        write!(f, "\n  {label:<20}{}", ByteSize(bytes))
    }
}

impl CacheUse {
    /// Whether growth from entry to entry makes up a good part of what is live on the device.
    fn is_leaking(&self, live_bytes: u64) -> bool {
        self.grown_entries >= LEAKING_ENTRIES && self.grown_bytes >= live_bytes / 4
    }

    fn write_live(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) = (display_name(&self.name), ByteSize(self.live_bytes));
        write!(f, "\n    of \"{name}\": {bytes}")?;
        if self.escaped_blocks > 0 {
            let noun = plural(self.escaped_blocks, "block");
            write!(f, ", {} {noun} escaped", self.escaped_blocks)?;
        }
        if self.grown_entries > 0 {
            let (grown, entries) = (ByteSize(self.grown_bytes), self.grown_entries);
            let noun = if entries == 1 { "entry" } else { "entries" };
            write!(f, ", grew by {grown} in {entries} {noun}")?;
        }
        for line in self.lines.iter().take(LINES) {
            let noun = plural(line.blocks, "block");
            let bytes = ByteSize(line.bytes);
            write!(
                f,
                "\n      {bytes} in {} {noun} at {}",
                line.blocks, line.location
            )?;
        }
        Ok(())
    }
}

fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{noun}{ending}")
}

/// A limit to suggest: `bytes` rounded up to a size that prints exactly.
fn enough(bytes: u64) -> ByteSize {
    const MIB: u64 = 1 << 20;
    let unit = if bytes < MIB { 1 << 10 } else { MIB };
    ByteSize(round_up(bytes, unit).unwrap_or(bytes))
}
