//! The macros, from edition 2021, with the crate renamed.
