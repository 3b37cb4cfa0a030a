//! Values that a file refers to by number.

use std::collections::HashMap;

use super::Value;

/// The numbered values.
///
/// Invariant: no number is in both tables.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The values of the numbers from 0 on, as Python's pickler assigns them.
    dense: Vec<Value>,
    /// The values of other numbers.
    sparse: HashMap<u32, Value>,
}

impl Memo {
    /// Returns the number of values, which is the next number of `MEMOIZE`.
    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<Value> {
        let value = self.dense.get(number as usize);
        value.or_else(|| self.sparse.get(&number)).copied()
    }

    pub(super) fn put(&mut self, number: u32, value: Value) {
        if let Some(known) = self.dense.get_mut(number as usize) {
            *known = value;
        } else if number as usize == self.dense.len() {
            self.sparse.remove(&number);
            self.dense.push(value);
        } else {
            self.sparse.insert(number, value);
        }
    }
}
