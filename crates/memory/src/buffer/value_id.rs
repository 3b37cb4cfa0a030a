//! The identity of values for gradients: the tape that tracks the values, and their index on the
//! tape.

use std::cell::Cell;
use std::num::NonZeroU32;

use crate::error::{Error, ErrorCode, Result};
use crate::sync::plain::{AtomicU64, Mutex, Ordering};

/// The identity of tracked values. The identity is unique while the tape exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueId {
    /// The tape that tracks the values.
    pub tape: TapeId,
    /// The index of the values on the tape, with bit 31 set for constants.
    pub index: u32,
}

impl ValueId {
    /// The bit that marks a constant in an index. No gradient passes through constants, but the
    /// tape can recompute them.
    const CONSTANT: u32 = 1 << 31;

    /// The identity of rounded elements. The exact elements are stored in the same buffer, behind
    /// the rounded elements. The identity belongs to no tape. It counts as a constant, so a write
    /// to the elements removes it.
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

    /// Returns whether the values are constants.
    pub fn is_constant(self) -> bool {
        self.index & Self::CONSTANT != 0
    }

    /// Returns the index among the tape's values, or among its constants.
    pub fn index(self) -> usize {
        (self.index & !Self::CONSTANT) as usize
    }
}

/// The identifier of a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TapeId(NonZeroU32);

thread_local! {
    static HAS_TAPE: Cell<bool> = const { Cell::new(false) };
}

static LIVE: AtomicU64 = AtomicU64::new(0);

static NUMBERS: Mutex<Vec<TapeId>> = Mutex::new(Vec::new());

impl TapeId {
    /// The identifier that no tape has.
    const NONE: Self = Self(NonZeroU32::MAX);

    /// Registers a new tape, and returns its identifier.
    pub fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let most = u64::from(Self::NONE.0.get()) - 1;
        let number = (NEXT.fetch_add(1, Ordering::Relaxed) % most) as u32 + 1;
        let own = Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
        NUMBERS.lock().push(own);
        LIVE.fetch_add(1, Ordering::Relaxed);
        own
    }

    /// Unregisters the tape.
    pub fn end(self) {
        NUMBERS.lock().retain(|number| *number != self);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether this process has a registered tape.
    #[inline]
    pub fn are_any() -> bool {
        LIVE.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the tape still tracks values.
    pub fn is_live(self) -> bool {
        Self::are_any() && NUMBERS.lock().contains(&self)
    }
}

/// Fails for tracked values, because gradients cannot pass through `operation`.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) with the operation's name.
#[track_caller]
pub fn refuse_tracked(operation: &str, value_id: Option<ValueId>) -> Result<()> {
    match value_id {
        Some(value_id) if !value_id.is_constant() && value_id.tape.is_live() => {
            let text = format!(
                "{operation}: the operation has no gradient: pass its tracked operands \
                 through stop_gradient"
            );
            Err(Error::new(ErrorCode::Gradient, text))
        }
        _ => Ok(()),
    }
}

/// Fails if this thread has a tape, because `operation` writes to memory by address only. The
/// tape's handles cannot protect saved values from writes by address.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) with the operation's name.
#[track_caller]
pub fn refuse_while_tracking(operation: &str) -> Result<()> {
    if HAS_TAPE.get() {
        let text = format!(
            "{operation}: a tape is open, and a graph may write to tracked memory: drop the \
             tape before the call"
        );
        return Err(Error::new(ErrorCode::Gradient, text));
    }
    Ok(())
}

/// Sets whether this thread has a tape.
pub fn set_has_tape(has_tape: bool) {
    HAS_TAPE.set(has_tape);
}
