//! Parameters in arrays, vectors, options, boxes and tuples.

use std::fmt::Display;

use super::buffers::MapBuffers;
use super::parameters::{MapArrays, Parameters, ZipArrays};
use crate::array::{Array, Float};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Maps a part of a structure. The part's name is `name`.
fn map_part<P: Parameters, M: MapArrays>(name: &dyn Display, own: &P, map: &mut M) -> Result<P> {
    map.enter(name);
    let mapped = own.map_arrays(map)?;
    map.leave();
    Ok(mapped)
}

/// Zips a part of two structures. The part's name is `name`.
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

/// Maps the buffers of a part of a structure. The part's name is `name`.
#[track_caller]
fn map_buffers_of_part<P: Parameters, M: MapBuffers>(
    name: &dyn Display,
    own: &mut P,
    map: &mut M,
) -> Result<()> {
    map.enter(name);
    own.map_buffers(map)?;
    map.leave();
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

    fn map_buffers<M: MapBuffers>(&mut self, map: &mut M) -> Result<()> {
        let mut parts = self.iter_mut().enumerate();
        parts
            .try_for_each(|(index, own)| map_buffers_of_part(&index, own, map))
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

    fn map_buffers<M: MapBuffers>(&mut self, map: &mut M) -> Result<()> {
        match self {
            Some(own) => own.map_buffers(map),
            None => Ok(()),
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

    fn map_buffers<M: MapBuffers>(&mut self, map: &mut M) -> Result<()> {
        P::map_buffers(self, map)
    }
}

impl<P: Parameters, const N: usize> Parameters for [P; N] {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        let parts = self.iter().enumerate();
        let mapped: Result<Vec<P>> = parts
            .map(|(index, own)| map_part(&index, own, map))
            .collect();
        let mapped: Result<Self, _> = mapped?.try_into();
        Ok(mapped.unwrap_or_else(|_| unreachable!("the number of parts is unchanged")))
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        let mut pairs = self.iter_mut().zip(other).enumerate();
        pairs
            .try_for_each(|(index, pair)| zip_part(&index, pair, zip))
            .at_caller()
    }

    fn map_buffers<M: MapBuffers>(&mut self, map: &mut M) -> Result<()> {
        let mut parts = self.iter_mut().enumerate();
        parts
            .try_for_each(|(index, own)| map_buffers_of_part(&index, own, map))
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

            fn map_buffers<Map: MapBuffers>(&mut self, _map: &mut Map) -> Result<()> {
                $(map_buffers_of_part(&$index, &mut self.$index, _map)?;)*
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
