//! Structures of arrays.

use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};

/// What a gradient is computed for: an array, or a structure of such.
///
/// `#[derive(Parameters)]` makes one of any `struct` whose fields are: arrays of floats, `Vec`, `Option`, `Box`, arrays
/// `[P; N]` and tuples of up to four of them, and other structures. A field of another type, as a rate or a name, is marked
/// `#[parameters(skip)]`, and cloned.
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
pub trait Parameters: Sized {
    /// The same structure with other arrays.
    ///
    /// # Errors
    ///
    /// The first of `map`.
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self>;

    /// Shows each array with that of `other` in its place.
    ///
    /// # Errors
    ///
    /// The first of `zip`, and [`InvalidArgument`](ErrorKind::InvalidArgument) where the structures have other lengths or
    /// options.
    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()>;
}

/// What [`Parameters::map_arrays`] makes of each array.
pub trait MapArrays {
    /// The array in the place of `array`.
    ///
    /// # Errors
    ///
    /// Whatever it does.
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>>;
}

/// What [`Parameters::zip_arrays`] does with two arrays.
pub trait ZipArrays {
    /// Takes an array and that in the same place of the other structure.
    ///
    /// # Errors
    ///
    /// Whatever it does.
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()>;
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
        self.iter().map(|own| own.map_arrays(map)).collect()
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        if self.len() != other.len() {
            return Err(others(format_args!(
                "{} and {} of them",
                self.len(),
                other.len()
            )));
        }
        let mut pairs = self.iter_mut().zip(other);
        pairs.try_for_each(|(own, other)| own.zip_arrays(other, zip))
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
            _ => Err(others(format_args!("an option that only one has"))),
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
        let mapped: Result<Vec<P>> = self.iter().map(|own| own.map_arrays(map)).collect();
        let mapped: Result<Self, _> = mapped?.try_into();
        Ok(mapped.unwrap_or_else(|_| unreachable!("there are as many")))
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        let mut pairs = self.iter_mut().zip(other);
        pairs.try_for_each(|(own, other)| own.zip_arrays(other, zip))
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Parameters),*> Parameters for ($($name,)*) {
            fn map_arrays<Map: MapArrays>(&self, _map: &mut Map) -> Result<Self> {
                Ok(($(self.$index.map_arrays(_map)?,)*))
            }

            fn zip_arrays<Zip: ZipArrays>(&mut self, _other: &Self, _zip: &mut Zip) -> Result<()> {
                $(self.$index.zip_arrays(&_other.$index, _zip)?;)*
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
fn others(what: std::fmt::Arguments<'_>) -> Error {
    let text = format!("parameters of two structures: {what}");
    Error::new(ErrorKind::InvalidArgument, text)
}
