//! The names of a structure's arrays.

use std::fmt::{Display, Write};

use super::parameters::{MapArrays, Parameters};
use crate::array::{Array, Float};
use crate::error::Result;

/// The name of an array outside of a structure.
const ALONE: &str = "array";

/// The position of a traversal in a structure, as a name: the names of the entered parts, joined by
/// dots.
#[derive(Default)]
pub(crate) struct Place {
    name: String,
    /// The length of the name before each entered part.
    lengths: Vec<usize>,
}

impl Place {
    pub(crate) fn enter(&mut self, part: &dyn Display) {
        let dot = if self.lengths.is_empty() { "" } else { "." };
        self.lengths.push(self.name.len());
        // Fails only if `part` fails to format: that part has no name. Two arrays may then have one
        // name, for which files return an error.
        let _ = write!(self.name, "{dot}{part}");
    }

    pub(crate) fn leave(&mut self) {
        let length = self.lengths.pop();
        self.name.truncate(length.unwrap_or(0));
    }

    /// Returns the name of an array at this position.
    pub(crate) fn name(&self) -> &str {
        match self.lengths.is_empty() {
            true => ALONE,
            false => &self.name,
        }
    }
}

/// Returns the name of array `number`; `None` if the structure has fewer.
pub(crate) fn name_of<P: Parameters>(parameters: &P, number: usize) -> Option<String> {
    let mut naming = Naming {
        place: Place::default(),
        left: number,
        found: None,
    };
    parameters.map_arrays(&mut naming).ok()?;
    naming.found
}

/// Finds the name of one array.
struct Naming {
    place: Place,
    /// The number of arrays before it that remain.
    left: usize,
    found: Option<String>,
}

impl MapArrays for Naming {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None if self.found.is_none() => self.found = Some(self.place.name().to_owned()),
            None => {}
        }
        Ok(array.clone())
    }

    fn enter(&mut self, name: &dyn Display) {
        self.place.enter(name);
    }

    fn leave(&mut self) {
        self.place.leave();
    }
}
