//! Structures of arrays.

use std::fmt::Display;

use crate::array::{Array, Float};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// An array that gradients are computed for, or a structure of such arrays.
///
/// `#[derive(Parameters)]` implements it for any `struct` whose fields are: arrays of floats,
/// `Vec`, `Option`, `Box`, arrays `[P; N]` and tuples of up to four of them, and other structures.
/// Mark a field of another type, such as a rate or a name, by `#[parameters(skip)]`: it is cloned.
///
/// An implementation by hand must call [`MapArrays::enter`] and [`MapArrays::leave`] around each
/// part, with a name that no other part has. [`files`](super::files) identify arrays by these
/// names.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::Parameters;
///
/// #[derive(Parameters)]
/// struct Layer {
///     weight: Array<f32>,
///     bias: Option<Array<f32>>,
/// }
///
/// #[derive(Parameters)]
/// struct Network {
///     layers: Vec<Layer>,
///     #[parameters(skip)]
///     name: String,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no parameters",
    label = "this is no array of floats, and no structure of them",
    note = "a field that is no parameter, such as a rate or a name, is marked `#[parameters(skip)]`",
    note = "a structure of parameters is marked `#[derive(Parameters)]`"
)]
pub trait Parameters: Sized {
    /// Returns a structure of this kind, with each array replaced by `map`.
    ///
    /// # Errors
    ///
    /// The first error of `map`.
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self>;

    /// Calls `zip` with each array of `self` and the corresponding array of `other`.
    ///
    /// # Errors
    ///
    /// The first error of `zip`, and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// structures differ in their lengths or options.
    #[track_caller]
    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()>;
}

/// A function that [`Parameters::map_arrays`] applies to each array.
///
/// # Examples
///
/// Lists the names of arrays, as [`files`](super::files) writes them:
///
/// ```
/// use std::fmt::Display;
///
/// use cachescope::grad::{MapArrays, Parameters};
/// use cachescope::{Array, Float, Result};
///
/// #[derive(Default)]
/// struct Names {
///     place: Vec<String>,
///     names: Vec<String>,
/// }
///
/// impl MapArrays for Names {
///     fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
///         self.names.push(self.place.join("."));
///         Ok(array.clone())
///     }
///
///     fn enter(&mut self, name: &dyn Display) {
///         self.place.push(name.to_string());
///     }
///
///     fn leave(&mut self) {
///         self.place.pop();
///     }
/// }
///
/// #[derive(Parameters)]
/// struct Layer {
///     weight: Array<f32>,
///     bias: Option<Array<f32>>,
/// }
///
/// let layer = || -> Result<Layer> { Ok(Layer { weight: Array::eye(2)?, bias: Some(Array::zeros(2)?) }) };
/// let mut names = Names::default();
/// vec![layer()?, layer()?].map_arrays(&mut names)?;
/// assert_eq!(names.names, ["0.weight", "0.bias", "1.weight", "1.bias"]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait MapArrays {
    /// Returns the array that replaces `array`.
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>>;

    /// Begins a part of the structure. The name of a part is the name of the field, or its number
    /// if it has no name; or the number of an element of a `Vec` or an array `[P; N]`, or of a
    /// member of a tuple. The contents of an `Option` or a `Box` are not a part of their own.
    fn enter(&mut self, _name: &dyn Display) {}

    /// Ends the part begun last. After an error this is not called.
    fn leave(&mut self) {}
}

/// A function that [`Parameters::zip_arrays`] applies to each pair of arrays.
pub trait ZipArrays {
    /// Handles an array of one structure and the corresponding array of the other.
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()>;

    /// Like [`MapArrays::enter`].
    fn enter(&mut self, _name: &dyn Display) {}

    /// Like [`MapArrays::leave`].
    fn leave(&mut self) {}
}

/// Maps a part of a structure under its name.
fn map_part<P: Parameters, M: MapArrays>(name: &dyn Display, own: &P, map: &mut M) -> Result<P> {
    map.enter(name);
    let mapped = own.map_arrays(map)?;
    map.leave();
    Ok(mapped)
}

/// Zips a part of two structures under its name.
#[track_caller]
fn zip_part<P: Parameters, Z: ZipArrays>(
    name: &dyn Display,
    (own, other): (&mut P, &P),
    zip: &mut Z,
) -> Result<()> {
    zip.enter(name);
    own.zip_arrays(other, zip)?;
    zip.leave();
    Ok(())
}

impl<T: Float> Parameters for Array<T> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        map.map(self)
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        zip.zip(self, other)
    }
}

impl<P: Parameters> Parameters for Vec<P> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        let parts = self.iter().enumerate();
        parts
            .map(|(index, own)| map_part(&index, own, map))
            .collect()
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        if self.len() != other.len() {
            return Err(others(format_args!(
                "one has {} parts, the other {}",
                self.len(),
                other.len()
            )));
        }
        let mut pairs = self.iter_mut().zip(other).enumerate();
        pairs
            .try_for_each(|(index, pair)| zip_part(&index, pair, zip))
            .at_caller()
    }
}

impl<P: Parameters> Parameters for Option<P> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        self.as_ref().map(|own| own.map_arrays(map)).transpose()
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        match (self, other) {
            (Some(own), Some(other)) => own.zip_arrays(other, zip),
            (None, None) => Ok(()),
            _ => Err(others(format_args!("only one has an optional part"))),
        }
    }
}

impl<P: Parameters> Parameters for Box<P> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        P::map_arrays(self, map).map(Self::new)
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        P::zip_arrays(self, other, zip)
    }
}

impl<P: Parameters, const N: usize> Parameters for [P; N] {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        let parts = self.iter().enumerate();
        let mapped: Result<Vec<P>> = parts
            .map(|(index, own)| map_part(&index, own, map))
            .collect();
        let mapped: Result<Self, _> = mapped?.try_into();
        Ok(mapped.unwrap_or_else(|_| unreachable!("there are as many")))
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        let mut pairs = self.iter_mut().zip(other).enumerate();
        pairs
            .try_for_each(|(index, pair)| zip_part(&index, pair, zip))
            .at_caller()
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Parameters),*> Parameters for ($($name,)*) {
            fn map_arrays<Map: MapArrays>(&self, _map: &mut Map) -> Result<Self> {
                Ok(($(map_part(&$index, &self.$index, _map)?,)*))
            }

            fn zip_arrays<Zip: ZipArrays>(&mut self, _other: &Self, _zip: &mut Zip) -> Result<()> {
                $(zip_part(&$index, (&mut self.$index, &_other.$index), _zip)?;)*
                Ok(())
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);

#[cold]
#[track_caller]
fn others(what: std::fmt::Arguments<'_>) -> Error {
    let text = format!("the structures of parameters differ: {what}");
    Error::new(ErrorKind::InvalidArgument, text)
}
