//! What a thread has entered, as the rules of scopes say: a model that tells of each request
//! whether it belongs to a cache, so that the statistics can be added up at the end.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The index of every device that is not the round's; what is counted of them is not looked at.
pub(crate) const FOREIGN: usize = 2;

/// What one device's caches have to have counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) entries: AtomicU64,
    pub(crate) requests: AtomicU64,
}

enum Binding {
    Below,
    Cache(usize, String),
    Uncached,
}

struct Frame {
    serial: u64,
    /// The device that it made current.
    current: Option<usize>,
    binding: Binding,
    dead: bool,
}

#[derive(Default)]
struct Frames {
    frames: Vec<Frame>,
    serials: u64,
}

/// The frames of one thread.
#[derive(Clone)]
pub(crate) struct Bindings {
    frames: Rc<RefCell<Frames>>,
    counts: Arc<[Counts; 3]>,
}

impl Bindings {
    pub(crate) fn new(counts: Arc<[Counts; 3]>) -> Self {
        Self {
            frames: Rc::default(),
            counts,
        }
    }

    /// A device was made current, by itself or by one of its streams.
    pub(crate) fn current(&self, device: usize) -> Inside {
        self.push(Some(device), Binding::Below)
    }

    pub(crate) fn uncached(&self) -> Inside {
        self.push(None, Binding::Uncached)
    }

    /// The cache `name` was entered on the current device, or on one that thereby became current.
    pub(crate) fn cache(&self, device: Option<usize>, name: &str) -> Inside {
        let on = device.unwrap_or_else(|| self.current_device());
        let is_inside = |frame: &Frame| matches!(&frame.binding, Binding::Cache(other, inside) if *other == on && inside == name);
        if !self.frames.borrow().frames.iter().any(is_inside) {
            self.counts[on].entries.fetch_add(1, Ordering::Relaxed);
        }
        self.push(device, Binding::Cache(on, name.to_owned()))
    }

    fn push(&self, current: Option<usize>, binding: Binding) -> Inside {
        let mut frames = self.frames.borrow_mut();
        frames.serials += 1;
        let serial = frames.serials;
        frames.frames.push(Frame {
            serial,
            current,
            binding,
            dead: false,
        });
        Inside {
            bindings: self.clone(),
            serial,
            forgotten: false,
        }
    }

    pub(crate) fn current_device(&self) -> usize {
        let frames = &self.frames.borrow().frames;
        let current = frames.iter().rev().find_map(|frame| frame.current);
        current.expect("a thread begins by entering a device")
    }

    /// A request on `device` was served.
    pub(crate) fn served(&self, device: usize) {
        for frame in self.frames.borrow().frames.iter().rev() {
            match &frame.binding {
                Binding::Cache(on, _) if *on == device => {
                    self.counts[device].requests.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Binding::Uncached => return,
                Binding::Cache(..) | Binding::Below => {}
            }
        }
    }
}

/// Lasts as long as the guard beside it.
pub(crate) struct Inside {
    bindings: Bindings,
    serial: u64,
    forgotten: bool,
}

impl Inside {
    /// The guard was.
    pub(crate) fn forget(mut self) {
        self.forgotten = true;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.forgotten {
            return;
        }
        let frames = &mut self.bindings.frames.borrow_mut().frames;
        let own = frames.iter_mut().find(|frame| frame.serial == self.serial);
        own.expect("only its guard takes a frame away").dead = true;
        while frames.last().is_some_and(|top| top.dead) {
            frames.pop();
        }
    }
}
