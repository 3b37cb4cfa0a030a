//! Training on several ranks. Each rank trains on its part of every batch.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Mutex;

use cachescope::collective::Group;

use crate::options::Options;
use crate::train_here;
use shared::digits::Digits;
use shared::failure::Failure;

/// The kind of the ranks, and of their launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// Threads of this process.
    Threads(usize),
    /// Processes that `mpirun` has started.
    Mpi,
    /// Processes whose launcher describes them in environment variables.
    Environment,
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let threads = text.strip_prefix("threads:");
        match (text, threads.map(str::parse)) {
            ("mpi", _) => Ok(Self::Mpi),
            ("environment", _) => Ok(Self::Environment),
            (_, Some(Ok(count))) if count > 0 => Ok(Self::Threads(count)),
            _ => Err("mpi, environment, or threads:4 and the like".into()),
        }
    }
}

/// Trains on all ranks. Only the first rank writes to `out`.
pub(crate) fn run(
    ranks: Ranks,
    options: &Options,
    digits: &Digits,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match ranks {
        Ranks::Mpi => run_rank(&Group::mpi()?, options, digits, out),
        Ranks::Environment => run_rank(&Group::from_environment()?, options, digits, out),
        Ranks::Threads(count) => {
            let mut text = Vec::new();
            // The ranks are threads, and `out` is not `Send`. The first rank's output is buffered
            // until all ranks have ended. The progress bar is still drawn on a terminal.
            let shared = Mutex::new(&mut text);
            let failures = Group::threads(count, |group| {
                let outcome = match group.rank() {
                    0 => {
                        let mut text = shared.lock().expect("no rank panics");
                        run_rank(&group, options, digits, *text)
                    }
                    _ => run_rank(&group, options, digits, &mut io::sink()),
                };
                match outcome {
                    Err(Failure::Library(error)) => Err(error),
                    other => Ok(other.err()),
                }
            })?;
            out.write_all(&text)?;
            failures.into_iter().flatten().next().map_or(Ok(()), Err)
        }
    }
}

fn run_rank(
    group: &Group,
    options: &Options,
    digits: &Digits,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match group.rank() {
        0 => train_here(Some(group), options, digits, out),
        _ => train_here(Some(group), options, digits, &mut io::sink()),
    }
}
