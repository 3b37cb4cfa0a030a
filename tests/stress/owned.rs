//! Arrays with unique values, by which the checks detect overwritten memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use cachescope::ndarray::s;
use cachescope::{Array, Result};

use crate::stress::bindings::Bindings;
use crate::stress::round::lock;

/// The failures of all threads. They are reported at the end, because destructors find many of
/// them.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) fn fail(what: String) {
    let mut failures = lock(&FAILURES);
    if failures.len() < 20 {
        failures.push(what);
    }
}

pub(crate) fn take_failures() -> Vec<String> {
    std::mem::take(&mut lock(&FAILURES))
}

/// An array whose elements are all `value`. Only its clones, views and copies have this value.
pub(crate) struct Owned {
    array: Array<u64>,
    value: u64,
    /// The index of the array's device in the round, or
    /// [`FOREIGN`](crate::stress::bindings::FOREIGN).
    pub(crate) device: usize,
    unread: bool,
}

/// Returns a new value. Values are 2^16 apart, so that additions to a value do not reach another
/// array's value.
fn fresh_value() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) << 16
}

impl Owned {
    /// Allocates an array on the current device.
    pub(crate) fn new(len: usize, bindings: &Bindings) -> Result<Self> {
        let value = fresh_value();
        let array = Array::full(len, value)?;
        let device = bindings.current_device();
        if len > 0 {
            bindings.served(device);
        }
        Ok(Self {
            array,
            value,
            device,
            unread: false,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.array.size_bytes() as u64
    }

    /// Returns another handle on the block, or, if `part`, a view of its second half.
    pub(crate) fn shared(&self, part: bool) -> Result<Self> {
        let array = if part {
            let half = self.array.len() / 2;
            self.array.slice(s![half..])?
        } else {
            self.array.clone()
        };
        Ok(Self { array, ..*self })
    }

    /// Returns a new array, computed from this array.
    pub(crate) fn next(&self, bindings: &Bindings) -> Result<Self> {
        let array = (&self.array + 1).eval()?;
        if !self.array.is_empty() {
            bindings.served(self.device);
        }
        Ok(Self {
            array,
            value: self.value + 1,
            ..*self
        })
    }

    /// Returns a copy that no cache owns.
    pub(crate) fn detached(&self) -> Result<Self> {
        let array = self.array.to_uncached()?;
        Ok(Self { array, ..*self })
    }

    /// Returns a copy on the round's device with this index.
    pub(crate) fn moved(
        &self,
        device: usize,
        to: &cachescope::Device,
        bindings: &Bindings,
    ) -> Result<Self> {
        let array = self.array.to_device(to)?;
        if !array.is_empty() {
            bindings.served(device);
        }
        Ok(Self {
            array,
            device,
            ..*self
        })
    }

    /// Writes new values in place, or, if the block is shared, into a copy.
    pub(crate) fn overwrite(&mut self, bindings: &Bindings) -> Result<()> {
        let before = self.array.address();
        let sum = &self.array + 1;
        self.array.assign(sum)?;
        if self.array.address() != before {
            bindings.served(self.device);
        }
        self.value += 1;
        Ok(())
    }

    /// Drops the array without reading it, even while work on it is pending.
    pub(crate) fn drop_unread(mut self) {
        self.unread = true;
    }

    pub(crate) fn check(&self) {
        match self.array.to_vec() {
            Ok(elements) => {
                if let Some(at) = elements.iter().position(|element| *element != self.value) {
                    fail(format!(
                        "an array of {} at {:#x} holds {:#x} at {at} and not {:#x}",
                        elements.len(),
                        self.array.address(),
                        elements[at],
                        self.value
                    ));
                }
            }
            Err(error) => fail(format!("reading an array: {error}")),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A read waits for the work on the array. A quarter of the arrays drop unread, to test
        // drops before the end of the work.
        let unread = self.unread || (self.value >> 16).is_multiple_of(4);
        if !unread && !thread::panicking() {
            self.check();
        }
    }
}
