//! A model of a thread's bindings by the rules of scopes. The model predicts whether a cache serves
//! a request. At the end of the round, the statistics are compared with the model.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The index of every device outside of the round. The counts of these devices are not compared.
pub(crate) const FOREIGN: usize = 2;

/// The expected counts of one device's caches.
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
    /// The device that the frame made current.
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

    /// Records that a device became current, directly or through one of its streams.
    pub(crate) fn current(&self, device: usize) -> Inside {
        self.push(Some(device), Binding::Below)
    }

    pub(crate) fn uncached(&self) -> Inside {
        self.push(None, Binding::Uncached)
    }

    /// Records an entry of the cache `name` on `device`, which becomes current. If `device` is
    /// `None`, the entry is on the current device.
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

    /// Records that a request on `device` was served.
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

/// A frame of the model. It lives as long as the guard that it models.
pub(crate) struct Inside {
    bindings: Bindings,
    serial: u64,
    forgotten: bool,
}

impl Inside {
    /// Records that the guard was passed to `mem::forget`.
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
