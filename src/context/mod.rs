//! TEMPORARY scaffolding: being replaced by the real device handle.
use crate::device::{Backend, host::HostBackend};
use std::sync::{Arc, OnceLock};
/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    backend: Arc<HostBackend>,
}
impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }
}
impl Eq for Device {}
impl Device {
    /// The process-wide host device.
    pub fn host() -> Device {
        static HOST: OnceLock<Device> = OnceLock::new();
        HOST.get_or_init(|| Device {
            backend: Arc::new(HostBackend::new()),
        })
        .clone()
    }
    /// The current device.
    pub fn current() -> Device {
        Self::host()
    }
    /// Calls `f` with the current device, without counting a handle.
    pub(crate) fn with_current<R>(f: impl FnOnce(&Device) -> R) -> R {
        f(&Self::current())
    }
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }
}
