//! The evaluators of the host. This is a separate target, because it is also compiled with
//! optimisation, where expressions have separate loops.

mod agreement;
mod recorded;
mod together;

use cuda_emulator::{Run, Suite};

/// There are thousands of kernels, each of which takes g++ a quarter of a second. Comparisons of
/// the host's evaluators are excluded.
const CUDA: Run = Run::cuda()
    .with(&[("CACHESCOPE_EMULATOR_MEMORY", "17179869184")])
    .without(&[("agreement::", "between the evaluators of the host")]);

const RUNS: [Run; 2] = [Run::host(), CUDA];

const fn suite(name: &'static str) -> Suite {
    Suite { name, runs: &RUNS }
}

cuda_emulator::run_suites!(&[suite("agreement"), suite("recorded"), suite("together")]);
