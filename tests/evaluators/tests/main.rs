//! The evaluators of the host. This target is separate because it is also compiled with
//! optimisation, where each expression has its own loop.

mod agreement;
mod recorded;
mod together;

use cuda_emulator::{Run, Suite};

/// The run on a CUDA device, without comparisons of the host's evaluators. The comparisons have
/// thousands of kernels, and g++ compiles each kernel in a quarter of a second.
const CUDA: Run = Run::cuda()
    .with(&[("CACHESCOPE_EMULATOR_MEMORY", "17179869184")])
    .without(&[("agreement::", "between the evaluators of the host")]);

const RUNS: [Run; 2] = [Run::host(), CUDA];

const fn suite(name: &'static str) -> Suite {
    Suite { name, runs: &RUNS }
}

cuda_emulator::run_suites!(&[suite("agreement"), suite("recorded"), suite("together")]);
