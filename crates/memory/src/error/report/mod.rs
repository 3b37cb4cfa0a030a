//! The out-of-memory report: the holders of the memory, and the remedy.

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::Location;
use std::path::PathBuf;
use std::time::Duration;

use crate::text::{ByteSize, display_name, round_up};

/// The maximum number of lines that the report names for a scope.
const LINES: usize = 5;

/// The number of entries in which a scope must grow before the report says that it leaks.
const LEAKING_ENTRIES: u64 = 3;

/// The state of a device when an allocation failed, in bytes, as returned by
/// [`Error::out_of_memory_report`](crate::Error::out_of_memory_report). `Display` writes the report
/// as text.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OutOfMemoryReport {
    /// The name of the device, such as `cuda:0`.
    pub device: String,
    /// The innermost scope of the request; `None` outside of every scope.
    pub scope: Option<String>,
    /// The bytes of the request that failed.
    pub requested_bytes: u64,
    /// The size of the block with which the pool would serve the request.
    pub(crate) rounded_bytes: u64,
    /// The memory limit, if one is set.
    pub limit_bytes: Option<u64>,
    /// The total memory of the device.
    pub total_bytes: u64,
    /// The requested bytes of all arrays and buffers that are alive.
    pub live_bytes: u64,
    /// The named caches that hold memory, the largest first, and the cache of `scope`.
    pub caches: Vec<CacheUse>,
    /// The bytes that this process has reserved from the device.
    pub reserved_bytes: u64,
    /// The freed bytes that await a stream event or the end of a capture.
    pub pending_bytes: u64,
    /// The reserved bytes that are free in the pool.
    pub free_bytes: u64,
    /// The bytes of the largest free block.
    pub largest_free_block_bytes: u64,
    /// The bytes that live blocks occupy beyond the requested bytes, by rounding and in shared
    /// arenas.
    pub rounding_bytes: u64,
    /// The idle bytes of all named caches: [`cached_bytes`](Self::cached_bytes).
    pub(crate) idle_bytes: u64,
    /// Reserved bytes that are kept for the next growth, as in
    /// [`MemoryStats`](crate::MemoryStats::kept_bytes).
    pub kept_bytes: u64,
    /// The bytes in transit between another thread and the pool.
    pub moving_bytes: u64,
    /// The maximum time that a request waits for threads inside of scopes:
    /// [`DeviceConfig::reclaim_wait`](crate::DeviceConfig::reclaim_wait).
    pub reclaim_wait: Duration,
    /// True if the device is recorded: the recording has the line of each live block.
    pub is_recorded: bool,
    /// The path of the report that `CACHESCOPE_PROFILE` wrote at the device's first failed request.
    pub profile: Option<PathBuf>,
}

/// The memory of a named cache in an [`OutOfMemoryReport`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheUse {
    /// The name of the cache.
    pub name: String,
    /// The idle bytes.
    pub cached_bytes: u64,
    /// The idle bytes that could not be released, because live blocks share their arena.
    pub(crate) stuck_bytes: u64,
    /// The bytes that escaped blocks keep beyond their own size, as in
    /// [`CacheStats`](crate::CacheStats::detached_bytes).
    pub detached_bytes: u64,
    /// The requested bytes of the cache's live blocks.
    pub live_bytes: u64,
    /// The peak of `live_bytes`.
    pub peak_live_bytes: u64,
    /// An upper bound of the pool memory that the blocks of `peak_live_bytes` occupied.
    pub(crate) peak_taken_bytes: u64,
    /// The number of live blocks that outlived their entry.
    pub escaped_blocks: u64,
    /// The rise of the bytes live at an exit, since they last fell from one exit to the next.
    pub grown_bytes: u64,
    /// The number of entries in which the bytes live at an exit rose by `grown_bytes`.
    pub grown_entries: u64,
    /// The names of the other threads that are inside the scope, and have idle blocks.
    pub entered_by: Vec<String>,
    /// True if no memory is reused before the exit, as under `Policy::Bump`.
    pub keeps_until_exit: bool,
    /// The live and escaped blocks of the present and the last entry, grouped by line. The line
    /// with the most bytes is first. If the cache is not recorded, the list is empty.
    pub lines: Vec<LineUse>,
}

