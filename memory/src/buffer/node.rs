//! Which values memory holds, for a tape of derivatives that follows them.

use std::cell::Cell;
use std::num::NonZeroU32;

use crate::error::{Error, ErrorCode, Result};
use crate::sync::plain::{AtomicU64, Mutex, Ordering};

/// Values that a tape follows, by a number that no others have while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The tape.
    pub tape: TapeNumber,
    /// The values, as an index of the tape's.
    pub index: u32,
}

/// A tape, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TapeNumber(NonZeroU32);

thread_local! {
    /// Whether this thread has a tape.
    static FOLLOWS: Cell<bool> = const { Cell::new(false) };
}

/// How many tapes there are.
static LIVE: AtomicU64 = AtomicU64::new(0);

/// The numbers of these.
static NUMBERS: Mutex<Vec<TapeNumber>> = Mutex::new(Vec::new());

impl TapeNumber {
    /// A new tape's.
    pub fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as u32;
        let own = Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX));
        NUMBERS.lock().push(own);
        LIVE.fetch_add(1, Ordering::Relaxed);
        own
    }

    /// Of a tape that ends.
    pub fn end(self) {
        NUMBERS.lock().retain(|number| *number != self);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is any tape in this process.
    #[inline]
    pub fn are_any() -> bool {
        LIVE.load(Ordering::Relaxed) > 0
    }

    /// Whether the tape still follows values.
    pub fn is_live(self) -> bool {
        Self::are_any() && NUMBERS.lock().contains(&self)
    }
}

/// Refuses values that a tape follows, for an operation that it cannot follow them through.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), naming the operation.
#[track_caller]
pub fn refuse_followed(operation: &str, node: Option<Node>) -> Result<()> {
    match node {
        Some(node) if node.tape.is_live() => {
            let text = format!(
                "{operation}: no gradient passes through this; stop_gradient makes a value of what it reads"
            );
            Err(Error::new(ErrorCode::Gradient, text))
        }
        _ => Ok(()),
    }
}

/// Refuses work that writes to memory by address alone, which no handle of a tape's protects, where
/// this thread has a tape.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), naming the operation.
#[track_caller]
pub fn refuse_while_following(operation: &str) -> Result<()> {
    if FOLLOWS.get() {
        let text =
            format!("{operation}: a graph writes to memory that gradients may be computed from");
        return Err(Error::new(ErrorCode::Gradient, text));
    }
    Ok(())
}

/// Tells whether this thread has a tape.
pub fn set_follows(follows: bool) {
    FOLLOWS.set(follows);
}
