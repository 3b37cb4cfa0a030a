//! All features at once: many threads run random programs over two devices, for
//! `CACHESCOPE_STRESS_SECONDS` (3 by default). Each round takes half a second, and has separate
//! devices. Every array is filled with a unique number, and most arrays are read again before they
//! drop. At the end of a round, no memory may remain.
//!
//! A failure names its seed. `CACHESCOPE_STRESS_SEED` sets the seed of the first round. The seed
//! determines the devices and the programs, but not the interleaving of the threads.

mod bindings;
mod owned;
mod program;
mod random;
mod round;
use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

const SECONDS: &str = "CACHESCOPE_STRESS_SECONDS";
const SEED: &str = "CACHESCOPE_STRESS_SEED";
const ROUND: Duration = Duration::from_millis(500);

/// Returns the setting that repeats the round of a seed.
fn named(seed: u64) -> String {
    format!("{SEED}={seed}")
}

/// Returns the value of an environment variable. If the variable is set, its value must be a
/// number.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Returns the number of this process's threads, or `None` if the platform does not report it.
fn running_threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

#[test]
fn everything_at_once() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<program::OnPurpose>() {
            report(info);
        }
    }));
    let mut seed = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let end = Instant::now() + Duration::from_secs(number(SECONDS).unwrap_or(3));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Rayon's threads start with the first long kernel and never exit, so they must start before
    // the count of threads. Under ThreadSanitizer, kernels start no threads.
    if cfg!(not(tsan)) {
        rayon::broadcast(|_| ());
    }
    // A driver starts its own threads in the first round.
    round::run(seed, 2 * cores + 3, ROUND);
    let before = running_threads();
    while Instant::now() < end {
        round::run(seed, 2 * cores + 3, ROUND);
        seed = seed.wrapping_add(1);
    }
    assert_eq!(running_threads(), before, "every thread has ended");
}
