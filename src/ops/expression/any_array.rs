//! An array without its element type, as boxed expressions, steps and gradients hold it.

use super::tree::Operand;
use crate::array::{AnyElement, Array, Buffer, DType, Layout, Shape};
use crate::context::Device;

/// A type-erased array, with its tracked value.
#[derive(Debug)]
pub(crate) struct AnyArray {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

impl AnyArray {
    /// Returns a type-erased handle on an array.
    #[track_caller]
    pub(crate) fn of<T: AnyElement>(array: &Array<T>) -> Self {
        Self {
            buffer: array.buffer().share(),
            layout: *array.layout(),
            dtype: T::DTYPE,
        }
    }

    /// Returns the array of the first elements of `buffer`, like [`Array::of_shape`].
    pub(in crate::ops) fn of_shape(buffer: Buffer, shape: &Shape, dtype: DType) -> Self {
        Self {
            buffer,
            layout: Layout::row_major(shape),
            dtype,
        }
    }

    pub(crate) fn into_array<T: AnyElement>(self) -> Array<T> {
        assert_eq!(self.dtype, T::DTYPE, "the types are one");
        Array::from_parts(self.buffer, self.layout)
    }

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
        let layout = *words.layout();
        Self {
            buffer: words.into_buffer(),
            layout,
            dtype,
        }
    }

    /// Returns another handle on the array.
    #[track_caller]
    pub(crate) fn share(&self) -> Self {
        Self {
            buffer: self.buffer.share(),
            ..*self
        }
    }

    /// Returns the array as values that no tape tracks.
    pub(crate) fn untracked(self) -> Self {
        Self {
            buffer: self.buffer.with_value_id(None),
            ..self
        }
    }

    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand {
            buffer: &self.buffer,
            layout: &self.layout,
            dtype: self.dtype,
        }
    }

    pub(in crate::ops) fn device(&self) -> &Device {
        self.buffer.device()
    }

    pub(in crate::ops) fn seen(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}

impl Clone for AnyArray {
    fn clone(&self) -> Self {
        self.share()
    }
}

impl Operand<'_> {
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
