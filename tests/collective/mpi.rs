//! Groups of ranks that are processes. For each case, this program starts itself under `mpirun`,
//! and each process runs one rank. The suite `collective`, whose ranks are threads, also uses
//! `bodies`.

mod bodies;
mod launch;
mod ranks;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use launch::{Ended, PART, has_emulator, has_mpirun, start};
use ranks::PARTS;

/// The expected exit of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All processes exit without an error.
    Success,
    /// Some processes exit with an error, or are terminated.
    Failure,
}

/// A test case: the code that each rank runs, and the expected outcome.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The group sizes to test. Size 1 runs without `mpirun`.
    pub(crate) sizes: &'static [usize],
    pub(crate) rank: fn() -> cachescope::Result<()>,
    pub(crate) outcome: Outcome,
    /// The number of ranks that must print `ranks::HEARD`.
    pub(crate) heard: usize,
    /// The value of `CACHESCOPE_MPI_CUDA` on the emulated device, or `None` for cases on the host.
    pub(crate) takes_device_memory: Option<&'static str>,
}

impl Part {
    pub(crate) const fn on_devices(mut self, takes_device_memory: &'static str) -> Self {
        self.takes_device_memory = Some(takes_device_memory);
        self
    }
}

/// The time limit of a case. `ranks::FOR_EVER` is longer.
const LONGEST: Duration = Duration::from_secs(100);

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(PART) {
        return take_part(&name);
    }
    if !cfg!(feature = "mpi") {
        println!("mpi: skipped: built without the feature `mpi`");
        return ExitCode::SUCCESS;
    }
    if !has_mpirun() {
        println!("mpi: skipped: there is no mpirun here");
        return ExitCode::SUCCESS;
    }
    let only = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with('-'));
    let mut failed = 0;
    for part in PARTS {
        if only.as_ref().is_some_and(|only| !part.name.contains(only)) {
            continue;
        }
        if part.takes_device_memory.is_some() && !has_emulator() {
            println!(
                "mpi: {}: skipped: the emulated device is not built",
                part.name
            );
            continue;
        }
        for size in part.sizes {
            let began = Instant::now();
            let ended = start(part, *size, LONGEST);
            let verdict = judge(part, &ended);
            let (name, took) = (part.name, began.elapsed());
            match verdict {
                Ok(()) => println!("mpi: {name} of {size} ranks: ok, {took:.1?}"),
                Err(reason) => {
                    failed += 1;
                    println!("mpi: {name} of {size} ranks: FAILED: {reason}\n{ended}");
                }
            }
        }
    }
    println!("mpi: {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Runs one rank of the case `name`.
fn take_part(name: &str) -> ExitCode {
    let part = PARTS.iter().find(|part| part.name == name);
    let part = part.expect("there is such a part");
    match (part.rank)() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn judge(part: &Part, ended: &Ended) -> Result<(), String> {
    if ended.ran_too_long {
        return Err(format!("it did not end within {LONGEST:?}"));
    }
    let heard = ended.output.matches(ranks::HEARD).count();
    if heard != part.heard {
        return Err(format!("{heard} ranks heard of it, and not {}", part.heard));
    }
    match (part.outcome, ended.is_success) {
        (Outcome::Success, false) => Err("a rank failed".to_owned()),
        (Outcome::Failure, true) => Err("no rank failed".to_owned()),
        _ => Ok(()),
    }
}
