//! The suite of the macros, which `renamed` runs from edition 2021, again from this edition, and on
//! a CUDA device.

#![deny(warnings)]

// A crate decides what `::core` means; the expansion does not depend on it.
extern crate alloc as core;
extern crate cachescope as scoped;

#[expect(unreachable_pub, reason = "there it is the surface of a library")]
mod renamed;

use cuda_emulator::{Run, Suite};

const RUNS: [Run; 2] = [
    Run::host(),
    Run::cuda().always().only_if(cfg!(feature = "cuda")),
];

const SUITE: Suite = Suite {
    name: "renamed",
    runs: &RUNS,
};

cuda_emulator::run_suites!(&[SUITE]);
