//! The library's CUDA device, and the emulator's guarantees to programs that run on it. Each suite
//! runs in its own process.

mod along;
mod collectives;
mod costs;
mod device;
mod devices;
mod dry_runs;
mod elementwise;
mod examples;
mod gpu_run;
mod graph;
mod indexing;
mod lending;
mod products;
mod programs;
mod rules;

use std::path::Path;

use cuda_emulator::{Run, Suite};

/// A run on the real device if there is one.
const CUDA: Run = Run::cuda().always();

/// The variable that selects the emulator, with or without a real device.
const EMULATOR: (&str, &str) = ("CACHESCOPE_CUDA_EMULATOR", "1");

fn start() {
    cuda_emulator::start(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

const fn suite(name: &'static str, runs: &'static [Run]) -> Suite {
    Suite { name, runs }
}

static SUITES: [Suite; 15] = [
    suite("gpu_run", &[Run::host()]),
    // Each test has a small device.
    suite(
        "rules",
        // Reports are of all devices.
        &[Run::own(start).serial().with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_DEVICES", "256"),
            ("CACHESCOPE_EMULATOR_MEMORY", "16777216"),
        ])],
    ),
    // The tests count the calls of the driver.
    suite("device", &[Run::own(device::prepare)]),
    suite("devices", &[CUDA]),
    suite("graph", &[CUDA]),
    suite("lending", &[CUDA]),
    suite("along", &[CUDA]),
    suite("elementwise", &[CUDA]),
    suite("indexing", &[CUDA]),
    suite("products", &[CUDA]),
    suite("programs", &[CUDA]),
    // The suite needs four devices, which few machines have.
    suite(
        "collectives",
        &[Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_DEVICES", "4")])],
    ),
    // The clock runs, and the device has the memory of the GPU that the costs are for. Memory that
    // is not touched needs no memory of the host.
    suite(
        "costs",
        &[Run::own(costs::prepare).with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_MEMORY", "85520809984"),
            ("CACHESCOPE_EMULATOR_COSTS", "1"),
        ])],
    ),
    // The device has the memory and the multiprocessors of the device of a dry run.
    suite(
        "dry_runs",
        &[Run::own(start).with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_MEMORY", "17179869184"),
            ("CACHESCOPE_EMULATOR_MULTIPROCESSORS", "132"),
        ])],
    ),
    suite("examples", &[Run::host()]),
];

cuda_emulator::run_suites!(&SUITES);
