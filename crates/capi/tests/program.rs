//! Tests of the library from C and C++: its header, its symbols, and a program that runs under
//! AddressSanitizer.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the folder of the library that cargo built for this test.
fn library_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    assert!(folder.join(library()).is_file(), "{}", folder.display());
    folder.to_owned()
}

fn library() -> String {
    format!(
        "{}cachescope_capi{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    )
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command. If the program is not installed, prints that the test is skipped, even without
/// `--nocapture`.
fn run(command: &mut Command, test: &str) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let program = command.get_program().display();
            let _ = writeln!(io::stderr(), "skipped: {test}: {program}: {error}");
            None
        }
    }
}

fn assert_success(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

/// Compiles the C program with the given flags, and runs it.
fn run_program(test: &str, flags: &[&str]) {
    let folder = library_folder();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let (program, report) = (target.with_extension("out"), target.with_extension("html"));
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(flags)
        .arg("-I")
        .arg(source("include"))
        .arg(source("tests/program.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&folder)
        .args(["-lcachescope_capi", "-lpthread"])
        .arg(format!("-Wl,-rpath,{}", folder.display()));
    let Some(compiled) = run(&mut compile, test) else {
        return;
    };
    assert_success(&compiled);
    let output = Command::new(&program).arg(&report).output().unwrap();
    assert_eq!(assert_success(&output), "ok\n");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.starts_with("<!") && page.contains("recorded"));
}

#[test]
fn a_program_in_c_runs() {
    run_program("a_program_in_c_runs", &[]);
}

#[test]
fn a_program_in_c_runs_under_address_sanitizer() {
    let flags = ["-fsanitize=address", "-fno-omit-frame-pointer"];
    run_program("a_program_in_c_runs_under_address_sanitizer", &flags);
}

#[test]
fn the_header_is_cpp_too() {
    let mut compile = Command::new("c++");
    compile
        .args([
            "-std=c++11",
            "-Wall",
            "-Werror",
            "-fsyntax-only",
            "-x",
            "c++",
        ])
        .arg(source("include/cachescope.h"));
    if let Some(compiled) = run(&mut compile, "the_header_is_cpp_too") {
        assert_success(&compiled);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_but_the_header_is_exported() {
    let mut list = Command::new("nm");
    list.args(["-D", "--defined-only"])
        .arg(library_folder().join(library()));
    let Some(listed) = run(&mut list, "nothing_but_the_header_is_exported") else {
        return;
    };
    let text = assert_success(&listed);
    let mut exported: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(source("include/cachescope.h")).unwrap();
    let mut declared: Vec<_> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with(' '))
        .filter_map(|line| {
            line.split(['(', ' ', '*'])
                .find(|word| word.starts_with("cs_") && *word != "cs_cache")
        })
        .collect();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}
