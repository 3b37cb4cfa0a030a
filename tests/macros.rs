//! The suite of the macros. `renamed` runs it from edition 2021, from this edition, and on a CUDA
//! device.

#![deny(warnings)]

// A crate determines the meaning of `::core`. The expansion must not depend on it.
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
