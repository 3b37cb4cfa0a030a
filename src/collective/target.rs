//! What a call may change: an array, or a part of one.

use crate::array::{AnyElement, Array, refuse_followed};
use crate::error::Result;
use crate::ops::ArrayViewMut;

/// What ranks exchange in place: an [`Array`], or a part of one, from [`Array::slice_mut`].
pub trait Exchanged {
    /// The type of the elements.
    type Item: AnyElement;

    /// Lets `call` change the elements: in their memory, where nothing else has it and they stand
    /// without gaps.
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
        refuse_followed(operation, self.buffer().node())?;
        if self.buffer().holders() > 1 || !self.layout().is_contiguous() {
            self.make_unique(&[])?;
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
