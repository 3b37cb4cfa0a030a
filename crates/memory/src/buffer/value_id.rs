//! The identity of values for gradients: the tape that tracks them, and their number on it.

use std::cell::Cell;
use std::num::NonZeroU32;

use crate::error::{Error, ErrorCode, Result};
use crate::sync::plain::{AtomicU64, Mutex, Ordering};

/// The identity of tracked values. No other values have it while their tape lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueId {
    /// The tape that tracks the values.
    pub tape: TapeId,
    /// The index of the values on the tape, with the bit 31 set for
    /// constants.
    pub index: u32,
}

impl ValueId {
    /// The bit of constants in an index: no gradient passes through them, but the tape can compute
    /// them again.
    const CONSTANT: u32 = 1 << 31;

    /// The identity of rounded elements whose exact elements are stored after them in the same
    /// memory. The identity counts as a constant and belongs to no tape. A write to the elements
    /// therefore removes it.
    pub const ROUNDED: Self = Self {
        tape: TapeId::NONE,
        index: Self::CONSTANT,
    };

    /// Returns the identity of the constant with this index on `tape`.
    pub fn constant(tape: TapeId, index: usize) -> Self {
        Self {
            tape,
            index: index as u32 | Self::CONSTANT,
        }
    }

    /// Returns true if the values are a constant.
    pub fn is_constant(self) -> bool {
        self.index & Self::CONSTANT != 0
    }

    /// Returns the index among the tape's values, or among its constants.
    pub fn index(self) -> usize {
        (self.index & !Self::CONSTANT) as usize
    }
}

/// The number of a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TapeId(NonZeroU32);

thread_local! {
    static HAS_TAPE: Cell<bool> = const { Cell::new(false) };
}

static LIVE: AtomicU64 = AtomicU64::new(0);

static NUMBERS: Mutex<Vec<TapeId>> = Mutex::new(Vec::new());

impl TapeId {
    /// The number that no tape has.
    const NONE: Self = Self(NonZeroU32::MAX);

    /// Registers a new tape, and returns its number.
    pub fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let most = u64::from(Self::NONE.0.get()) - 1;
        let number = (NEXT.fetch_add(1, Ordering::Relaxed) % most) as u32 + 1;
        let own = Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
        NUMBERS.lock().push(own);
        LIVE.fetch_add(1, Ordering::Relaxed);
        own
    }

    /// Removes the number of a tape that ends.
    pub fn end(self) {
        NUMBERS.lock().retain(|number| *number != self);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether there is any tape in this process.
    #[inline]
    pub fn are_any() -> bool {
        LIVE.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the tape still tracks values.
    pub fn is_live(self) -> bool {
        Self::are_any() && NUMBERS.lock().contains(&self)
    }
}

/// Refuses tracked values, for an operation that gradients cannot pass through.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), naming the operation.
#[track_caller]
pub fn refuse_tracked(operation: &str, value_id: Option<ValueId>) -> Result<()> {
    match value_id {
        Some(value_id) if !value_id.is_constant() && value_id.tape.is_live() => {
            let text = format!(
                "{operation}: no gradient passes through this; stop_gradient makes a value of what it reads"
            );
            Err(Error::new(ErrorCode::Gradient, text))
        }
        _ => Ok(()),
    }
}

/// Refuses work that writes to memory by address alone, if this thread has a tape. The tape's
/// handles do not protect its saved values from these writes.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), naming the operation.
#[track_caller]
pub fn refuse_while_tracking(operation: &str) -> Result<()> {
    if HAS_TAPE.get() {
        let text =
            format!("{operation}: a graph writes to memory that gradients may be computed from");
        return Err(Error::new(ErrorCode::Gradient, text));
    }
    Ok(())
}

/// Sets whether this thread has a tape.
pub fn set_has_tape(has_tape: bool) {
    HAS_TAPE.set(has_tape);
}
