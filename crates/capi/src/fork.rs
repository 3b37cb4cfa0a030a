//! Forks. A child gets the memory of the process, and only the thread that forked. A change that
//! another thread had begun would never be finished there, and its locks would stay locked. So the
//! forking thread takes all locks before the fork, and releases them after it, in the parent and in
//! the child.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use crate::caches::{Cache, State, lock};
use crate::failure::code;

/// The state and the caches that a forking thread holds.
struct HeldAtFork(UnsafeCell<Option<(MutexGuard<'static, State>, Vec<&'static Cache>)>>);

// SAFETY: only the thread that has the lock of the state, which is inside, accesses the cell.
unsafe impl Sync for HeldAtFork {}

static HELD: HeldAtFork = HeldAtFork(UnsafeCell::new(None));

/// Registers the functions below when the library is loaded. A registration by the first call could
/// be in progress on another thread at a fork, and would stay so in the child.
#[cfg(unix)]
#[used]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static REGISTERED: extern "C" fn() = register;

#[cfg(unix)]
extern "C" fn register() {
    unsafe extern "C" {
        safe fn pthread_atfork(
            prepare: extern "C" fn(),
            parent: extern "C" fn(),
            child: extern "C" fn(),
        ) -> std::ffi::c_int;
    }
    // If there is no memory to register the functions, a fork beside busy threads may hang.
    let _ = pthread_atfork(hold, release, release_in_child);
}

/// Waits until no other thread is in the library, and keeps other threads out.
extern "C" fn hold() {
    let state = lock();
    let held = state.caches().filter(|cache| cache.host.hold()).collect();
    // SAFETY: this thread has the lock of the state.
    unsafe { *HELD.0.get() = Some((state, held)) };
}

/// Ends [`hold`] in the parent.
extern "C" fn release() {
    drop(end_hold());
}

/// Ends [`hold`] in the child, and the entries of the threads that the child does not have.
extern "C" fn release_in_child() {
    code(|| {
        if let Some(mut state) = end_hold() {
            state.exit_other_threads();
        }
        Ok(())
    });
}

fn end_hold() -> Option<MutexGuard<'static, State>> {
    // SAFETY: this thread took the lock of the state in `hold`, or is its copy in the child.
    let (state, caches) = unsafe { (*HELD.0.get()).take() }?;
    for cache in caches {
        cache.host.release();
    }
    Some(state)
}
