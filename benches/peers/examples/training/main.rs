//! Training with gradients on one thread, with several frameworks. The program measures the peak
//! memory, the step time and the memory growth of two networks in three sizes.
//! `benches/peers/python/training.py` trains the same networks with PyTorch.
//!
//! ```text
//! cargo build --profile bench --manifest-path benches/peers/Cargo.toml --example training
//! benches/peers/target/release/examples/training candle gpt small
//! benches/peers/target/release/examples/training all
//! ```
//!
//! Rows are `framework,network,size,peak_bytes,step_ms,growth_bytes`. Each case has two rows. One
//! row counts live heap bytes, with the global allocator. The other row (`_resident`) counts the
//! resident set. If arrays are in device memory, a third row (`_arrays`) counts only the arrays.
//! Peaks are relative to the live bytes before the inputs and the network were created. Peaks
//! include inputs, network, optimizer state, activations and gradients. Growth is the difference
//! between the live bytes after the last step and after the third step. Times are medians over the
//! steps after the second step. The first losses and the CPU time are written to stderr.

mod cachescope;
mod candle;
mod cases;
mod measure;
mod networks;
mod values;

use std::alloc::System;
use std::env;
use std::process::Command;

use cap::Cap;

use cases::{CASES, Case};
use measure::{Error, Framework, measure};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The frameworks, each with a function that starts a training run.
const FRAMEWORKS: [Framework; 7] = [
    ("candle", candle::start),
    ("cachescope", cachescope::start),
    ("cachescope-plan", cachescope::start_planned),
    ("cachescope-bf16", cachescope::start_bf16),
    ("cachescope-75", cachescope::start_75),
    ("cachescope-50", cachescope::start_50),
    ("cachescope-33", cachescope::start_33),
];

/// The environment variables that limit thread pools to one thread. The variables must be set
/// before the first pool starts.
const THREADS: [&str; 2] = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];

const USAGE: &str = "usage: training all | training FRAMEWORK [NETWORK SIZE]";

/// Returns the live bytes and the peak of the live bytes on the heap.
fn heap_bytes() -> (usize, usize) {
    (HEAP.allocated(), HEAP.max_allocated())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["measure", name, case] => println!("{}", measured(name, case)?),
        ["all"] => {
            heading();
            FRAMEWORKS
                .iter()
                .try_for_each(|(name, _)| train_all(name))?;
        }
        [name] => {
            heading();
            train_all(name)?;
        }
        [name, network, size] => {
            heading();
            train(name, &format!("{network},{size}"))?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn heading() {
    println!("framework,network,size,peak_bytes,step_ms,growth_bytes");
}

fn train_all(name: &str) -> Result<(), Error> {
    CASES
        .iter()
        .try_for_each(|case| train(name, &case.to_string()))
}

/// Measures a case in a separate process, so that its peak does not include other cases.
fn train(name: &str, case: &str) -> Result<(), Error> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["measure", name, case]);
    command.envs(THREADS.map(|threads| (threads, "1")));
    let status = command.status()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{name} {case}: {status}").into())
}

/// Measures a case in this process, and returns its rows.
fn measured(name: &str, case: &str) -> Result<String, Error> {
    let framework = FRAMEWORKS.into_iter().find(|(known, _)| *known == name);
    let framework = framework.ok_or_else(|| format!("no framework \"{name}\""))?;
    let case: Case = case.parse()?;
    Ok(measure(framework, case)?.rows(name, case))
}
