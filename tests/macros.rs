//! The suite of the macros, which `renamed` runs from edition 2021, again from this edition.

#![deny(warnings)]

// What `::core` means is up to the crate; the expansion does not ask.
extern crate alloc as core;
extern crate cachescope as scoped;

#[expect(unreachable_pub, reason = "there it is the surface of a library")]
#[path = "renamed/src/lib.rs"]
mod suite;
