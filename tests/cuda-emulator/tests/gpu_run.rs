//! Tests of the script that runs the tests on a real GPU. The test programs are stubs that only
//! return an outcome.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A suite of three tests. One test breaks the context, and then each later call in the process
/// fails.
const BREAKING: &str = r#"#!/bin/bash
case "$*" in
    *--list*) printf 'pools::first: test\npools::breaking: test\npools::last: test\n' ;;
    "--exact pools::first" | "--exact pools::last") echo "test result: ok. 1 passed" ;;
    *) echo "test breaking ... FAILED"; echo "the device is unusable in this process: restart it"; exit 101 ;;
esac
"#;

/// Returns an executable with the given suites, each with two modules.
fn well(suites: &str) -> String {
    format!(
        r#"#!/bin/bash
case "$*" in
    *--list*)
        for suite in {suites}; do
            case "$suite::" in
                "$1"*) printf "$suite::one::a: test\n$suite::one::b: test\n$suite::two::c: test\n" ;;
            esac
        done ;;
    *) echo "test result: ok. 3 passed with $RUST_TEST_THREADS threads: $*" ;;
esac
"#
    )
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        for inner in ["deps", "examples", "data"] {
            fs::create_dir_all(path.join(inner)).unwrap();
        }
        let folder = Self(path);
        for (file, text) in [
            ("root", folder.0.join("sources").display().to_string()),
            ("scratch", folder.0.join("room").display().to_string()),
            ("revision", "0123".into()),
        ] {
            fs::write(folder.0.join(file), text).unwrap();
        }
        for (name, suites) in [
            ("emulated", "devices graph"),
            ("operations", "reference ops arrays"),
            ("suites", "scopes pools streams"),
            ("w7", ""),
        ] {
            folder.program(&format!("deps/{name}"), &well(suites), 0o755);
        }
        folder.program("examples/train_digits", &well(""), 0o755);
        folder
    }

    fn program(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs the suites. Returns whether all of them succeeded, and the output.
    fn run(&self) -> (bool, String) {
        let names = ["deps", "examples"].map(|inner| {
            let files = fs::read_dir(self.0.join(inner)).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            names
                .map(|name| format!("{inner}/{name}\n"))
                .collect::<String>()
        });
        let list = self.0.join("binaries");
        if !list.exists() {
            fs::write(list, names.concat()).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/run");
        let output = Command::new("bash")
            .arg(script)
            .arg(&self.0)
            .arg("suites")
            .env("OUT", self.0.join("out"))
            .env_remove("RUST_TEST_THREADS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    }
}

#[track_caller]
fn says(said: &str, line: &str) {
    assert!(
        said.lines().any(|own| own.contains(line)),
        "no \"{line}\" in:\n{said}"
    );
}

#[test]
fn suites_that_are_well_end_well() {
    let folder = Folder::new("gpu-run-well");
    let (is_well, said) = folder.run();
    assert!(is_well, "{said}");
    says(&said, "ok       ops::one::");
    says(&said, "ok       ops::two::");
    says(&said, "with 2 threads: ops::two::");
    says(&said, "ok       pools (");
    let times = said.matches("ok       graph (").count();
    assert_eq!(times, 1, "{said}");
    says(&said, "all of it is well");
}

#[test]
fn a_binary_that_is_missing_or_cannot_run_is_a_failure() {
    let folder = Folder::new("gpu-run-missing");
    folder.run();
    fs::remove_file(folder.0.join("deps/operations")).unwrap();
    folder.program("deps/suites", &well("scopes pools"), 0o644);
    let (is_well, said) = folder.run();
    assert!(!is_well, "{said}");
    says(&said, "FAILED   deps/operations is missing");
    says(&said, "FAILED   deps/suites is not executable");
    says(&said, "ok       devices");
}

#[test]
fn a_suite_whose_context_breaks_runs_again_test_by_test() {
    let folder = Folder::new("gpu-run-broken");
    folder.program("deps/broken", BREAKING, 0o755);
    let (is_well, said) = folder.run();
    assert!(!is_well, "{said}");
    says(&said, "FAILED   pools (");
    says(&said, "AGAIN    pools");
    says(&said, "ok       pools pools::first");
    says(&said, "FAILED   pools pools::breaking");
    says(&said, "ok       pools pools::last");
    assert!(!said.contains("AGAIN    scopes"), "{said}");
}
