//! The frames of a thread's stack of bindings, and the order in which they are removed.
//!
//! A frame stores the previous binding. An entry moves the bound shard from the thread-local to the
//! frame, and an exit moves the shard back. So entries and exits change no reference count.
//!
//! A frame is written to its slot field by field. A copy of a whole frame would load data in other
//! widths than the stores. Store-to-load forwarding would then fail. The failure stalls the
//! processor almost as long as a compare-and-swap.

use std::ops::Deref;
use std::rc::Rc;

use super::entrance::entrance;
use super::stream::StreamLease;
use crate::cache::shard::{CachesRef, LocalShard};
use crate::sync::Arc;

/// The kind of binding that a frame changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The current device and the stream for its work, or no binding.
    Device,
    /// The current shard.
    Shard,
}

/// The device that a frame made current.
pub(crate) struct CurrentDevice {
    device: CachesRef,
    /// The stream for work on the device, if the frame changed it. The frame keeps the lease alive.
    /// A frame may outlive its guard, because a guard that drops out of order leaves its frame.
    pub(super) stream: Option<Arc<StreamLease>>,
}

impl CurrentDevice {
    pub(super) fn new(device: &CachesRef) -> Rc<Self> {
        Rc::new(Self {
            device: device.clone(),
            stream: None,
        })
    }

    pub(super) fn on(stream: Arc<StreamLease>) -> Rc<Self> {
        Rc::new(Self {
            device: stream.device().clone(),
            stream: Some(stream),
        })
    }
}

impl Deref for CurrentDevice {
    type Target = CachesRef;

    fn deref(&self) -> &CachesRef {
        &self.device
    }
}

/// The entry of one guard in its thread's stack of bindings.
pub(super) struct Frame {
    pub(super) serial: u64,
    pub(super) device: Option<Rc<CurrentDevice>>,
    /// The previous current shard, if this frame changed the current shard.
    pub(super) before: Option<LocalShard>,
    pub(super) kind: FrameKind,
    /// True after the frame's guard has dropped.
    dead: bool,
}

impl Frame {
    const BLANK: Self = Self {
        serial: 0,
        device: None,
        before: None,
        kind: FrameKind::Device,
        dead: false,
    };
}

/// A thread's stack of frames.
///
/// Invariants:
/// - The first `depth` slots are the frames, from the bottom. The slots above them hold no handles.
/// - The serials of the frames rise.
///
/// Slots are reused, so that each frame is written in place.
pub(super) struct Frames {
    slots: Vec<Frame>,
    depth: usize,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            depth: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// Iterates over the frames, from the top.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.slots[..self.depth].iter().rev()
    }

    #[inline(always)]
    pub(super) fn push(
        &mut self,
        kind: FrameKind,
        device: Option<Rc<CurrentDevice>>,
        before: Option<LocalShard>,
    ) -> u64 {
        if self.depth == self.slots.len() {
            self.slots.push(Frame::BLANK);
        }
        let serials = &entrance().last_serial;
        let serial = serials.get() + 1;
        serials.set(serial);
        let frame = &mut self.slots[self.depth];
        frame.serial = serial;
        frame.device = device;
        frame.before = before;
        frame.kind = kind;
        frame.dead = false;
        self.depth += 1;
        serial
    }

    /// Removes the top frame and returns its slot. The caller must take the handles out of the
    /// slot.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<&mut Frame> {
        self.depth = self.depth.checked_sub(1)?;
        self.slots.get_mut(self.depth)
    }

    #[inline]
    pub(super) fn is_top_dead(&self) -> bool {
        self.top().is_some_and(|top| top.dead)
    }

    /// Returns true if the frame of `serial` is at the top. Otherwise, marks the frame as dead.
    #[inline]
    pub(super) fn is_on_top(&mut self, serial: u64) -> bool {
        let is_top = self.top().is_some_and(|top| top.serial == serial);
        if !is_top {
            self.mark_dead(serial);
        }
        is_top
    }

    #[inline]
    fn top(&self) -> Option<&Frame> {
        self.slots.get(self.depth.checked_sub(1)?)
    }

    #[cold]
    #[inline(never)]
    fn mark_dead(&mut self, serial: u64) {
        let frames = &mut self.slots[..self.depth];
        if let Ok(index) = frames.binary_search_by_key(&serial, |frame| frame.serial) {
            frames[index].dead = true;
        }
    }
}
