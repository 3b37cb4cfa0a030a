//! Backtraces in builds without the feature `backtraces`: no stack is ever captured.

use std::panic::Location;

use cachescope_reports::Frame;

use super::{NO_STACK, StackNumber};

/// True if stacks can be captured.
pub(crate) const IS_SUPPORTED: bool = false;

/// An empty set of stacks.
#[derive(Debug, Default)]
pub(crate) struct Stacks(());

impl Stacks {
    pub(crate) fn capture(&self) -> StackNumber {
        NO_STACK
    }

    pub(crate) fn resolve(&self, _stack: StackNumber, _below: &Location<'_>) -> Vec<Frame> {
        Vec::new()
    }
}
