//! The argument of calls that write in place: an array, or a slice of an array.

use crate::array::{AnyElement, Array, refuse_tracked};
use crate::error::Result;
use crate::ops::ArrayViewMut;

/// An argument of in-place collectives: an [`Array`], or a slice from [`Array::slice_mut`].
pub trait Exchanged {
    /// The type of the elements.
    type Item: AnyElement;

    /// Applies `call` to the elements. If the elements are contiguous and not shared, `call`
    /// changes them in place. Otherwise, a changed copy replaces them.
    #[doc(hidden)]
    fn exchange(
        &mut self,
        operation: &str,
        call: impl FnOnce(&mut Array<Self::Item>) -> Result<()>,
    ) -> Result<()>;
}

impl<T: AnyElement> Exchanged for Array<T> {
    type Item = T;

    #[track_caller]
    fn exchange(
        &mut self,
        operation: &str,
        call: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        refuse_tracked(operation, self.buffer_to_write().value_id())?;
        if self.buffer().holders() > 1 || !self.layout().is_contiguous() {
            self.erased_mut().make_unique()?;
        }
        call(self)
    }
}

impl<T: AnyElement> Exchanged for ArrayViewMut<'_, T> {
    type Item = T;

    #[track_caller]
    fn exchange(
        &mut self,
        operation: &str,
        call: impl FnOnce(&mut Array<T>) -> Result<()>,
    ) -> Result<()> {
        let mut own = self.to_array()?;
        own.exchange(operation, call)?;
        self.assign(own)
    }
}
