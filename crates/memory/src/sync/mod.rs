//! The synchronisation shim over `std::sync` and loom, and thread tokens.
//!
//! All code that orders threads uses this module. Under `--cfg loom`, its types are loom's.
//! Counters, and layers below the layers with models, use [`plain`]. In a model, each step of a
//! counter or lower layer would multiply the states without testing anything.
//!
//! In models, too, `Arc`, `Weak` and `OnceLock` are std's, because loom has no `Weak`.

pub(crate) mod at_exit;
#[cfg(not(loom))]
pub(crate) mod barrier;
#[cfg(loom)]
mod loom_shim;
#[cfg_attr(
    loom,
    allow(unused_imports, dead_code, reason = "models replace the module")
)]
pub(crate) mod plain;
pub(crate) mod wait;

use std::cell::Cell;
use std::marker::PhantomData;
#[cfg(not(tsan))]
pub(crate) use std::sync::OnceLock;
pub use std::sync::{Arc, Weak};

#[cfg(tsan)]
mod once;
#[cfg(tsan)]
pub(crate) use once::OnceLock;

#[cfg(loom)]
pub(crate) use loom_shim::*;
#[cfg(not(loom))]
pub(crate) use plain::*;

/// A marker field that makes a type neither `Send` nor `Sync`. The compiler's error says
/// ``*const StaysOnItsThread` cannot be sent``.
pub type OfThisThread = PhantomData<*const StaysOnItsThread>;

/// The name in the compiler's error; see [`OfThisThread`].
#[derive(Debug)]
pub enum StaysOnItsThread {}

/// Returns the token of the calling thread, which is never 0 and never reused. The token has no
/// destructor, so it is readable in a thread's last destructors.
#[inline]
pub(crate) fn thread_token() -> u64 {
    self::thread_local! {
        static TOKEN: Cell<u64> = const { Cell::new(0) };
    }
    TOKEN.with(|token| match token.get() {
        0 => assign(token),
        known => known,
    })
}

#[cold]
fn assign(token: &Cell<u64>) -> u64 {
    static NEXT: plain::AtomicU64 = plain::AtomicU64::new(1);
    let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
    token.set(fresh);
    fresh
}
