//! Fork handlers. A child process has only the forking thread. If another thread held a lock at the
//! fork, the lock would stay locked in the child. So the forking thread acquires all locks before
//! the fork. It releases them after the fork, in the parent and in the child.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use crate::caches::{Cache, State, lock};
use crate::failure::code;

/// The locked state and the held caches of a forking thread.
struct HeldAtFork(UnsafeCell<Option<(MutexGuard<'static, State>, Vec<&'static Cache>)>>);

// SAFETY: only the thread that holds the lock of the state accesses the cell.
unsafe impl Sync for HeldAtFork {}

static HELD: HeldAtFork = HeldAtFork(UnsafeCell::new(None));

/// Registers the handlers when the library is loaded. If the first call registered them, a fork on
/// another thread could interrupt the registration.
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
    // If the registration fails for lack of memory, a fork while other threads use the library may
    // hang.
    let _ = pthread_atfork(hold, release, release_in_child);
}

/// Waits until no other thread is in the library, and blocks other threads.
extern "C" fn hold() {
    let state = lock();
    let held = state.caches().filter(|cache| cache.host.hold()).collect();
    // SAFETY: this thread holds the lock of the state.
    unsafe { *HELD.0.get() = Some((state, held)) };
}

/// Undoes [`hold`] in the parent.
extern "C" fn release() {
    drop(end_hold());
}

/// Undoes [`hold`] in the child, and ends the entries of threads that the child lacks.
extern "C" fn release_in_child() {
    code(|| {
        if let Some(mut state) = end_hold() {
            state.exit_other_threads();
        }
        Ok(())
    });
}

fn end_hold() -> Option<MutexGuard<'static, State>> {
    // SAFETY: this thread acquired the lock of the state in `hold`, or is its copy in the child.
    let (state, caches) = unsafe { (*HELD.0.get()).take() }?;
    for cache in caches {
        cache.host.release();
    }
    Some(state)
}
