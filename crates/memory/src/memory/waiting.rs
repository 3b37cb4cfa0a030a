//! The threads that wait for other threads to release memory.
//!
//! A thread that waits inside of a scope releases no live blocks. If only the live blocks of
//! waiting threads separate the free blocks, no thread can make room. So the census does not count
//! these blocks in `entered_bytes`, and a request fails instead of waiting longer.

use crate::sync::plain::Mutex;
use crate::sync::thread_token;

use super::DeviceMemory;

/// The tokens of the threads that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Vec<u64>>);

/// A guard that marks the calling thread as waiting until it drops.
pub(super) struct WaitGuard<'a>(&'a Waiting);

impl Waiting {
    pub(super) fn begin(&self) -> WaitGuard<'_> {
        self.0.lock().push(thread_token());
        WaitGuard(self)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let token = thread_token();
        let mut waiting = self.0.0.lock();
        if let Some(index) = waiting.iter().position(|other| *other == token) {
            waiting.swap_remove(index);
        }
    }
}

impl DeviceMemory {
    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.waiting.0.lock().clone()
    }
}
