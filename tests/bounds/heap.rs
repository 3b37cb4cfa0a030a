//! The heap memory of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

#[derive(Clone, Copy)]
struct Heap {
    /// The bytes that this thread allocated, minus the bytes that it freed.
    live_bytes: i64,
    peak_bytes: i64,
}

thread_local! {
    static HEAP: Cell<Heap> = const {
        Cell::new(Heap {
            live_bytes: 0,
            peak_bytes: 0,
        })
    };
}

/// Adds `more_bytes` to the thread's live bytes, updates the peak, and subtracts `fewer_bytes`.
fn count(more_bytes: usize, fewer_bytes: usize) {
    let mut heap = HEAP.get();
    heap.live_bytes += more_bytes as i64;
    heap.peak_bytes = heap.peak_bytes.max(heap.live_bytes);
    heap.live_bytes -= fewer_bytes as i64;
    HEAP.set(heap);
}

// SAFETY: each method passes its arguments unchanged to the system's allocator. Counting allocates
// nothing, because the cell is initialised as a constant and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A reallocation counts as an allocation and a free.
        count(size, layout.size());
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(address, layout, size) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(address, layout) }
    }
}

/// Returns the peak of this thread's heap during `work`, minus the bytes at the beginning.
pub(crate) fn peak_of<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = HEAP.get().live_bytes;
    HEAP.set(Heap {
        live_bytes: before,
        peak_bytes: before,
    });
    let result = work();
    let peak = HEAP.get().peak_bytes - before;
    (result, peak as u64)
}

#[test]
fn the_most_at_one_time_is_counted() {
    let ((), peak) = peak_of(|| {
        drop(Vec::<u8>::with_capacity(1000));
        let mut grown = Vec::<u8>::with_capacity(600);
        grown.reserve_exact(700);
    });
    assert_eq!(peak, 1300);
}
