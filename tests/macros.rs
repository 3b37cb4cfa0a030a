//! The suite of the macros, in edition 2024, on the host and on a CUDA device. The package
//! `renamed` contains the suite in edition 2021.

#![deny(warnings)]

// A user's crate can redefine `::core`. The macros' expansions must not depend on `::core`.
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
