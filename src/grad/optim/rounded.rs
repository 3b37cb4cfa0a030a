//! Rounded states with their exact elements.
//!
//! A state is stored in the [accumulation type](Float::Computed) of its parameter. But
//! `OptimizerState` stores each state in a structure of the parameters' type. The arrays of this
//! structure have the parameters' own element types. Therefore, if a state is rounded to a narrow
//! type, its memory stores the exact elements after the rounded elements. A handle of this memory
//! has the identity [`ValueId::ROUNDED`]. A clone also has this identity. A write to the rounded
//! elements removes the identity, because the exact elements are then out of date.

use std::fmt::Display;

use crate::array::{AnyElement, Array, Buffer, Float, Layout, Shape, ValueId};
use crate::error::Result;
use crate::grad::{MapArrays, ZipArrays};
use ndarray::s;

/// Returns whether states of parameters of type `T` are wider than `T`.
pub(crate) const fn is_narrow<T: Float>() -> bool {
    T::DTYPE as u8 != <T::Computed as AnyElement>::DTYPE as u8
}

/// Returns the number of wide elements that cover the memory of `count` narrow elements.
fn front<T: Float>(count: usize) -> usize {
    (count * size_of::<T>()).div_ceil(size_of::<T::Computed>())
}

/// Returns a state rounded to the type of its parameter. Its memory stores the exact elements after
/// the rounded elements. If the types are equal, returns another handle of the array.
#[track_caller]
pub(crate) fn rounded<T: Float>(exact: &Array<T::Computed>) -> Result<Array<T>> {
    if !is_narrow::<T>() {
        return Ok(exact.clone().downcast());
    }
    let (count, shape) = (exact.len(), *exact.layout().shape());
    let first = front::<T>(count);
    let length = Shape::from(first.saturating_add(count));
    let buffer = Buffer::new(exact.device(), length.size_bytes(size_of::<T::Computed>())?)?;
    let mut both = Array::<T::Computed>::from_parts(buffer, Layout::contiguous(&length)?);
    let flat = exact.reshape(count)?;
    both.slice_mut(s![first..])?.assign(&flat)?;
    let layout = Layout::contiguous(&shape)?;
    let mut own = Array::<T>::from_parts(both.into_buffer(), layout);
    own.assign(exact.cast::<T>())?;
    let buffer = own.into_buffer().with_value_id(Some(ValueId::ROUNDED));
    Ok(Array::from_parts(buffer, layout))
}

/// Returns the exact elements of a [rounded](rounded) state. If the state has no exact elements, or
/// if the types are equal, returns the elements of the state.
#[track_caller]
pub(crate) fn exact<T: Float>(state: &Array<T>) -> Result<Array<T::Computed>> {
    if !is_narrow::<T>() {
        return Ok(state.clone().downcast());
    }
    let (buffer, layout) = (state.buffer(), state.layout());
    let first = front::<T>(state.len());
    let whole_bytes = (first + state.len()) * size_of::<T::Computed>();
    let is_whole = layout.offset() == 0
        && layout.is_contiguous()
        && buffer.size_bytes() == whole_bytes
        && buffer.value_id() == Some(ValueId::ROUNDED);
    if !is_whole {
        return state.cast::<T::Computed>().eval_unfused();
    }
    let behind = Layout::contiguous(layout.shape())?.starting_at(first);
    let buffer = buffer.share().with_value_id(None);
    Ok(Array::from_parts(buffer, behind))
}

/// Traversal that passes the exact elements of states to another traversal.
pub(super) struct ExactMap<'a, M>(pub(super) &'a mut M);

impl<M: MapArrays> MapArrays for ExactMap<'_, M> {
    fn map<T: Float>(&mut self, state: &Array<T>) -> Result<Array<T>> {
        let exact = exact(state)?;
        let mapped = self.0.map_state::<T>(&exact)?;
        let is_same = is_narrow::<T>()
            && mapped.buffer().is_same(exact.buffer())
            && mapped.layout() == exact.layout();
        match is_same {
            true => Ok(state.clone()),
            false => rounded(&mapped),
        }
    }

    fn enter(&mut self, name: &dyn Display) {
        self.0.enter(name);
    }

    fn leave(&mut self) {
        self.0.leave();
    }
}

/// Traversal that passes the exact elements of states to another traversal. The other traversal may
/// write them.
pub(super) struct ExactZip<'a, Z>(pub(super) &'a mut Z);

impl<Z: ZipArrays> ZipArrays for ExactZip<'_, Z> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        if !is_narrow::<T>() {
            return self.0.zip(own, other);
        }
        // The exact elements are copied to their own memory, so that a write does not copy them
        // again.
        let mut wide = exact(own)?.lazy().eval_unfused()?;
        self.0.zip(&mut wide, &exact(other)?)?;
        *own = rounded(&wide)?;
        Ok(())
    }

    fn enter(&mut self, name: &dyn Display) {
        self.0.enter(name);
    }

    fn leave(&mut self) {
        self.0.leave();
    }
}
