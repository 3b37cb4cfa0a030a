//! The list of blocks that were dropped by threads that did not hold their shard. Any thread pushes
//! by compare-and-swap; the holder of the shard takes the whole list.
//!
//! No header is ever popped singly. So a header that is taken and pushed again between a load and
//! its compare-and-swap does no harm.
//!
//! A hit does not read the list's head, whose cache line other threads write. A miss takes the list
//! first.

use std::ptr;

use crate::memory::header::{Header, List};
use crate::sync::{AtomicPtr, Ordering};

/// A lock-free list of remote headers, which can be closed for good.
pub(crate) struct RemoteFreeList {
    /// Null, [`closed`], or the chain that begins with the last header pushed.
    head: AtomicPtr<Header>,
}

/// Returns the head of a closed list, an address at which no header is.
fn closed() -> *mut Header {
    ptr::without_provenance_mut(1)
}

impl RemoteFreeList {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns true if a drain would find nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Pushes a header. A closed list returns it.
    pub(crate) fn push(&self, header: Box<Header>) -> Result<(), Box<Header>> {
        header.watch.own();
        let header = Box::into_raw(header);
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == closed() {
                // SAFETY: `header` came out of a `Box` above, and no list took it.
                return Err(unsafe { Box::from_raw(header) });
            }
            // SAFETY: as above: until the exchange succeeds, the header is this thread's alone.
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

    /// Takes all headers. An open list stays open, a closed list is empty.
    pub(crate) fn drain(&self) -> List {
        let head = self.head.load(Ordering::Relaxed);
        if head.is_null() || head == closed() {
            return List::new();
        }
        self.replace(ptr::null_mut())
    }

    /// Takes all headers, and closes the list: later pushes fail.
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
        // SAFETY: the swap made this thread the only owner of the chain, whose links `push` wrote
        // before its releasing exchange.
        unsafe { List::from_chain(chain) }
    }
}

impl Drop for RemoteFreeList {
    fn drop(&mut self) {
        self.close();
    }
}
