//! The suites of the library. Each suite runs in a separate process on the host. If the device
//! matters, the suite also runs on a CUDA device. If there is no real device, the CUDA device is
//! emulated. On the emulated device, few suites run without `CACHESCOPE_EMULATOR_ALL=1`.

#[cfg(feature = "backtraces")]
mod backtraces;
mod bad_input;
mod bounds;
mod budgets;
mod collective;
mod dry_runs;
mod environment;
mod faults;
mod gradients;
mod interop;
mod layering;
mod pools;
mod recording;
mod scopes;
mod streams;
mod stress;
mod train_digits;

use cuda_emulator::{Run, Suite};
use proptest::test_runner::{FailurePersistence, FileFailurePersistence};

/// The memory size of the emulated device. It exceeds the limit of every test. Untouched memory
/// costs nothing.
const MEMORY: (&str, &str) = ("CACHESCOPE_EMULATOR_MEMORY", "17179869184");
/// The variable that makes the emulator detect accesses of the host to device memory. The check
/// slows every call that waits.
const GUARD: (&str, &str) = ("CACHESCOPE_EMULATOR_GUARD", "1");

const HOST: Run = Run::host();
const CUDA: Run = Run::cuda().only_if(HAS_CUDA).with(&[MEMORY]);
const GUARDED: Run = CUDA.with(&[MEMORY, GUARD]);

const HAS_CUDA: bool = cfg!(feature = "cuda");

/// A reason to skip a test on CUDA devices.
const DEFERRED: &str =
    "a drop waits for nothing there, so that a segment is released by the next call";
const LATER: &str = "there, a bad index is returned by the next call that waits";
const EARLY: &str = "a real device may have done the work before anybody looks whether it has";

/// A serial run, because all tests share one context. A release waits for all streams of the
/// context, including streams that another test delays.
const ALONE: Run = CUDA.serial();

const POOLS: Run = ALONE.without(&[
    (
        "kinds::a_stream_ordered_pool_is_the_drivers_own",
        "the host has no such pool",
    ),
    (
        "kinds::a_direct_pool_holds_what_is_handed_out_and_no_more",
        DEFERRED,
    ),
    ("blocks::used_and_free_are_the_total_at_all_times", DEFERRED),
]);

const STREAMS: Run = ALONE
    .with(&[MEMORY, GUARD])
    .without(&[("panics::", "a kernel does not panic")])
    .without_on_hardware(&[
        ("pending::a_block_is_pending_while", EARLY),
        ("pending::a_block_written_elsewhere", EARLY),
        ("pending::a_block_that_another_thread_drops", EARLY),
        ("pending::an_orphan_of_a_removed_cache", EARLY),
        ("pending::rung_3_brings", EARLY),
        ("releasing::an_exit_after_an_invalidation", EARLY),
        ("releasing::dropping_does_not_wait", EARLY),
        ("releasing::trimming_waits", EARLY),
    ]);

const fn suite(name: &'static str, runs: &'static [Run]) -> Suite {
    Suite { name, runs }
}

static SUITES: [Suite; 17] = [
    suite("layering", &[HOST]),
    suite("environment", &[HOST]),
    suite("pools", &[HOST, POOLS]),
    suite("scopes", &[HOST, CUDA.always()]),
    suite("streams", &[HOST, STREAMS]),
    suite("stress", &[HOST, CUDA]),
    // The suite reserves memory for millions of elements.
    suite("faults", &[HOST, CUDA.long()]),
    suite("recording", &[HOST]),
    suite("backtraces", &[HOST]),
    suite(
        "bad_input",
        &[HOST, GUARDED.without(&[("indices_out_of_range", LATER)])],
    ),
    suite("bounds", &[HOST]),
    suite("interop", &[HOST, CUDA.always()]),
    suite("gradients", &[HOST, CUDA.always()]),
    suite("collective", &[HOST]),
    suite("budgets", &[HOST]),
    suite("dry_runs", &[HOST]),
    // Each epoch of the suite has hundreds of steps.
    suite("train_digits", &[HOST, CUDA.long()]),
];

cuda_emulator::run_suites!(&SUITES);

/// Returns where proptest stores the seeds of failures: `tests/proptest-regressions`. Proptest's
/// default is the root of the repository.
fn regressions() -> Option<Box<dyn FailurePersistence>> {
    let folder = "tests/proptest-regressions";
    Some(Box::new(FileFailurePersistence::SourceParallel(folder)))
}
