//! The bodies of written functions as part of a template. [`written`](super::written) adds them.

use std::mem;

use super::template::GraphTemplate;
use super::tree::Call;

/// A handle on one part of a body.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub(super) number: u32,
    /// True if the part consists of literals alone, as `f64` or `i64`, until it is combined with a
    /// type.
    pub(super) is_literal: bool,
}

/// The template that a body is added to.
#[derive(Debug)]
pub struct Terms {
    pub(super) template: GraphTemplate,
    /// The nodes of the arguments.
    pub(super) arguments: Vec<u32>,
    /// True if a part is no function of arrays.
    pub(super) is_opaque: bool,
}

/// A function that adds the terms of a body, and returns the number of the result if all terms are
/// functions of arrays.
pub type Body = fn(&mut Terms) -> Option<u32>;

impl GraphTemplate {
    /// Adds the body of a written function; for other functions, and for a body that is no function
    /// of arrays, adds the call.
    pub(in crate::ops) fn call_or_body(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        if let (Some(add_body), None) = (call.body, call.partials) {
            let mut terms = Terms {
                template: mem::take(self),
                arguments: operands.to_vec(),
                is_opaque: false,
            };
            let result = add_body(&mut terms);
            *self = terms.template;
            if let Some(result) = result {
                return result;
            }
        }
        self.call(call, operands)
    }
}
