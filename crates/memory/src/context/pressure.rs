//! Memory-pressure callbacks.

use std::fmt;

use crate::cache::WeakCaches;
use crate::context::Device;
use crate::memory::CallbackId;

/// A guard that keeps a memory-pressure callback registered until the guard drops.
#[must_use = "the callback is removed when this guard drops"]
pub struct PressureGuard {
    // The reference is weak, so a callback does not keep its device alive.
    device: WeakCaches,
    id: CallbackId,
}

impl Device {
    /// Registers a callback for memory pressure. If an allocation would fail after the release of
    /// all idle memory, the callback is called with the needed bytes. The callback drops memory
    /// that the program can spare, and returns the freed bytes. If the result is above 0, the
    /// allocation is retried.
    ///
    /// The callback runs on the allocating thread. This thread holds no lock meanwhile. The
    /// callback may allocate. Its own allocations call no callback.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use std::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() })?;
    /// let spare = Arc::new(Mutex::new(vec![Buffer::new(&device, 1 << 20)?]));
    /// let kept = Arc::clone(&spare);
    /// let _guard = device.on_memory_pressure(move |_wanted| {
    ///     kept.lock().unwrap().drain(..).map(|buffer| buffer.size_bytes() as u64).sum()
    /// });
    /// let buffer = Buffer::new(&device, 4096)?; // took the place of the spare one
    /// assert!(spare.lock().unwrap().is_empty());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn on_memory_pressure(
        &self,
        callback: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> PressureGuard {
        PressureGuard {
            device: self.caches().downgrade(),
            id: self.caches().memory().callbacks().add(callback),
        }
    }
}

impl Drop for PressureGuard {
    fn drop(&mut self) {
        if let Some(caches) = self.device.upgrade() {
            caches.memory().callbacks().remove(self.id);
        }
    }
}

impl fmt::Debug for PressureGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PressureGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
