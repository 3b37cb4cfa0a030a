//! The names of a structure's arrays.

use std::collections::HashSet;
use std::fmt::{Display, Write};

use super::Context;
use crate::array::{Array, DType, Float};
use crate::error::{ErrorKind, Result};
use crate::grad::parameters::{MapArrays, Parameters};

/// What an array is called that is in no structure.
const ALONE: &str = "array";

/// Where a map is in a structure.
#[derive(Default)]
pub(super) struct Place {
    name: String,
    /// How long the name was before each part was entered.
    lengths: Vec<usize>,
}

impl Place {
    pub(super) fn enter(&mut self, part: &dyn Display) {
        let dot = if self.lengths.is_empty() { "" } else { "." };
        self.lengths.push(self.name.len());
        // A string takes any text; a part that cannot be displayed has no name, and its arrays may share one, which is refused.
        let _ = write!(self.name, "{dot}{part}");
    }

    pub(super) fn leave(&mut self) {
        let length = self.lengths.pop();
        self.name.truncate(length.unwrap_or(0));
    }

    /// What an array here is called.
    pub(super) fn name(&self) -> &str {
        match self.lengths.is_empty() {
            true => ALONE,
            false => &self.name,
        }
    }
}

/// What a structure has of an array.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    #[cfg(feature = "safetensors")]
    pub(super) shape: crate::array::Shape,
}

/// The arrays of a structure, in its order.
///
/// # Errors
///
/// Where two have the same name.
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
