//! The subjects of errors.

use std::any::type_name;
use std::fmt;

use crate::array::DType;
use crate::error::{Error, ErrorKind};

/// The subject of an error: a method and a parameter. The parameter is named or, if its name is not
/// known, numbered.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) optimizer: &'static str,
    pub(super) method: &'static str,
    pub(super) number: usize,
    pub(super) name: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// Returns the subject for parameter `number`.
    pub(super) fn numbered(
        (optimizer, method): (&'static str, &'static str),
        number: usize,
    ) -> Self {
        Self {
            optimizer,
            method,
            number,
            name: None,
        }
    }

    /// Returns the subject with the parameter's name.
    pub(super) fn named(self, name: &'a str) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    /// Returns the error of an array `what` whose shape differs from the shape of the parameter.
    #[cold]
    #[track_caller]
    pub(super) fn has_shapes(&self, what: &str, found: &[usize], expected: &[usize]) -> Error {
        self.error(format_args!(
            "{what} of {self} has shape {found:?}, the parameter has shape {expected:?}"
        ))
    }

    /// Returns the error of an array `what` that belongs to a parameter of another type.
    #[cold]
    #[track_caller]
    pub(super) fn has_types(&self, what: &str, found: DType, expected: DType) -> Error {
        let [found, expected] = [found, expected].map(DType::name);
        self.error(format_args!(
            "{what} of {self} was made for a parameter of type {found}, the parameter has type \
             {expected}"
        ))
    }

    /// Returns the error of a step of `self.number` parameters, after steps of `before` parameters.
    #[cold]
    #[track_caller]
    pub(super) fn has_count(&self, before: usize) -> Error {
        let found = self.number;
        self.error(format_args!(
            "{found} parameters are given, the optimizer has states for {before}"
        ))
    }

    /// Returns the error of the state `which`, which an optimizer with `states` states lacks.
    #[cold]
    #[track_caller]
    pub(super) fn has_no_state(&self, which: usize, states: usize) -> Error {
        self.error(format_args!(
            "state {which} of {self} does not exist, the optimizer has {states} states"
        ))
    }

    #[track_caller]
    fn error(&self, problem: fmt::Arguments<'_>) -> Error {
        let Self {
            optimizer, method, ..
        } = self;
        let text = format!("{optimizer}::{method}: {problem}");
        Error::new(ErrorKind::InvalidArgument, text)
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "`{name}`"),
            None => write!(f, "parameter {}", self.number),
        }
    }
}

/// Returns the name of a type without its path and its arguments.
pub(crate) fn short_name<O>() -> &'static str {
    let whole = type_name::<O>().split('<').next();
    whole
        .unwrap_or_default()
        .rsplit("::")
        .next()
        .unwrap_or_default()
}
