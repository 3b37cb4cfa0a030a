//! The memory budget for the parsed values of a file.

use std::cell::Cell;
use std::fmt::Display;

use super::pickle::Pickle;

/// The budget per byte of the file. Reading may use 64 bytes per byte of the file. The buffer of
/// the file uses 4 of the 64 bytes.
const BYTES_PER_BYTE: u64 = 60;
/// The part of the budget that does not depend on the file's length.
const BYTES_FOR_ANY: u64 = 1 << 20;

/// The remaining memory for the parsed values of a file.
///
/// A reference occupies a few bytes, and its value may contain further references. So a small file
/// can repeat a value without limit. Code that traverses the values charges each visit before it
/// allocates. The charges bound memory and time by the length of the file.
#[derive(Debug)]
pub(super) struct ReadBudget {
    left_bytes: Cell<u64>,
    limit_bytes: u64,
}

impl ReadBudget {
    pub(super) fn new(pickle: &Pickle<'_>) -> Self {
        let limit_bytes = pickle.file_bytes() * BYTES_PER_BYTE + BYTES_FOR_ANY;
        Self {
            left_bytes: Cell::new(limit_bytes.saturating_sub(pickle.memory_bytes())),
            limit_bytes,
        }
    }

    /// Charges `count` values that become `bytes` bytes each.
    ///
    /// # Errors
    ///
    /// Returns a message with `place` if the charge exceeds the remaining budget.
    pub(super) fn charge(
        &self,
        place: impl Display,
        count: usize,
        bytes: u64,
    ) -> Result<(), String> {
        let left_bytes = self.left_bytes.get();
        let left_bytes = (count as u64)
            .checked_mul(bytes)
            .and_then(|bytes| left_bytes.checked_sub(bytes));
        let left_bytes = left_bytes.ok_or_else(|| {
            let limit_bytes = self.limit_bytes;
            format!(
                "{place}: the file refers to the same values so often that they would take more \
                 than {limit_bytes} bytes of memory, the limit for a file of its length"
            )
        })?;
        self.left_bytes.set(left_bytes);
        Ok(())
    }
}
