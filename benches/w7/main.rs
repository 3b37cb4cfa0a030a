//! Benchmark W7, this library's part: allocations, the hit, the loop and the operations on a GPU.
//!
//! `cargo bench --bench w7 [-- --rounds N --device cuda:0 NAME…]` prints a line of JSON for each
//! task: `{name, section, size, median_ns, iterations, extra}`.
//!
//! `tests/gpu/w7.py` runs the benchmark with `--serve`, to time it alternately with its peers. Then
//! each input line is a command, and the reply to a command is a line of JSON:
//!
//! ```text
//! device            what it runs on
//! tasks             what there is to time
//! check NAME SIZE   results that others can be held to
//! time NAME SIZE N  the nanoseconds that it took to do it N times, those of the device included
//! drop              forgets what was prepared, and gives its memory back
//! ```

mod allocations;
mod driver;
mod operations;
mod settings;
mod steps;
mod tasks;

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use settings::{Options, Settings};
use tasks::{Prepared, Task};

/// The result of a task. Errors are from this library, from the driver, or from a file.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// A task that can be repeated.
trait Work {
    /// Executes the task `times` times. Returns the elapsed time, including the wait for the
    /// device.
    fn run(&mut self, times: u64) -> Outcome<Duration>;

    /// Returns the number of operations per execution.
    fn pieces(&self) -> u64 {
        1
    }

    /// Returns results for comparison with the results of other programs.
    fn check(&mut self) -> Outcome<Value> {
        Ok(json!({}))
    }

    fn extra(&self) -> Value {
        json!({})
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = Settings::new(options).and_then(|settings| {
        let _current = settings.device.enter();
        if settings.options.serve {
            serve(&settings);
            return Ok(());
        }
        print_all(&settings)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Times all tasks that the options select.
fn print_all(settings: &Settings) -> Outcome<()> {
    let names = &settings.options.names;
    println!("{}", settings.facts());
    let mut prepared = Prepared::default();
    for task in tasks::all(settings) {
        if !names.is_empty() && !names.contains(&task.name) {
            continue;
        }
        println!("{}", timed(settings, &mut prepared, &task)?);
        prepared.release(settings);
    }
    Ok(())
}

fn timed(settings: &Settings, prepared: &mut Prepared, task: &Task) -> Outcome<Value> {
    let batch = Duration::from_millis(settings.options.batch_ms);
    let work = prepared.work(settings, &task.name, task.size)?;
    let mut times = 1;
    work.run(times)?;
    while work.run(times)? < batch {
        times *= 2;
    }
    let mut nanos = Vec::new();
    for _ in 0..settings.options.rounds.max(1) {
        let pieces = times * work.pieces();
        nanos.push(work.run(times)?.as_nanos() as f64 / pieces as f64);
    }
    nanos.sort_by(f64::total_cmp);
    Ok(json!({
        "name": task.name,
        "section": task.section,
        "size": task.size,
        "median_ns": nanos[nanos.len() / 2],
        "iterations": times * work.pieces(),
        "extra": work.extra(),
    }))
}

/// Executes the command in each line of the standard input.
fn serve(settings: &Settings) {
    let mut prepared = Prepared::default();
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        let answer = answer(settings, &mut prepared, &line)
            .unwrap_or_else(|error| json!({ "error": error.to_string() }));
        let mut out = io::stdout().lock();
        // If the reply cannot be written, the controlling process has ended.
        if writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
}

fn answer(settings: &Settings, prepared: &mut Prepared, line: &str) -> Outcome<Value> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    match words.as_slice() {
        ["device"] => Ok(settings.facts()),
        ["tasks"] => {
            let all = tasks::all(settings);
            Ok(all.iter().map(Task::to_json).collect())
        }
        ["drop"] => {
            prepared.release(settings);
            Ok(json!({}))
        }
        ["check", name, size] if number(size).is_some() => {
            let size = number(size).unwrap_or_default();
            prepared.work(settings, name, size)?.check()
        }
        ["time", name, size, times] if number(size).and(number(times)).is_some() => {
            let size = number(size).unwrap_or_default();
            let times = number(times).unwrap_or_default();
            let work = prepared.work(settings, name, size)?;
            let nanos = work.run(times)?.as_nanos() as u64;
            Ok(json!({ "nanos": nanos, "pieces": work.pieces() * times, "extra": work.extra() }))
        }
        _ => Ok(json!({ "error": format!("no such order: \"{line}\"") })),
    }
}
