//! Direct.
