//! Writes to parts of arrays.

use std::fmt;
use std::marker::PhantomData;

use ndarray::SliceInfoElem;
use smallvec::SmallVec;

use crate::array::{AnyArray, AnyElement, Array, Bits, Layout};
use crate::error::Result;
use crate::ops::derivatives::{self, RuledOperation};
use crate::ops::descriptors::Copying;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::expr::IntoExpr;
use crate::ops::expression::tree::{Node, Tree};
use crate::ops::host::{Fusing, Unfused};
use crate::ops::index::moves::copied;
use crate::ops::order::aliasing::Target;
use crate::ops::write::assign::{assign, is_tracked, note_copy_on_write, overwrite, replaced};
use crate::ops::write::eval::copy_of;

/// A writable part of an array, which [`Array::slice_mut`] returns. Writes to the part change the
/// array.
#[must_use = "a view writes nothing by itself: call `fill`, `assign` or `update`"]
pub struct ArrayViewMut<'a, T: AnyElement> {
    part: Part<'a>,
    element: PhantomData<&'a mut Array<T>>,
}

impl<T: AnyElement> Array<T> {
    /// Returns the writable part that [`s!`](ndarray::s) selects. Writes to the part change this
    /// array. Writes to the result of [`slice`](Self::slice) do not change this array.
    ///
    /// If other arrays or expressions share the memory, a write first copies this array to its own
    /// memory. The other values do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let mut x = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    /// x.slice_mut(s![0, ..])?.fill(9)?;
    /// x.slice_mut(s![.., ..;2])?.update(|part| part * 10)?;
    /// assert_eq!(x.to_vec()?, [90, 9, 90, 30, 4, 50]);
    ///
    /// // Of values from before, where what is written is also read.
    /// let shifted = x.slice(s![.., ..2])?;
    /// x.slice_mut(s![.., 1..])?.assign(shifted)?;
    /// assert_eq!(x.to_vec()?, [90, 90, 9, 30, 30, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`slice`](Self::slice).
    #[track_caller]
    pub fn slice_mut(
        &mut self,
        selection: impl AsRef<[SliceInfoElem]>,
    ) -> Result<ArrayViewMut<'_, T>> {
        Ok(ArrayViewMut {
            part: Part::new(self.erased_mut(), selection.as_ref())?,
            element: PhantomData,
        })
    }
}

impl<T: AnyElement> ArrayViewMut<'_, T> {
    /// Returns the lengths of the view's axes, outermost first.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let mut x = Array::<f32>::zeros([4, 3])?;
    /// assert_eq!(x.slice_mut(s![1..3, 0])?.shape(), [2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        self.part.layout.dims()
    }

    /// Sets every element of the part to `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let mut x = Array::<f32>::ones([2, 2])?;
    /// x.slice_mut(s![.., 1])?.fill(0.0)?;
    /// assert_eq!(x.to_vec()?, [1.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.assign(value)
    }

    /// Sets the part's elements to the elements of `value`. `value` broadcasts to the part's shape.
    /// Writes like [`Array::assign`]. If `value` reads this array, it reads the values from before
    /// the write, even where the parts overlap.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let mut image = Array::<f32>::zeros([3, 3])?;
    /// let row = Array::from_slice(&[1.0, 2.0], 2)?;
    /// image.slice_mut(s![1.., 1..])?.assign(&row * 2.0)?;
    /// assert_eq!(image.to_vec()?, [0.0, 0.0, 0.0, 0.0, 2.0, 4.0, 0.0, 2.0, 4.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Array::assign`].
    #[track_caller]
    pub fn assign<R: IntoExpr<T>>(&mut self, value: R) -> Result<()> {
        self.part.write(&value.into_lazy().expr)
    }

    /// Sets the part's elements to an expression of the part.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let mut x = Array::from_slice(&[1.0, 2.0, 3.0], 3)?;
    /// x.slice_mut(s![..;2])?.update(|part| -part)?;
    /// assert_eq!(x.to_vec()?, [-1.0, 2.0, -3.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn update<R: IntoExpr<T>>(&mut self, value: impl FnOnce(&Array<T>) -> R) -> Result<()> {
        let value = value(&Array::from_erased(self.part.viewed())).into_lazy();
        self.part.write(&value.expr)
    }

    #[cfg(feature = "collective")]
    #[track_caller]
    pub(crate) fn to_array(&self) -> Result<Array<T>> {
        copy_of(&self.part.viewed()).map(Array::from_erased)
    }
}

/// A type-erased [`ArrayViewMut`].
pub(in crate::ops) struct Part<'a> {
    array: &'a mut AnyArray,
    selection: SmallVec<[SliceInfoElem; 2]>,
    layout: Layout,
}

