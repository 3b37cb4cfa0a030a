//! `OnceLock` for ThreadSanitizer, which cannot detect the ordering inside an uninstrumented
//! standard library. In this version, a lock provides the ordering.

use super::plain::Mutex;

#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    order: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self {
            order: Mutex::new(()),
            value: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let _order = self.order.lock();
        self.value.get()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let _order = self.order.lock();
        self.value.set(value)
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let _order = self.order.lock();
        self.value.get_or_init(init)
    }
}
