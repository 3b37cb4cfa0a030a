//! The arrays of a structure, by name.

use std::fmt::{self, Display, Write};

use super::parameters::{MapArrays, Parameters};
use crate::array::{AnyArray, Array, DType, Float, Shape};
use crate::error::Result;

/// The name of an array outside of a structure.
const ALONE: &str = "array";

/// The position of a traversal in a structure, as a name: the names of the entered parts, joined by
/// dots.
#[derive(Default)]
pub(crate) struct ParameterPath {
    name: String,
    /// The length of the name before each entered part.
    lengths: Vec<usize>,
}

impl ParameterPath {
    pub(crate) fn enter(&mut self, part: &dyn Display) {
        let dot = if self.lengths.is_empty() { "" } else { "." };
        self.lengths.push(self.name.len());
        // The write fails only if `part` fails to format. The part then has no name. If two arrays
        // therefore have equal names, files return an error.
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

/// Implements the methods `enter` and `leave` of a traversal with the field `place`.
macro_rules! follow_place {
    () => {
        fn enter(&mut self, name: &dyn std::fmt::Display) {
            self.place.enter(name);
        }

        fn leave(&mut self) {
            self.place.leave();
        }
    };
}

pub(crate) use follow_place;

/// Returns the name of array `number`, or `None` if the structure has fewer arrays.
pub(crate) fn name_of<P: Parameters>(parameters: &P, number: usize) -> Option<String> {
    let member = members(parameters).ok()?.into_iter().nth(number);
    member.map(|member| member.name)
}

/// The name, type and shape of an array in a structure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape } = self;
        write!(f, "`{name}` of type {} and shape {shape}", dtype.name())
    }
}

/// Returns the names, types and shapes of a structure's arrays, in order.
#[track_caller]
pub(crate) fn members<P: Parameters>(parameters: &P) -> Result<Vec<Member>> {
    let mut listing = Listing::default();
    parameters.map_arrays(&mut listing)?;
    Ok(listing.members)
}

#[derive(Default)]
struct Listing {
    place: ParameterPath,
    members: Vec<Member>,
}

impl MapArrays for Listing {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.members.push(Member {
            name: self.place.name().to_owned(),
            dtype: T::DTYPE,
            shape: *array.layout().shape(),
        });
        Ok(array.clone())
    }

    follow_place!();
}

/// Maps the arrays of a structure by a function of type-erased arrays. The function must not change
/// their types. The traversal is compiled once for all functions.
#[track_caller]
pub(crate) fn map_erased<P: Parameters>(
    parameters: &P,
    mut function: impl FnMut(AnyArray) -> Result<AnyArray>,
) -> Result<P> {
    parameters.map_arrays(&mut MapErased(&mut function))
}

struct MapErased<'a>(&'a mut dyn FnMut(AnyArray) -> Result<AnyArray>);

impl MapArrays for MapErased<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        Ok((self.0)(AnyArray::of(array))?.into_array())
    }
}

/// Returns handles of the arrays of a structure, in order.
#[cfg(feature = "collective")]
#[track_caller]
pub(crate) fn handles<P: Parameters>(arrays: &P) -> Result<Vec<AnyArray>> {
    let mut handles = Vec::new();
    map_erased(arrays, |array| {
        handles.push(array.share());
        Ok(array)
    })?;
    Ok(handles)
}

/// Returns arrays of zeros with the shapes and types of a structure.
#[track_caller]
pub(crate) fn zeros_of<P: Parameters>(like: &P) -> Result<P> {
    map_erased(like, |array| array.zeros(array.layout.shape()))
}

/// Returns arrays without elements, for a traversal by `zip_arrays` that needs no second structure.
#[track_caller]
pub(crate) fn no_elements<P: Parameters>(like: &P) -> Result<P> {
    map_erased(like, |array| array.zeros(&[0].into()))
}
