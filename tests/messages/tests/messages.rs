//! Mistakes that the compiler reports, each with the message and the location that the user sees.
//! There is a folder for calls of macros (`macros`), for arrays and expressions (`arrays`), for
//! gradients (`gradients`), and for disabled features (`features`).
//!
//! `TRYBUILD=overwrite cargo test --package messages` updates the expected messages.

use std::fs;
use std::path::Path;

/// The folders of mistakes.
const FOLDERS: [&str; 4] = ["arrays", "features", "gradients", "macros"];

/// The number of lines of a screen.
const SCREEN: usize = 40;

#[test]
fn mistakes_point_at_the_offending_token() {
    let cases = trybuild::TestCases::new();
    for folder in FOLDERS {
        cases.compile_fail(format!("tests/{folder}/*.rs"));
    }
}

#[test]
fn messages_are_short_and_name_types_in_full() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let mut messages = 0;
    for folder in FOLDERS.map(|folder| format!("{root}/{folder}")) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "stderr")
            {
                let text = fs::read_to_string(&path).unwrap();
                for message in text.split("\n\n") {
                    messages += 1;
                    check(message, &path);
                }
            }
        }
    }
    assert!(messages > 50, "only {messages} were found");
}

/// Asserts that a message fits on a screen, and that the compiler wrote none of the message's types
/// to a file. The compiler shortens only types, and only below the lines that show code. If it
/// writes a type to a file, the comparison ignores the line that names the file.
#[track_caller]
fn check(message: &str, path: &Path) {
    let lines = message.lines().count();
    assert!(lines <= SCREEN, "{lines} lines in {path:?}:\n{message}");
    let mut notes = message.lines().filter(|line| !line.contains('|'));
    let is_cut = notes.any(|line| line.contains("...,") || line.contains("...)"));
    assert!(
        !is_cut,
        "a type was written to a file in {path:?}:\n{message}"
    );
}
