//! Tests of the library's CUDA device, and of the emulator's guarantees. Each suite runs in a
//! separate process.

mod along;
mod attention;
mod biases;
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

/// A run on the real device if one exists, otherwise on the emulator.
const CUDA: Run = Run::cuda().always();

/// The variable that forces the use of the emulator.
const EMULATOR: (&str, &str) = ("CACHESCOPE_CUDA_EMULATOR", "1");

/// The sizes of tiles that no device has by default.
const OTHER_TILES: &str = "forward:2x64,queries:8x16,keys:1x32";
const SIZES: &str = "its sizes are those of the default tiles";

fn start() {
    cuda_emulator::start(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

const fn suite(name: &'static str, runs: &'static [Run]) -> Suite {
    Suite { name, runs }
}

static SUITES: [Suite; 17] = [
    suite("gpu_run", &[Run::host()]),
    // Each test has a separate, small device.
    suite(
        "rules",
        // The tests are serial, because reports cover all devices.
        &[Run::own(start).serial().with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_DEVICES", "256"),
            ("CACHESCOPE_EMULATOR_MEMORY", "16777216"),
        ])],
    ),
    // The suite counts driver calls.
    suite("device", &[Run::own(device::prepare)]),
    suite("devices", &[CUDA]),
    suite("graph", &[CUDA]),
    suite("lending", &[CUDA]),
    suite("along", &[CUDA]),
    suite(
        "attention",
        &[
            CUDA,
            CUDA.with(&[("CACHESCOPE_ATTENTION_TILES", OTHER_TILES)])
                .without(&[("edges::", SIZES), ("work::", SIZES)]),
        ],
    ),
    // The suite also runs without the algorithms, with algorithms that are refused, and without the
    // functions of cublasLt.
    suite(
        "biases",
        &[
            CUDA,
            Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_EPILOGUES", "0")]),
            Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_EPILOGUES", "2")]),
            Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_CUBLASLT", "0")]),
        ],
    ),
    suite("elementwise", &[CUDA]),
    suite("indexing", &[CUDA]),
    suite("products", &[CUDA]),
    suite("programs", &[CUDA]),
    // The suite needs four devices, which are emulated, because few machines have them.
    suite(
        "collectives",
        &[Run::own(start).with(&[EMULATOR, ("CACHESCOPE_EMULATOR_DEVICES", "4")])],
    ),
    // The clock runs, and the device has the memory size of the GPU in the cost table. Untouched
    // memory uses no host memory.
    suite(
        "costs",
        &[Run::own(costs::prepare).with(&[
            EMULATOR,
            ("CACHESCOPE_EMULATOR_MEMORY", "85520809984"),
            ("CACHESCOPE_EMULATOR_COSTS", "1"),
        ])],
    ),
    // The device has the memory size and the multiprocessors of the dry-run device.
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
