//! The memo of a pickle: values that later opcodes reference by index.

use std::collections::HashMap;

use super::Value;

/// The memoised values.
///
/// Invariant: no index is in both `dense` and `sparse`.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The values of contiguous indices from 0 on, which Python's pickler assigns.
    dense: Vec<Value>,
    /// The values of all other indices.
    sparse: HashMap<u32, Value>,
}

impl Memo {
    /// Returns the number of memoised values, which is the index that `MEMOIZE` assigns next.
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
