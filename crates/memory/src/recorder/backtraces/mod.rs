//! The call stacks of allocations, for a recording with backtraces.
//!
//! Architecture invariant: this module compiles with and without the feature `backtraces`, with the
//! same signatures. So the layers above need no `cfg`.

#[cfg(not(feature = "backtraces"))]
mod disabled;
#[cfg(feature = "backtraces")]
mod enabled;

#[cfg(not(feature = "backtraces"))]
pub(crate) use disabled::{IS_SUPPORTED, Stacks};
#[cfg(feature = "backtraces")]
pub(crate) use enabled::{IS_SUPPORTED, Stacks};

/// The number of a stack in the recorder, from 1.
pub(crate) type StackNumber = u16;

/// The number that stands for no stack.
pub(crate) const NO_STACK: StackNumber = 0;
