//! Tests of the program as a process: arguments, files, standard streams and exit codes.

mod constraints;
mod costs;
mod formats;
mod long;
mod models;
mod oracle;
mod plan;
mod recorded;
mod refusals;
mod replay;
mod snapshots;
mod views;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn cachescope(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cachescope"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    cachescope(arguments).output().unwrap()
}

/// Returns the path of a test file.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes a test file, and returns its path as text.
fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = place(name);
    fs::write(&path, content).unwrap();
    text(&path)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns the standard output of a successful run.
#[track_caller]
fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(errors, "");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the error message of a run that exited with 2 and printed nothing to standard output.
#[track_caller]
fn refused(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(output.stdout.is_empty(), "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// Returns the error message of a run that found no plan.
#[track_caller]
fn missed(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    errors
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let printed = succeeded(&run(&[arguments, &["--json"]].concat()));
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error} in {printed}"))
}

#[track_caller]
fn replayed(arguments: &[&str]) -> Vec<Value> {
    let report = json(&[&["replay"], arguments].concat());
    report["pools"].as_array().expect("an array").clone()
}

#[track_caller]
fn replayed_once(arguments: &[&str]) -> Value {
    let mut pools = replayed(arguments);
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

#[track_caller]
fn number(object: &Value, name: &str) -> u64 {
    object[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name} in {object}"))
}

/// A pseudo-random generator with a fixed seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
