//! Fault.
