//! The statistics of a device's memory.

use super::DeviceMemory;

/// A snapshot of a device's memory. All sizes are in bytes.
///
/// Requested ≤ allocated ≤ reserved: arrays request `live_bytes`, their blocks are rounded up, and
/// blocks are cut from reserved segments.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
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
    /// Blocks held by arrays and buffers.
    pub live_blocks: u64,
    /// Bytes requested by arrays and buffers that are alive.
    pub live_bytes: u64,
    /// Bytes handed out by the pool, to arrays (rounded) and to named caches.
    pub allocated_bytes: u64,
    /// Bytes idle in named caches.
    pub cached_bytes: u64,
    /// Bytes held from the device.
    pub reserved_bytes: u64,
    /// Reserved bytes that were taken out of the pool for the next growth. On a GPU, these bytes
    /// are kept until the memory grows again or is trimmed.
    pub kept_bytes: u64,
    /// Freed bytes that await a stream event or the end of a capture.
    pub pending_bytes: u64,
    /// The highest `live_bytes` since the start or the last
    /// [`reset_peaks`](crate::Device::reset_peaks). The peak is an upper bound, because threads
    /// inside scopes may reach their own peaks at different times. An array that is dropped outside
    /// its scope counts as live for a while. This time ends when its cache is entered or inspected,
    /// or when an allocation misses the caches.
    pub peak_live_bytes: u64,
    /// The highest `reserved_bytes` since the start or the last `reset_peaks`.
    pub peak_reserved_bytes: u64,
    /// The longest contiguous block that the pool can hand out without reserving.
    pub largest_free_block_bytes: u64,
    /// Segments that hold memory. A segment that grows in place counts once.
    pub segments: u64,
    /// Reservations so far, including each growth of a segment in place.
    pub reserves: u64,
    /// Reservations released so far. If a segment that grew several times shrinks, each released
    /// part counts as one reservation. At least one reservation remains while the segment holds
    /// memory. The end of the segment counts all remaining reservations. So the count equals
    /// `reserves` once no memory is held.
    pub releases: u64,
    /// Requests that needed the reclaim ladder.
    pub retries: u64,
    /// Requests that failed after the whole ladder.
    pub out_of_memory: u64,
    /// Bytes of results that an activation budget recomputed so far.
    pub recomputed_bytes: u64,
}

impl MemoryStats {
    /// Returns the fragmentation of the pool's free bytes: 1 − largest free block / free bytes.
    /// Returns 0.0 if no bytes are free.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { expandable_segments: false, ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// assert_eq!(device.memory_stats().fragmentation(), 0.0); // Nothing is free.
    /// let [first, _second, third] = [4096, 4096, 4096].map(|bytes| Buffer::new(&device, bytes));
    /// drop((first?, third?));
    /// assert!(device.memory_stats().fragmentation() > 0.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn fragmentation(&self) -> f64 {
        let out = self.allocated_bytes + self.pending_bytes + self.kept_bytes;
        let free = self.reserved_bytes.saturating_sub(out);
        if free == 0 {
            return 0.0;
        }
        1.0 - self.largest_free_block_bytes as f64 / free as f64
    }
}

impl DeviceMemory {
    pub(crate) fn note_recomputed(&self, bytes: u64) {
        self.state.lock().counted.recomputed_bytes += bytes;
    }

    /// Returns the statistics of this layer. The caches fill in the other fields.
    pub(crate) fn stats(&self) -> MemoryStats {
        let state = self.state.lock();
        let reserved_bytes = self.source.reserved_bytes();
        let kept_bytes = self.kept_bytes();
        let pending_bytes = state.pending.bytes();
        MemoryStats {
            allocated_bytes: reserved_bytes - state.pool.free_bytes() - pending_bytes,
            reserved_bytes: reserved_bytes + kept_bytes,
            kept_bytes,
            pending_bytes,
            largest_free_block_bytes: state.pool.largest_free_block_bytes(),
            segments: state.held().count() as u64,
            ..state.counted
        }
    }
}