/// The live memory that one line of the program allocated, in a [`CacheUse`] or a
/// [`Growth`](crate::scope::Growth).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineUse {
    /// The line that allocated the memory.
    pub call_site: &'static Location<'static>,
    /// The bytes of the line's blocks.
    pub bytes: u64,
    /// The number of the line's blocks.
    pub blocks: u64,
}

impl OutOfMemoryReport {
    /// Returns the idle bytes of all named caches, which could not be reclaimed.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// let _current = device.enter();
    /// cache_scope!("step", { Buffer::new(&device, 4096)?; });
    /// let error = Buffer::new(&device, 4 << 20).unwrap_err();
    /// // Idle blocks were reclaimed before the request failed.
    /// assert_eq!(error.out_of_memory_report().unwrap().cached_bytes(), 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cached_bytes(&self) -> u64 {
        self.idle_bytes
    }

    /// Returns the bytes that live blocks occupy.
    fn taken_bytes(&self) -> u64 {
        self.live_bytes + self.rounding_bytes
    }

    /// Returns the bytes that live blocks and the request need together.
    fn needed_bytes(&self) -> u64 {
        self.taken_bytes().saturating_add(self.rounded_bytes)
    }

    fn ceiling_bytes(&self) -> u64 {
        self.limit_bytes
            .map_or(self.total_bytes, |limit| limit.min(self.total_bytes))
    }

    fn requester(&self) -> Option<&CacheUse> {
        let scope = self.scope.as_ref()?;
        self.caches.iter().find(|cache| cache.name == *scope)
    }

    /// Returns the change of the program that would help most, as a sentence.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
    /// let error = Buffer::new(&Device::host_with(config)?, 4 << 20).unwrap_err();
    /// let remedy = error.out_of_memory_report().unwrap().remedy();
    /// assert_eq!(remedy, "the request alone is larger than the limit: raise it to 4 MiB or more");
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn remedy(&self) -> String {
        if self.rounded_bytes > self.total_bytes {
            let alone = self.request_alone();
            return format!("{alone} is larger than the device: split it");
        }
        if self.rounded_bytes > self.ceiling_bytes() {
            let (alone, limit) = (self.request_alone(), enough(self.needed_bytes()));
            return format!("{alone} is larger than the limit: raise it to {limit} or more");
        }
        if self.needed_bytes() > self.ceiling_bytes() {
            self.remedy_for_live()
        } else {
            self.remedy_for_idle()
        }
    }

    /// Returns the subject of a sentence about a request that is too large on its own. If
    /// `rounded_bytes` prints differently from `requested_bytes`, the phrase contains
    /// `rounded_bytes`.
    fn request_alone(&self) -> String {
        let requested = ByteSize(self.requested_bytes).to_string();
        let rounded = ByteSize(self.rounded_bytes).to_string();
        if requested == rounded {
            return "the request alone".into();
        }
        format!("the request alone, which the pool rounds up to {rounded},")
    }

    /// Returns the advice if live buffers fill the device.
    fn remedy_for_live(&self) -> String {
        let leaking = self
            .caches
            .iter()
            .filter(|cache| cache.is_leaking(self.live_bytes));
        if let Some(cache) = leaking.max_by_key(|cache| cache.grown_bytes) {
            let name = display_name(&cache.name);
            let how = self.how_to_find_lines(cache);
            return format!(
                "the scope \"{name}\" grows from entry to entry: drop what escapes from it, or keep a number instead of \
                 a buffer; a higher limit only delays this{how}"
            );
        }
        let (wanted, scope_text) = self.wanted_bytes();
        if self.limit_bytes.is_some() && wanted <= self.total_bytes {
            let limit = enough(wanted);
            return format!(
                "live buffers leave too little memory: drop some, use smaller batches, or raise \
                 the memory limit to {limit} or \
                 more{scope_text}"
            );
        }
        "live buffers leave too little memory: drop some before this allocation, or use smaller \
         batches"
            .into()
    }

    /// Returns a hint how to find the lines that hold a cache's memory. If the report has the
    /// lines, returns an empty text.
    fn how_to_find_lines(&self, cache: &CacheUse) -> String {
        match &self.profile {
            _ if !cache.lines.is_empty() => String::new(),
            Some(path) => format!("; {} shows the lines", path.display()),
            None if self.is_recorded => "; a report of the recording shows the lines".into(),
            None => "; `CacheConfig { record: true, .. }` for it makes this report name the lines"
                .into(),
        }
    }

    /// Returns the advice if the memory that is not live would suffice, but could not be allocated.
    fn remedy_for_idle(&self) -> String {
        if let Some(held) = self.remedy_for_entered() {
            return held;
        }
        let requester = self.requester().filter(|cache| cache.keeps_until_exit);
        if let Some(cache) = requester.filter(|cache| cache.cached_bytes > 0) {
            let name = display_name(&cache.name);
            return format!(
                "under Bump, the scope \"{name}\" reuses no memory before its exit: give it \
                 `Policy::Recycle` or \
                 `Policy::Plan`, which need only what is live at once"
            );
        }
        if self.moving_bytes > 0 {
            return "other threads were allocating or releasing memory at that moment: try again"
                .into();
        }
        let detached_bytes: u64 = self.caches.iter().map(|cache| cache.detached_bytes).sum();
        if self.cached_bytes() + detached_bytes > 0 {
            return "a cache cannot release its idle blocks, because a live buffer shares their \
                    arena or slab: drop the buffer, or set `max_bytes`"
                .into();
        }
        let is_fragmented = self.largest_free_block_bytes < self.rounded_bytes;
        if self.free_bytes >= self.rounded_bytes && is_fragmented {
            return "enough is free, but fragmented: allocate large buffers first, or drop long-lived small ones"
                .into();
        }
        // The limit does not count kept bytes.
        let counted_bytes = self.reserved_bytes.saturating_sub(self.kept_bytes);
        let wanted = counted_bytes.saturating_add(self.rounded_bytes);
        if self.limit_bytes.is_none_or(|limit| wanted <= limit) {
            return "the device refused the request although enough memory is free: other \
                    processes may have taken it"
                .into();
        }
        let limit = enough(wanted);
        format!(
            "neither the free blocks nor the rest of the limit suffice: raise the memory limit to {limit} or more"
        )
    }

    /// Returns the advice if other threads inside of scopes could make room by releasing idle
    /// memory.
    fn remedy_for_entered(&self) -> Option<String> {
        let stuck_bytes: u64 = self.caches.iter().map(|cache| cache.stuck_bytes).sum();
        if self.needed_bytes().saturating_add(stuck_bytes) > self.ceiling_bytes() {
            return None;
        }
        let entered = self.caches.iter();
        let entered = entered.filter(|cache| !cache.entered_by.is_empty());
        let could_release = |cache: &&CacheUse| cache.cached_bytes - cache.stuck_bytes;
        let cache = entered.max_by_key(could_release)?;
        if could_release(&cache) == 0 {
            return None;
        }
        let (name, threads) = (display_name(&cache.name), cache.entered_by.join(", "));
        let time = if self.reclaim_wait.is_zero() {
            "; `DeviceConfig::reclaim_wait` lets a request wait for them".to_owned()
        } else {
            format!(" within {:?}", self.reclaim_wait)
        };
        Some(format!(
            "the idle blocks of \"{name}\" are in scopes that other threads have entered \
             ({threads}), which released too little{time}: exit a scope before a long computation \
             or wait"
        ))
    }

    /// Returns a limit that suffices for the request, and a text that explains the limit. If an
    /// earlier entry of the requesting scope needed more, the limit suffices for a whole entry.
    fn wanted_bytes(&self) -> (u64, String) {
        let for_request = self.needed_bytes();
        let Some(scope) = self.requester() else {
            return (for_request, String::new());
        };
        let name = display_name(&scope.name);
        let elsewhere_bytes = self.taken_bytes().saturating_sub(scope.live_bytes);
        let for_entry = elsewhere_bytes.saturating_add(scope.peak_taken_bytes);
        if for_entry > for_request {
            let is_bound = scope.peak_taken_bytes > scope.peak_live_bytes;
            let took = if is_bound { "took at most" } else { "took" };
            let text = format!(", which the largest entry of \"{name}\" so far {took}");
            (for_entry, text)
        } else {
            let text =
                format!("; that is for this request, and the rest of \"{name}\" may need more");
            (for_request, text)
        }
    }

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
        let others = [
            ("rounding", self.rounding_bytes),
            ("kept for growth", self.kept_bytes),
            ("moving", self.moving_bytes),
        ];
        for (label, bytes) in others.into_iter().filter(|(_, bytes)| *bytes > 0) {
            self.write_row(f, label, bytes)?;
        }
        self.write_row(f, "reserved", self.reserved_bytes)?;
        self.write_row(f, "pending", self.pending_bytes)?;
        self.write_row(f, "free in the pool", self.free_bytes)?;
        self.write_row(f, "largest free block", self.largest_free_block_bytes)?;
        self.write_row(f, "cached", self.cached_bytes())?;
        for cache in self.caches.iter().filter(|cache| cache.cached_bytes > 0) {
            let (name, bytes) = (display_name(&cache.name), ByteSize(cache.cached_bytes));
            write!(f, "\n    by \"{name}\": {bytes}")?;
            if !cache.entered_by.is_empty() {
                write!(f, ", entered by {}", cache.entered_by.join(", "))?;
            }
        }
        if let Some(path) = &self.profile {
            write!(f, "\n  {:<20}{}", "profile", path.display())?;
        }
        write!(f, "\n  remedy: {}", self.remedy())
    }

    fn write_row(&self, f: &mut fmt::Formatter<'_>, label: &str, bytes: u64) -> fmt::Result {
        write!(f, "\n  {label:<20}{}", ByteSize(bytes))
    }
}

impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl CacheUse {
    /// Returns whether growth from entry to entry makes up a quarter or more of the device's live
    /// bytes.
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
        if self.detached_bytes > 0 {
            let kept = ByteSize(self.detached_bytes);
            write!(f, ", whose arenas keep {kept} more")?;
        }
        if self.grown_entries > 0 {
            let (grown, entries) = (ByteSize(self.grown_bytes), self.grown_entries);
            let noun = if entries == 1 { "entry" } else { "entries" };
            write!(f, ", grew by {grown} in {entries} {noun}")?;
        }
        for line in self.lines.iter().take(LINES) {
            write!(f, "\n      {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LineUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, blocks) = (ByteSize(self.bytes), self.blocks);
        let noun = plural(blocks, "block");
        write!(f, "{bytes} in {blocks} {noun} at {}", self.call_site)
    }
}

fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{noun}{ending}")
}

/// Returns a limit to suggest: `bytes` rounded up to a size that two decimals print exactly.
fn enough(bytes: u64) -> ByteSize {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;
    let unit = match bytes {
        0..MIB => 1 << 10,
        MIB..GIB => MIB,
        GIB..TIB => GIB / 4,
        TIB.. => TIB / 4,
    };
    ByteSize(round_up(bytes, unit).unwrap_or(bytes))
}
