//! The command-line program of cachescope. It replays, displays and compares recorded programs, and
//! plans memory.

#![forbid(unsafe_code)]

mod compare;
mod failure;
mod modelled;
mod output;
mod plan;
mod progress;
mod replay;
mod simulated;
mod snapshot;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::ExitFailure;

/// Replays, displays and compares recorded allocations, and plans memory for known lifetimes.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true)]
struct CommandArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Compare(compare::CompareArguments),
    Plan(plan::PlanArguments),
    Replay(replay::ReplayArguments),
    View(view::ViewArguments),
}

fn main() -> ExitCode {
    match run(&CommandArguments::parse()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(options: &CommandArguments) -> Result<ExitCode, ExitFailure> {
    match &options.command {
        Command::Plan(options) => plan::run(options),
        Command::Replay(options) => replay::run(options).map(|()| ExitCode::SUCCESS),
        Command::View(options) => view::run(options).map(|()| ExitCode::SUCCESS),
        Command::Compare(options) => compare::run(options).map(|()| ExitCode::SUCCESS),
    }
}
