//! The evaluators of the host. A target of its own, because it is compiled a second time with optimisation, where
//! expressions have loops of their own.

#[macro_use]
#[path = "../../../../src/functions.rs"]
mod functions;

mod agreement;
mod recorded;
mod together;
