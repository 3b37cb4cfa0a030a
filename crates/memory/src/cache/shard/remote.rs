//! The list of remote blocks of a shard. A block is remote if a thread that did not hold the shard
//! dropped it. Any thread pushes a block with a compare-and-swap. The holder of the shard takes the
//! whole list.
//!
//! A single header is never popped, so the ABA problem does not occur. Even if the head is taken
//! and pushed again between a load and its compare-and-swap, a push is correct.
//!
//! A hit does not read the list's head, because other threads write its cache line. A miss first
//! takes the list.

use std::ptr;

use crate::memory::header::{Header, List};
use crate::sync::{AtomicPtr, Ordering};

/// A lock-free list of remote headers, which can be closed permanently.
pub(crate) struct RemoteFreeList {
    /// Null, [`closed`], or the header that was pushed last, with the chain of earlier headers.
    head: AtomicPtr<Header>,
}

/// Returns the head of a closed list. No header has this address.
fn closed() -> *mut Header {
    ptr::without_provenance_mut(1)
}

impl RemoteFreeList {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns true if the list is open and has no headers.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Pushes a header. If the list is closed, returns the header as the error.
    pub(crate) fn push(&self, header: Box<Header>) -> Result<(), Box<Header>> {
        header.watch.own();
        let header = Box::into_raw(header);
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == closed() {
                // SAFETY: `header` came from the `Box` above, and no list has taken it.
                return Err(unsafe { Box::from_raw(header) });
            }
            // SAFETY: until the exchange succeeds, only this thread has a pointer to the header.
            unsafe { (*header).next = head };
            match self.head.compare_exchange_weak(
                head,
                header,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => head = now,
            }
        }
    }

    /// Removes and returns all headers. An open list stays open.
    pub(crate) fn drain(&self) -> List {
        let head = self.head.load(Ordering::Relaxed);
        if head.is_null() || head == closed() {
            return List::new();
        }
        self.replace(ptr::null_mut())
    }

    /// Removes and returns all headers, and closes the list. Later pushes fail.
    pub(crate) fn close(&self) -> List {
        self.replace(closed())
    }

    fn replace(&self, with: *mut Header) -> List {
        let head = self.head.swap(with, Ordering::AcqRel);
        let chain = if head == closed() {
            ptr::null_mut()
        } else {
            head
        };
        // SAFETY: the swap made this thread the only owner of the chain. `push` wrote the chain's
        // links before its releasing exchange.
        unsafe { List::from_chain(chain) }
    }
}

impl Drop for RemoteFreeList {
    fn drop(&mut self) {
        self.close();
    }
}
