//! Type-erased arrays as operands of expressions, and as words.

use super::tree::Operand;
pub(crate) use crate::array::AnyArray;
use crate::array::{AnyElement, Array, DType, Layout};

impl AnyArray {
    /// Returns another handle on the array, whose elements are seen as words of their size.
    pub(in crate::ops) fn words<Word: AnyElement>(&self) -> Array<Word> {
        assert_eq!(
            self.dtype.size_bytes(),
            size_of::<Word>(),
            "words of another size"
        );
        Array::from_parts(self.buffer.share(), self.layout)
    }

    /// Returns the type-erased array whose elements, of `dtype`, are `words`.
    pub(in crate::ops) fn of_words<Word: AnyElement>(words: Array<Word>, dtype: DType) -> Self {
        Self {
            dtype,
            ..words.into_erased()
        }
    }

    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand {
            buffer: &self.buffer,
            layout: &self.layout,
            dtype: self.dtype,
        }
    }
}

impl<'a> Operand<'a> {
    /// Returns the array with another layout over its memory.
    ///
    /// # Panics
    ///
    /// Panics if the layout reaches beyond the buffer: every kernel relies on a layout within the
    /// buffer.
    pub(in crate::ops) fn viewed(self, layout: &'a Layout) -> Self {
        let capacity = self.buffer.size_bytes() / self.dtype.size_bytes();
        let within = layout
            .bounds()
            .is_none_or(|(_, highest)| highest < capacity);
        assert!(within, "{layout:?} reaches beyond {capacity} elements");
        Self { layout, ..self }
    }

    /// Returns a handle on the array.
    #[track_caller]
    pub(crate) fn share(&self) -> AnyArray {
        AnyArray {
            buffer: self.buffer.share(),
            layout: *self.layout,
            dtype: self.dtype,
        }
    }
}
