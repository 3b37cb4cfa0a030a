//! The library's CUDA device, and what the emulator promises to those who run on it. Each suite
//! runs in a process of its own.

mod along;
mod collectives;
mod costs;
mod device;
mod devices;
mod elementwise;
mod examples;
mod gpu_run;
mod graph;
mod indexing;
mod lending;
mod programs;
mod rules;

use std::path::Path;

use cuda_emulator::{Run, Suite};

/// On the real device where there is one.
const CUDA: Run = Run::cuda();

/// On the emulator, whether there is a real device or not.
const EMULATOR: (&str, &str) = ("CACHESCOPE_CUDA_EMULATOR", "1");

fn start() {
    cuda_emulator::start(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

const fn suite(name: &'static str, runs: &'static [Run]) -> Suite {
    Suite { name, runs }
}

static SUITES: [Suite; 13] = [
    suite("gpu_run", &[Run::host()]),
    // A small device for each test.
    suite(
        "rules",
        &[Run::own(start).with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_DEVICES", "256"),
            ("CACHESCOPE_EMULATOR_MEMORY", "16777216"),
        ])],
    ),
    // Its tests count the calls of the driver.
    suite("device", &[Run::own(device::prepare)]),
    suite("devices", &[CUDA]),
    suite("graph", &[CUDA]),
    suite("lending", &[CUDA]),
    suite("along", &[CUDA]),
    suite("elementwise", &[CUDA]),
    suite("indexing", &[CUDA]),
    suite("programs", &[CUDA]),
    // There are seldom so many real devices.
    suite(
        "collectives",
        &[Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_DEVICES", "4")])],
    ),
    // With its clock running, and as much memory as the device that the costs are of. Only what is
    // touched is memory.
    suite(
        "costs",
        &[Run::own(costs::prepare).with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_MEMORY", "85520809984"),
            ("CACHESCOPE_EMULATOR_COSTS", "1"),
        ])],
    ),
    suite("examples", &[Run::host()]),
];

cuda_emulator::run_suites!(&SUITES);
