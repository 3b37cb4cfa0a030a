//! The memory of the transforms: scratch memory for each thread, and tiles for rows that are
//! gathered.

use super::rows::FftRows;
use crate::array::{Buffer, Shape};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::host::threads::threads;

/// A tile for rows that are read, and a tile for as many rows that are written.
pub(super) struct RowTiles {
    pub(super) from: *mut u8,
    pub(super) to: *mut u8,
    pub(super) rows: usize,
}

/// The intended size of a thread's tiles in bytes, so that they stay in its cache.
const TILES_BYTES: usize = 512 << 10;

/// Returns the number of rows of a tile. If the memory allows, a tile has at least 8 rows, because
/// a cache line has 8 numbers. More than 64 rows are not faster.
fn tile_rows(row_bytes: usize) -> usize {
    let line = (SPACE_BYTES / row_bytes).clamp(1, 8);
    (TILES_BYTES / row_bytes).clamp(line, 64)
}

/// The maximum size of all slots, in bytes, if there are more slots than threads.
const SPACE_BYTES: usize = 16 << 20;

/// The alignment of the sections of a slot: a cache line.
const LINE_BYTES: usize = 64;

/// The memory of one launch of transforms.
pub(super) struct Space {
    /// The number of rows of a part of the work.
    pub(super) each: usize,
    pub(super) slots: Slots,
    /// The handle that keeps the memory allocated. The next user of the memory is ordered after the
    /// launch.
    _memory: Option<Buffer>,
}

/// A slot for each part of the work: scratch memory, and two tiles if there are any.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    base: *mut u8,
    slot_bytes: usize,
    scratch_bytes: usize,
    /// The offsets of the tiles in a slot.
    tiles: [usize; 2],
    tile_rows: usize,
}

// SAFETY: the address is of plain data. By the contract of `scratch`, only one thread uses a slot
// at a time.
unsafe impl Send for Slots {}
// SAFETY: by the contract of `scratch`, only one thread uses a slot at a time.
unsafe impl Sync for Slots {}

impl Space {
    /// Allocates the slots for `count` rows.
    #[track_caller]
    pub(super) fn new(
        device: &Device,
        rows: &FftRows,
        count: usize,
        is_direct: bool,
    ) -> Result<Self> {
        let [read, written] = rows.row_bytes();
        let tile_rows = match is_direct {
            true => 0,
            false => tile_rows(read + written).min(count.max(1)),
        };
        let section = |bytes: usize, count: usize| {
            let bytes = bytes.saturating_mul(count);
            bytes
                .checked_next_multiple_of(LINE_BYTES)
                .unwrap_or(usize::MAX)
        };
        let first = section(rows.scratch_bytes, 1);
        let second = first.saturating_add(section(read, tile_rows));
        let slot_bytes = second.saturating_add(section(written, tile_rows));
        // There are more parts than threads, so that no thread waits long for the last part. If the
        // slots would need too much memory, there is one part for each thread.
        let many = 4 * threads();
        let parts = match slot_bytes.saturating_mul(many) <= SPACE_BYTES {
            true => many,
            false => threads(),
        };
        let each = count.div_ceil(parts).max(1);
        let parts = count.div_ceil(each);
        let memory = match slot_bytes {
            0 => None,
            _ => Some(Buffer::new(
                device,
                Shape::from([parts, slot_bytes]).size_bytes(size_of::<u8>())?,
            )?),
        };
        let base = (memory.as_ref()).map(|memory| host_pointer(DevicePtr(memory.address())));
        Ok(Self {
            each,
            slots: Slots {
                base: base.unwrap_or(std::ptr::dangling_mut::<[u64; 8]>().cast()),
                slot_bytes,
                scratch_bytes: rows.scratch_bytes,
                tiles: [first, second],
                tile_rows,
            },
            _memory: memory,
        })
    }
}

impl Slots {
    /// Returns the scratch memory of a slot, filled with zeros.
    ///
    /// # Safety
    ///
    /// The slot must exist. Its memory must be alive, and nothing else may access it.
    pub(super) unsafe fn scratch(self, number: usize) -> *mut u8 {
        let base = self.base.wrapping_add(number * self.slot_bytes);
        // If there is no scratch memory, `base` is not an address of memory. A call of
        // `write_bytes` would write no byte, but the C library's masked store is slow at an invalid
        // address.
        if self.scratch_bytes > 0 {
            // SAFETY: a slot begins with `scratch_bytes` bytes, by this function's contract.
            unsafe { base.write_bytes(0, self.scratch_bytes) };
        }
        base
    }

    /// Returns the tiles of a slot.
    pub(super) fn tiles(self, number: usize) -> RowTiles {
        let base = self.base.wrapping_add(number * self.slot_bytes);
        RowTiles {
            from: base.wrapping_add(self.tiles[0]),
            to: base.wrapping_add(self.tiles[1]),
            rows: self.tile_rows,
        }
    }
}
