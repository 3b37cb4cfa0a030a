//! The operations, for each element type, on the host and on a CUDA device. Each suite runs in a
//! separate process.

mod arrays;
mod grad;
#[cfg(not(feature = "without-ops"))]
mod ops;
mod reference;
mod strided;

use cuda_emulator::{Run, Suite};

const HOST: Run = Run::host();

/// A run on a CUDA device. The emulated memory exceeds the limit of every test. Untouched memory
/// costs nothing.
const CUDA: Run = Run::cuda().with(&[("CACHESCOPE_EMULATOR_MEMORY", "17179869184")]);

/// A run in which the emulator detects accesses of the host to device memory. The check slows every
/// call that waits.
const GUARDED: Run = Run::cuda().with(&[
    ("CACHESCOPE_EMULATOR_MEMORY", "17179869184"),
    ("CACHESCOPE_EMULATOR_GUARD", "1"),
]);

const LATER: &str = "there, a bad index is returned by the next call that waits";
const HOST_KERNELS: &str =
    "many shapes for the kernels of the host: there, convolutions are products";
const ROOM: &str = "a reduction by several blocks takes room for their results";

const fn suite(name: &'static str, runs: &'static [Run]) -> Suite {
    Suite { name, runs }
}

static SUITES: [Suite; 4] = [
    suite(
        "arrays",
        &[
            HOST,
            GUARDED.without(&[
                ("index::a_bad_index_is_named", LATER),
                ("picking::a_bad_index_is_named", LATER),
                ("picking::mismatched_shapes_are_named", LATER),
                ("networks::a_bad_class_is_named", LATER),
            ]),
        ],
    ),
    suite("grad", &[HOST]),
    suite(
        "ops",
        &[
            HOST,
            CUDA.without(&[
                ("reductions::a_fused_reduction_stores", ROOM),
                ("convolutions::convolutions_", HOST_KERNELS),
            ]),
        ],
    ),
    suite("reference", &[HOST, CUDA]),
];

cuda_emulator::run_suites!(&SUITES);
