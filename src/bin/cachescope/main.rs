//! The command line: what the crate's pools and planner make of recorded programs.

mod failure;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Replays recorded allocations through cachescope's pools, and plans memory for known lifetimes.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(options: Options) -> Result<ExitCode, Failure> {
    match options.command {}
}
