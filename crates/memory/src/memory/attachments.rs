//! Objects that are attached to a segment, such as the registration of a library. An attachment is
//! dropped before the segment's memory returns to the device.

use std::any::Any;

use super::{DeviceMemory, MemoryState};
use crate::device::DevicePtr;
use crate::error::Result;
use crate::pool::SegmentId;

/// An object of another library. Its drop ends the attachment, for example a registration. The drop
/// must not call this library.
pub(crate) type Attachment = Box<dyn Any + Send + Sync>;

/// The attachments of a memory, each with its segment and the key of its maker.
pub(super) type Attachments = Vec<(SegmentId, u64, Attachment)>;

impl DeviceMemory {
    /// Attaches the result of `make` to the segment that contains `address`, unless the segment has
    /// an attachment of this key. `make` gets the segment's first address and length in bytes.
    /// Returns true if the segment then has an attachment of this key. A range accepts no
    /// attachments, because its pages are committed and decommitted. Memory of the driver's own
    /// pool and foreign memory accept no attachments either.
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
        let mut known = state.attachments.iter();
        if known.any(|(segment, made_by, _)| (*segment, *made_by) == (id, key)) {
            return Ok(true);
        }
        let Some(attachment) = make(first, bytes)? else {
            return Ok(false);
        };
        state.attachments.push((id, key, attachment));
        Ok(true)
    }

    /// Ends all attachments with this key.
    #[doc(hidden)]
    pub fn detach_all(&self, key: u64) {
        let attachments = &mut self.state.lock().attachments;
        attachments.retain(|(_, made_by, _)| *made_by != key);
    }
}

impl MemoryState {
    /// Returns the segment that contains `address`, with its first address and its length. Returns
    /// `None` for a range.
    fn whole_segment_of(&self, address: DevicePtr) -> Option<(SegmentId, DevicePtr, u64)> {
        let found = self.numbered().find(|(_, segment)| {
            let offset = address.0.wrapping_sub(segment.address.0);
            !segment.is_range && offset < segment.held_bytes
        });
        found.map(|(id, segment)| (id, segment.address, segment.held_bytes))
    }
}
