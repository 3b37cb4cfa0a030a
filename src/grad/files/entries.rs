//! The arrays to write to a file.

use std::collections::HashSet;
use std::fmt::Display;

use super::Context;
use crate::array::{Array, DType, Float};
use crate::error::{ErrorKind, Result};
use crate::grad::parameters::{MapArrays, Parameters};
use crate::grad::place::Place;

/// An array of a structure: its name, type and shape.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    #[cfg(feature = "safetensors")]
    pub(super) shape: crate::array::Shape,
}

/// Returns the arrays of a structure, in its order.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if two have one name.
pub(super) fn entries<P: Parameters>(parameters: &P, context: &Context<'_>) -> Result<Vec<Entry>> {
    let mut listing = Listing::default();
    parameters.map_arrays(&mut listing)?;
    let mut names = HashSet::new();
    for Entry { name, .. } in &listing.entries {
        if !names.insert(name) {
            let problem = "two arrays of the structure are called so: each part of it needs a name of its own";
            return Err(context.error(ErrorKind::InvalidArgument, Some(name), problem));
        }
    }
    Ok(listing.entries)
}

#[derive(Default)]
struct Listing {
    place: Place,
    entries: Vec<Entry>,
}

impl MapArrays for Listing {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.entries.push(Entry {
            name: self.place.name().to_owned(),
            dtype: T::DTYPE,
            #[cfg(feature = "safetensors")]
            shape: *array.layout().shape(),
        });
        Ok(array.clone())
    }

    fn enter(&mut self, name: &dyn Display) {
        self.place.enter(name);
    }

    fn leave(&mut self) {
        self.place.leave();
    }
}
