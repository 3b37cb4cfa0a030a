//! What hangs on a segment and ends before its memory goes back to the device: the registration of
//! a library, say.

use std::any::Any;

use super::{DeviceMemory, MemoryState};
use crate::device::DevicePtr;
use crate::error::Result;
use crate::pool::SegmentId;

/// Something whose drop ends it. It is the library's own, and calls nothing of this one.
pub(crate) type Attachment = Box<dyn Any + Send + Sync>;

/// The attachments of a memory's segments, each with the key of who made it.
#[derive(Default)]
pub(super) struct Attachments(Vec<(SegmentId, u64, Attachment)>);

impl Attachments {
    fn has(&self, segment: SegmentId, key: u64) -> bool {
        let mut of = self.0.iter();
        of.any(|(own, made_by, _)| (*own, *made_by) == (segment, key))
    }

    /// Ends those of a segment.
    pub(super) fn end_of(&mut self, segment: SegmentId) {
        self.0.retain(|(own, ..)| *own != segment);
    }

    fn end_made_by(&mut self, key: u64) {
        self.0.retain(|(_, made_by, _)| *made_by != key);
    }
}

impl DeviceMemory {
    /// Attaches what `make` gives to the segment that `address` lies in, unless the same key has
    /// something there. `make` gets the segment's first address and its bytes. Answers whether
    /// something is attached: a range of pages, which come and go, takes nothing, and neither does
    /// memory of the driver's own pool, or foreign memory.
    #[doc(hidden)]
    pub fn attach(
        &self,
        address: DevicePtr,
        key: u64,
        make: impl FnOnce(DevicePtr, u64) -> Result<Option<Attachment>>,
    ) -> Result<bool> {
        if self.stream_ordered.is_some() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        let Some((id, first, bytes)) = state.whole_segment_of(address) else {
            return Ok(false);
        };
        if state.attachments.has(id, key) {
            return Ok(true);
        }
        let Some(attachment) = make(first, bytes)? else {
            return Ok(false);
        };
        state.attachments.0.push((id, key, attachment));
        Ok(true)
    }

    /// Ends what was attached with that key.
    #[doc(hidden)]
    pub fn detach_all(&self, key: u64) {
        self.state.lock().attachments.end_made_by(key);
    }
}

impl MemoryState {
    /// The segment of one reservation that `address` lies in.
    fn whole_segment_of(&self, address: DevicePtr) -> Option<(SegmentId, DevicePtr, u64)> {
        let found = self.numbered().find(|(_, segment)| {
            let offset = address.0.wrapping_sub(segment.address.0);
            !segment.is_range && offset < segment.held_bytes
        });
        found.map(|(id, segment)| (id, segment.address, segment.held_bytes))
    }
}
