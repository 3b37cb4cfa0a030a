//! The memory of the transforms: scratch memory for each thread, and tiles for rows that are
//! gathered.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;

use num_complex::Complex;

use super::rows::{RowTransform, zeroed};
use crate::array::{Buffer, Shape};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::host::threads::threads;

/// Memory for rows that are read, and for as many rows that are written.
pub(super) struct RowTiles<R: RowTransform> {
    pub(super) from: *mut R::From,
    pub(super) to: *mut R::To,
    pub(super) rows: usize,
}

/// The bytes that a thread's tiles should take, so that they stay in its cache.
const TILES_BYTES: usize = 512 << 10;

/// Returns the number of rows of a tile. Unless they take too much memory, there are as many rows
/// as a cache line has numbers. More rows than 64 do not pay.
fn tile_rows(row_bytes: usize) -> usize {
    let line = (SPACE_BYTES / row_bytes).clamp(1, 8);
    (TILES_BYTES / row_bytes).clamp(line, 64)
}

/// The maximum memory in bytes of all slots if there are more slots than threads.
const SPACE_BYTES: usize = 16 << 20;

/// The alignment of the sections of a slot: a cache line.
const LINE_BYTES: usize = 64;

/// The memory of one launch of transforms.
pub(super) struct Space<R: RowTransform> {
    /// The number of rows of a part of the work.
    pub(super) each: usize,
    pub(super) slots: Slots<R>,
    /// The handle that keeps the memory allocated. The next user of the memory is ordered after the
    /// launch.
    _memory: Option<Buffer>,
}

/// A slot for each part of the work: scratch memory, and two tiles if there are any.
pub(super) struct Slots<R: RowTransform> {
    base: *mut u8,
    slot_bytes: usize,
    scratch_length: usize,
    /// The offsets of the tiles in a slot.
    tiles: [usize; 2],
    tile_rows: usize,
    rows: PhantomData<fn() -> R>,
}

impl<R: RowTransform> Clone for Slots<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: RowTransform> Copy for Slots<R> {}

// SAFETY: an address of plain data. Each slot is lent to one thread at a time, by the contracts of
// the functions that lend it.
unsafe impl<R: RowTransform> Send for Slots<R> {}
// SAFETY: as above.
unsafe impl<R: RowTransform> Sync for Slots<R> {}

impl<R: RowTransform> Space<R> {
    /// Allocates the slots for `count` rows.
    #[track_caller]
    pub(super) fn new(device: &Device, rows: &R, count: usize, is_direct: bool) -> Result<Self> {
        let [read, written] = rows.lengths();
        let lengths_bytes = [read * size_of::<R::From>(), written * size_of::<R::To>()];
        let tile_rows = match is_direct {
            true => 0,
            false => tile_rows(lengths_bytes[0] + lengths_bytes[1]).min(count.max(1)),
        };
        let scratch_length = rows.scratch_length();
        let section = |bytes: usize, count: usize| {
            let bytes = bytes.saturating_mul(count);
            bytes
                .checked_next_multiple_of(LINE_BYTES)
                .unwrap_or(usize::MAX)
        };
        let first = section(size_of::<Complex<R::Sample>>(), scratch_length);
        let second = first.saturating_add(section(lengths_bytes[0], tile_rows));
        let slot_bytes = second.saturating_add(section(lengths_bytes[1], tile_rows));
        // More parts than threads, so that no thread waits long for the last part. If they take too
        // much memory, one part for each thread.
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
                scratch_length,
                tiles: [first, second],
                tile_rows,
                rows: PhantomData,
            },
            _memory: memory,
        })
    }
}

impl<R: RowTransform> Slots<R> {
    /// Returns the scratch memory of a slot.
    ///
    /// # Safety
    ///
    /// The slot must exist, and its memory must be alive and nobody else's.
    pub(super) unsafe fn scratch<'a>(self, number: usize) -> &'a mut [Complex<R::Sample>] {
        let base = self.base.wrapping_add(number * self.slot_bytes);
        let numbers: *mut MaybeUninit<R::Sample> = base.cast();
        // SAFETY: a slot begins with `scratch_length` complex numbers, by this function's contract.
        // A complex number is two real numbers. If `scratch_length` is 0, the address need not be
        // of memory.
        unsafe {
            zeroed(from_raw_parts_mut(numbers, 2 * self.scratch_length));
            from_raw_parts_mut(numbers.cast(), self.scratch_length)
        }
    }

    /// Returns the scratch memory of a slot and its tiles.
    ///
    /// # Safety
    ///
    /// As for [`scratch`](Self::scratch).
    pub(super) unsafe fn both<'a>(
        self,
        number: usize,
    ) -> (&'a mut [Complex<R::Sample>], RowTiles<R>) {
        let base = self.base.wrapping_add(number * self.slot_bytes);
        let tiles = RowTiles {
            from: base.wrapping_add(self.tiles[0]).cast(),
            to: base.wrapping_add(self.tiles[1]).cast(),
            rows: self.tile_rows,
        };
        // SAFETY: by this function's contract.
        (unsafe { self.scratch(number) }, tiles)
    }
}
