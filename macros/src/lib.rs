//! The procedural macros of cachescope; use them through that crate.
