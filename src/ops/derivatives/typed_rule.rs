//! Rules of operations whose front halves know the type of their elements: factorizations and
//! transforms.

use smallvec::SmallVec;

use super::rule::{RuledOperation, Saved};
use crate::array::{AnyArray, AnyElement, Array};
use crate::error::Result;

#[cfg(feature = "linalg")]
impl Saved {
    /// See [`save_recomputed`](Self::save_recomputed).
    #[track_caller]
    pub(in crate::ops) fn save_recomputed_typed<T: AnyElement>(
        &mut self,
        array: &Array<T>,
    ) -> Array<T> {
        Array::from_erased(self.save_recomputed(array.erased()))
    }
}

impl RuledOperation {
    /// See [`begin`](Self::begin).
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin_typed<T: AnyElement>(
        operation: &'static str,
        operands: &[&Array<T>],
    ) -> Result<Self> {
        let operands = operands.iter().map(|array| array.erased());
        let operands: SmallVec<[&AnyArray; 4]> = operands.collect();
        Self::begin(operation, &operands)
    }

    /// See [`finish`](Self::finish).
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish_typed<T: AnyElement, R, C>(
        self,
        result: Array<T>,
        rule: impl FnOnce(&mut Saved) -> R,
    ) -> Array<T>
    where
        R: FnOnce(AnyArray) -> Result<Vec<C>> + Clone + 'static,
        C: Into<Option<AnyArray>>,
    {
        Array::from_erased(self.finish(result.into_erased(), rule))
    }

    /// See [`finish_empty`](Self::finish_empty).
    #[track_caller]
    pub(in crate::ops) fn finish_empty_typed<T: AnyElement, const N: usize>(
        self,
        results: [Array<T>; N],
    ) -> [Array<T>; N] {
        let results = self.finish_empty(results.map(Array::into_erased));
        results.map(Array::from_erased)
    }

    /// See [`finish_all`](Self::finish_all).
    #[cfg(feature = "linalg")]
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish_all_typed<T: AnyElement, R, C, const N: usize>(
        self,
        results: [Array<T>; N],
        rule: impl FnOnce(&mut Saved, &[Array<T>; N]) -> R,
    ) -> [Array<T>; N]
    where
        R: FnOnce([Option<AnyArray>; N]) -> Result<Vec<C>> + Clone + 'static,
        C: Into<Option<AnyArray>>,
    {
        let results = self.finish_all(results.map(Array::into_erased), |saved, results| {
            rule(saved, &results.map(|own| Array::from_erased(own.share())))
        });
        results.map(Array::from_erased)
    }
}
