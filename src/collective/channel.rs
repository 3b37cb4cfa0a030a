//! A queue and a one-shot channel between threads. They use this crate's locks, because
//! ThreadSanitizer does not observe the synchronisation inside std's channels.

use std::collections::VecDeque;

use crate::sync::Arc;
use crate::sync::plain::{Condvar, Mutex};

/// A queue with one reader.
#[derive(Debug)]
pub(super) struct Queue<T>(Arc<SharedQueue<T>>);

#[derive(Debug)]
struct SharedQueue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    waiting: VecDeque<T>,
    /// True if no more values are accepted.
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            is_closed: false,
        };
        Self(Arc::new(SharedQueue {
            state: Mutex::new(state),
            changed: Condvar::default(),
        }))
    }

    /// Returns another handle of this queue.
    pub(super) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Appends a value. If the queue is closed, returns the value as the error.
    pub(super) fn push(&self, next: T) -> Result<(), T> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(next);
        }
        state.waiting.push_back(next);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Waits for the oldest value and removes it. Returns `None` when the queue is closed and
    /// empty.
    pub(super) fn pop(&self) -> Option<T> {
        let SharedQueue { state, changed } = &*self.0;
        let mut own = state.lock();
        loop {
            if let Some(next) = own.waiting.pop_front() {
                return Some(next);
            }
            if own.is_closed {
                return None;
            }
            own = changed.wait(state, own);
        }
    }

    /// Closes the queue for pushes. Values that are in the queue can still be popped.
    pub(super) fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// The receiving end of a one-shot channel.
pub(super) struct OneShotReceiver<T>(Queue<T>);

/// The sending end of a one-shot channel. If the sender drops unused, the receiver gets `None`.
pub(super) struct OneShotSender<T>(Queue<T>);

pub(super) fn one_shot<T>() -> (OneShotSender<T>, OneShotReceiver<T>) {
    let queue = Queue::new();
    (OneShotSender(queue.share()), OneShotReceiver(queue))
}

impl<T> OneShotReceiver<T> {
    /// Waits for the value. Returns `None` if the sender dropped unused.
    pub(super) fn wait(self) -> Option<T> {
        self.0.pop()
    }

    /// Returns true if `wait` would return without waiting.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.0.0.state.lock();
        state.is_closed || !state.waiting.is_empty()
    }
}

impl<T> Drop for OneShotReceiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> OneShotSender<T> {
    /// Sends the value. Returns true if the receiver still exists.
    pub(super) fn send(self, value: T) -> bool {
        self.0.push(value).is_ok()
    }
}

impl<T> Drop for OneShotSender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_popped_in_order_and_then_the_end() {
        let queue = Queue::new();
        let reader = queue.share();
        std::thread::scope(|threads| {
            let read =
                threads.spawn(move || std::iter::from_fn(|| reader.pop()).collect::<Vec<i32>>());
            (0..100).for_each(|own| queue.push(own).unwrap());
            queue.close();
            assert_eq!(queue.push(7), Err(7));
            assert_eq!(read.join().unwrap(), (0..100).collect::<Vec<_>>());
        });
    }

    #[test]
    fn the_receiver_gets_the_value_or_none() {
        let (sender, receiver) = one_shot();
        assert!(sender.send(3));
        assert_eq!(receiver.wait(), Some(3));
        let (sender, receiver) = one_shot::<i32>();
        drop(sender);
        assert_eq!(receiver.wait(), None);
        let (sender, receiver) = one_shot();
        drop(receiver);
        assert!(!sender.send(3), "nobody hears it");
    }
}
