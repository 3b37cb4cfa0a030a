//! Who called whom, for each allocation of a recording that asks for it.
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

/// A stack by its number in the recorder, from 1.
pub(crate) type StackNumber = u16;

/// No stack.
pub(crate) const NO_STACK: StackNumber = 0;
