//! The names, types and shapes of the parameters that buckets and states belong to.

use std::fmt::{self, Display};

use crate::array::{Array, DType, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{MapArrays, Parameters, Place};

/// The parameters of an earlier step, in order. Buckets and divided states belong to them.
#[derive(Debug)]
pub(super) struct Roster(Vec<Member>);

/// A parameter, by its name, type and shape.
#[derive(Debug)]
struct Member {
    name: String,
    dtype: DType,
    shape: Shape,
}

impl Roster {
    #[track_caller]
    pub(super) fn of<P: Parameters>(parameters: &P) -> Result<Self> {
        let mut listing = Listing::default();
        parameters.map_arrays(&mut listing)?;
        Ok(Self(listing.members))
    }

    /// Returns an error if the names, types or shapes of `parameters` differ.
    #[track_caller]
    pub(super) fn check<P: Parameters>(&self, operation: &str, parameters: &P) -> Result<()> {
        let mut comparing = Comparing {
            roster: self,
            number: 0,
            place: Place::default(),
            problem: None,
        };
        parameters.map_arrays(&mut comparing)?;
        let (found, expected) = (comparing.number, self.0.len());
        let problem = comparing.problem.or_else(|| {
            (found != expected)
                .then(|| format!("{found} parameters are given, an earlier step had {expected}"))
        });
        match problem {
            None => Ok(()),
            Some(problem) => Err(refused(operation, &problem)),
        }
    }

    /// Returns the types and lengths of the parameters.
    #[track_caller]
    pub(super) fn lengths(&self) -> Result<Vec<(DType, usize)>> {
        let length = |own: &Member| Ok((own.dtype, own.shape.checked_len()?));
        self.0.iter().map(length).collect()
    }
}

#[cold]
#[track_caller]
fn refused(operation: &str, problem: &str) -> Error {
    let text = format!("{operation}: {problem}: pass the same parameters to every step");
    Error::new(ErrorKind::InvalidArgument, text)
}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_member(f, (&self.name, self.dtype, self.shape.dims()))
    }
}

fn write_member(
    f: &mut impl fmt::Write,
    (name, dtype, shape): (&str, DType, &[usize]),
) -> fmt::Result {
    write!(f, "`{name}` of type {} and shape {shape:?}", dtype.name())
}

#[derive(Default)]
struct Listing {
    place: Place,
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

    fn enter(&mut self, name: &dyn Display) {
        self.place.enter(name);
    }

    fn leave(&mut self) {
        self.place.leave();
    }
}

/// Compares a structure with a roster, and records the first difference.
struct Comparing<'a> {
    roster: &'a Roster,
    number: usize,
    place: Place,
    problem: Option<String>,
}

impl MapArrays for Comparing<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let own = self.roster.0.get(self.number);
        self.number += 1;
        let (name, shape) = (self.place.name(), array.shape());
        let differs = own.filter(|own| {
            (own.name.as_str(), own.dtype, own.shape.dims()) != (name, T::DTYPE, shape)
        });
        if let (Some(own), None) = (differs, &self.problem) {
            let mut found = String::new();
            let _ = write_member(&mut found, (name, T::DTYPE, shape));
            let number = self.number - 1;
            self.problem = Some(format!("parameter {number} is {found}, it was {own}"));
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
