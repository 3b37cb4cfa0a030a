//! Everything at once: many threads that run random programs over two devices, for
//! `CACHESCOPE_STRESS_SECONDS` (3 by default), in rounds of half a second with devices of their
//! own. Every array is written with a number that is its alone, and read again before it drops; and
//! when a round is over, nothing may be left.
//!
//! A failure names its seed. `CACHESCOPE_STRESS_SEED` begins with that round: the same devices and
//! the same programs, if not the same interleaving.

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

/// Returns the value of a variable, which must be a number if it is set.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Returns the number of this process's threads; `None` where the platform does not report it.
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
    // Rayon's threads begin with the first long kernel, and stay; under ThreadSanitizer none does.
    if cfg!(not(tsan)) {
        rayon::broadcast(|_| ());
    }
    // A driver begins threads of its own with the first work.
    round::run(seed, 2 * cores + 3, ROUND);
    let before = running_threads();
    while Instant::now() < end {
        round::run(seed, 2 * cores + 3, ROUND);
        seed = seed.wrapping_add(1);
    }
    assert_eq!(running_threads(), before, "every thread has ended");
}
