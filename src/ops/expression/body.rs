//! The body of a written function as a list of terms. [`written`](super::written) fills it.

use smallvec::SmallVec;

use super::tree::Call;
use crate::array::{Bits, DType};

/// A handle on one part of a body.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub(super) number: u32,
    /// True if the part consists of literals alone, as `f64` or `i64`, until it is combined with a
    /// type.
    pub(super) is_literal: bool,
}

/// The kind of a part.
#[derive(Clone, Debug)]
pub(crate) enum TermKind {
    Argument(usize),
    Scalar(Bits),
    Call(&'static Call, SmallVec<[u32; 4]>),
}

/// A part with its type.
#[derive(Clone, Debug)]
pub(crate) struct BodyTerm {
    pub(crate) kind: TermKind,
    pub(crate) dtype: DType,
}

/// The parts of a body, in the order in which they can be computed.
#[derive(Debug, Default)]
pub struct Terms {
    pub(crate) own: Vec<BodyTerm>,
    /// True if a part is no function of arrays.
    pub(super) is_opaque: bool,
}

/// A function that adds the terms of a body, and returns the number of the result if all terms are
/// functions of arrays.
pub type Body = fn(&mut Terms) -> Option<u32>;
