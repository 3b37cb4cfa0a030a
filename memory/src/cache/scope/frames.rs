//! The frames of a thread's stack of bindings, and the order in which they leave.

use std::ops::Deref;
use std::rc::Rc;

use super::stream::KeptStream;
use crate::cache::caches::{CachesRef, LocalShard};
use crate::sync::Arc;

/// What a frame changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The current device, and the stream that its work goes to, at most.
    Device,
    /// The current shard.
    Shard,
}

/// The device that a frame made current.
pub(crate) struct CurrentDevice {
    device: CachesRef,
    /// The stream that work on it goes to, where the frame changed that. Kept for as long as the
    /// frame stands, which may be longer than its guard: a guard that is dropped out of order
    /// leaves its frame.
    pub(super) stream: Option<Arc<KeptStream>>,
}

impl CurrentDevice {
    pub(super) fn new(device: &CachesRef) -> Rc<Self> {
        Rc::new(Self {
            device: device.clone(),
            stream: None,
        })
    }

    pub(super) fn on(stream: Arc<KeptStream>) -> Rc<Self> {
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

/// What a guard stands for.
pub(super) struct Frame {
    pub(super) serial: u64,
    /// The device that this frame made current.
    pub(super) device: Option<Rc<CurrentDevice>>,
    /// The shard that was current before, where this frame changed that.
    pub(super) before: Option<LocalShard>,
    pub(super) kind: FrameKind,
    /// Its guard is gone.
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

/// Invariants:
/// - the first `depth` slots are the frames, from the bottom; the others hold nothing;
/// - the serials of the frames rise.
///
/// Slots stay where they are, so that a frame is written field by field to where it stands: built
/// elsewhere and copied, it would be read in other pieces than it was written in, and waited for.
pub(super) struct Frames {
    slots: Vec<Frame>,
    depth: usize,
    serials: u64,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            depth: 0,
            serials: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// The frames, from the top.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.slots[..self.depth].iter().rev()
    }

    /// Answers the serial.
    #[inline]
    pub(super) fn push(
        &mut self,
        kind: FrameKind,
        device: Option<Rc<CurrentDevice>>,
        before: Option<LocalShard>,
    ) -> u64 {
        if self.depth == self.slots.len() {
            self.slots.push(Frame::BLANK);
        }
        self.serials += 1;
        let frame = &mut self.slots[self.depth];
        frame.serial = self.serials;
        frame.device = device;
        frame.before = before;
        frame.kind = kind;
        frame.dead = false;
        self.depth += 1;
        self.serials
    }

    /// The top frame, which no longer counts; its handles are to be taken out of it.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<&mut Frame> {
        self.depth = self.depth.checked_sub(1)?;
        self.slots.get_mut(self.depth)
    }

    /// Whether the guard of the top frame is gone.
    #[inline]
    pub(super) fn is_top_dead(&self) -> bool {
        self.top().is_some_and(|top| top.dead)
    }

    /// Whether the frame of `serial` is at the top; where it is not, it is marked.
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