impl AnyArray {
    /// See [`Array::slice_mut`].
    #[track_caller]
    pub(in crate::ops) fn slice_mut(&mut self, selection: &[SliceInfoElem]) -> Result<Part<'_>> {
        Part::new(self, selection)
    }
}

impl<'a> Part<'a> {
    #[track_caller]
    fn new(array: &'a mut AnyArray, selection: &[SliceInfoElem]) -> Result<Self> {
        let layout = array.layout.slice("slice_mut", selection)?;
        Ok(Self {
            array,
            selection: SmallVec::from_slice(selection),
            layout,
        })
    }

    #[track_caller]
    fn write(&mut self, value: &dyn Fusing) -> Result<()> {
        if derivatives::is_live() && is_tracked(&self.target(), value)? {
            return self.write_tracked(value);
        }
        if self.array.layout.repeats() {
            // If the array is broadcast or has overlapping windows, elements outside of the part
            // share the part's memory.
            self.make_unique(&[value])?;
        }
        let Some(fresh) = assign(self.target(), value)? else {
            return Ok(());
        };
        self.make_unique(&[value])?;
        overwrite(self.target(), &fresh)
    }

    /// Like [`write`](Self::write), for tracked values. The array becomes a new value. The gradient
    /// of the part passes to `value`. The other gradients pass to the old array.
    #[cold]
    #[track_caller]
    fn write_tracked(&mut self, value: &dyn Tree) -> Result<()> {
        let (buffer, layout) = replaced(&self.target(), value)?;
        let part = AnyArray::new(buffer, layout, self.array.dtype);
        let step = RuledOperation::begin("assign", &[self.array, &part])?;
        let mut written = copy_of(&self.array.share().untracked())?;
        let part = part.untracked();
        Part::new(&mut written, &self.selection)?.write(&Unfused(&part.operand()))?;
        *self.array = step.finish(written, |_| parted_back(self.selection.clone()));
        self.layout = self.array.layout.slice("slice_mut", &self.selection)?;
        Ok(())
    }

    /// Returns the part as an array that shares the memory.
    #[track_caller]
    fn viewed(&self) -> AnyArray {
        AnyArray::new(self.array.buffer.share(), self.layout, self.array.dtype)
    }

    /// Sets the part to `value`.
    ///
    /// # Panics
    ///
    /// Panics if the part and `value` have different element types.
    #[track_caller]
    pub(in crate::ops) fn assign(&mut self, value: &AnyLazy) -> Result<()> {
        assert_eq!(
            self.array.dtype,
            value.dtype(),
            "the value and the view differ in type"
        );
        self.write(&Unfused(value))
    }

    #[track_caller]
    pub(in crate::ops) fn add(&mut self, addend: &AnyArray) -> Result<()> {
        let sum = self.viewed().lazy() + addend.lazy();
        self.assign(&sum)
    }

    fn target(&mut self) -> Target<'_> {
        Target::part(self.array, &self.layout)
    }

    /// Moves the array to memory that no other handle shares.
    #[track_caller]
    fn make_unique(&mut self, held: &[&dyn Tree]) -> Result<()> {
        make_unique(self.array, held)?;
        self.layout = self.array.layout.slice("slice_mut", &self.selection)?;
        Ok(())
    }
}

/// Returns the rule of an assignment to a part of an array. The rule returns the array's gradient
/// with zeros in the part, and the part's gradient.
fn parted_back(
    selection: SmallVec<[SliceInfoElem; 2]>,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let of_part = gradient.layout.slice("slice_mut", &selection)?;
        let of_part = gradient.share().seen(of_part);
        let mut of_rest = copy_of(&gradient)?;
        let zero = Node::Scalar(gradient.dtype, Bits::default());
        Part::new(&mut of_rest, &selection)?.write(&Unfused(&zero))?;
        Ok(vec![of_rest, of_part])
    }
}

/// Copies the elements of `array` to memory that only this array has, in row-major order, like
/// [`Arc::make_mut`](std::sync::Arc::make_mut). Handles inside the expressions `held` did not force
/// the copy.
#[track_caller]
fn make_unique(array: &mut AnyArray, held: &[&dyn Tree]) -> Result<()> {
    let own = copied(array, Copying::All, array.layout.shape())?;
    note_copy_on_write(array, &own.buffer, held);
    *array = own;
    Ok(())
}

impl AnyArray {
    /// Copies the elements to memory that only this array has, in row-major order.
    #[track_caller]
    pub(crate) fn make_unique(&mut self) -> Result<()> {
        make_unique(self, &[])
    }
}

impl<T: AnyElement> fmt::Debug for ArrayViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Array::<T>::from_erased(self.part.viewed()), f)
    }
}
