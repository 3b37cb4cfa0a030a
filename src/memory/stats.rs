//! What is counted about a device's memory.

use super::DeviceMemory;

/// A snapshot of a device's memory; all sizes in bytes.
///
/// Requested ≤ allocated ≤ reserved: an array asks for `live_bytes`, its block is a little longer,
/// and blocks are cut out of reserved segments.
///
/// # Examples
///
/// ```
/// use cachescope::{Buffer, Device, DeviceConfig};
///
/// let device = Device::host_with(DeviceConfig::default())?;
/// let buffer = Buffer::new(&device, 1000)?;
/// let stats = device.memory_stats();
/// assert_eq!((stats.live_blocks, stats.live_bytes), (1, 1000));
/// assert_eq!(stats.allocated_bytes, 1024);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Blocks that an array or a buffer holds.
    pub live_blocks: u64,
    /// Bytes requested and alive.
    pub live_bytes: u64,
    /// Bytes that the pool has handed out, to arrays (rounded) and to named caches.
    pub allocated_bytes: u64,
    /// Bytes idle in named caches.
    pub cached_bytes: u64,
    /// Bytes held from the device.
    pub reserved_bytes: u64,
    /// Bytes freed that await a stream event, or the end of a capture.
    pub pending_bytes: u64,
    /// The highest `live_bytes` since the beginning or the last
    /// [`reset_peaks`](crate::Device::reset_peaks); never less than it was. It is more where threads
    /// inside scopes reach their own peaks at different times, and where an array was dropped
    /// outside of its scope: that counts as live until its cache is entered or looked at, or an
    /// allocation goes below the caches.
    pub peak_live_bytes: u64,
    /// The highest `reserved_bytes`, likewise.
    pub peak_reserved_bytes: u64,
    /// The longest contiguous part that the pool could hand out without asking the device.
    pub largest_free_block_bytes: u64,
    /// Segments of which something is held from the device; one that grows in place is one.
    pub segments: u64,
    /// Reservations made so far; each growth of a segment in place is one.
    pub reserves: u64,
    /// Reservations given back so far: where a segment grew by several and shrinks in parts, a part
    /// counts as one, but what is left of the segment as at least one, and its end as all the rest. So
    /// they are as many as `reserves` once nothing is held.
    pub releases: u64,
    /// Requests that needed the reclaim ladder.
    pub retries: u64,
    /// Requests that failed after all of it.
    pub out_of_memory: u64,
}

impl MemoryStats {
    /// How scattered the pool's free bytes are: 1 − largest free block / free bytes; 0.0 with
    /// nothing free.
    pub fn fragmentation(&self) -> f64 {
        let out = self.allocated_bytes + self.pending_bytes;
        let free = self.reserved_bytes.saturating_sub(out);
        if free == 0 {
            return 0.0;
        }
        1.0 - self.largest_free_block_bytes as f64 / free as f64
    }
}

impl DeviceMemory {
    /// What this layer knows; the caches above fill in the rest.
    pub(crate) fn stats(&self) -> MemoryStats {
        let state = self.state.lock();
        let reserved_bytes = self.source.reserved_bytes();
        let pending_bytes = state.pending.bytes();
        MemoryStats {
            allocated_bytes: reserved_bytes - state.pool.free_bytes() - pending_bytes,
            reserved_bytes,
            pending_bytes,
            peak_reserved_bytes: state.peak_reserved_bytes,
            largest_free_block_bytes: state.pool.largest_free_block_bytes(),
            segments: state.held().count() as u64,
            reserves: state.reserves,
            releases: state.releases,
            retries: state.retries,
            out_of_memory: state.out_of_memory,
            ..MemoryStats::default()
        }
    }
}
