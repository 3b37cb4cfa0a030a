//! The names, types and shapes of the parameters that buckets and states belong to.

use crate::array::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{Member, Parameters, members};

/// The parameters of an earlier step, in order. Buckets and divided states belong to these
/// parameters.
#[derive(Debug)]
pub(super) struct Roster(Vec<Member>);

impl Roster {
    #[track_caller]
    pub(super) fn of<P: Parameters>(parameters: &P) -> Result<Self> {
        Ok(Self(members(parameters)?))
    }

    /// Returns an error if the names, types or shapes of `parameters` differ from the roster.
    #[track_caller]
    pub(super) fn check<P: Parameters>(&self, operation: &str, parameters: &P) -> Result<()> {
        let found = members(parameters)?;
        let mut pairs = found.iter().zip(&self.0).enumerate();
        let problem = match pairs.find(|(_, (found, own))| found != own) {
            Some((number, (found, own))) => {
                format!("parameter {number} is {found}, in an earlier step it was {own}")
            }
            None if found.len() == self.0.len() => return Ok(()),
            None => {
                let (found, expected) = (found.len(), self.0.len());
                format!("{found} parameters are given, an earlier step had {expected}")
            }
        };
        let text = format!("{operation}: {problem}: pass the same parameters to every step");
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns the types and lengths of the parameters.
    #[track_caller]
    pub(super) fn lengths(&self) -> Result<Vec<(DType, usize)>> {
        let length = |own: &Member| Ok((own.dtype, own.shape.checked_len()?));
        self.0.iter().map(length).collect()
    }
}
