//! Tests of the script that runs the tests and benchmarks on a real GPU. The test programs are
//! stubs that only return an outcome. The benchmark W10 runs on the emulated device.

use std::fmt::Write;
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

/// A suite of graphs that fails on the GPU, and reports whether exceptions are recorded.
const ILLEGAL: &str = r#"#!/bin/bash
echo "CUDA_ERROR_ILLEGAL_ADDRESS, recorded: ${CUDA_ENABLE_COREDUMP_ON_EXCEPTION:-0}"
exit 101
"#;

/// A compute-sanitizer that finds an error.
const SANITIZER: &str = r#"#!/bin/bash
echo "========= ERROR SUMMARY: 1 error"
exit 1
"#;

const ATTENTION_VARIANTS: &str =
    "CACHESCOPE_ATTENTION_TILES=forward:8x64 CACHESCOPE_ATTENTION_TILES=forward:2x32";

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
        for inner in ["deps", "examples", "lib", "data"] {
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
        let (status, said) = self.run_parts("suites");
        (status == 0, said)
    }

    /// Runs a part or a load with the small shapes. Returns the exit status, and the output.
    fn run_parts(&self, part: &str) -> (i32, String) {
        let names = ["deps", "examples", "lib"].map(|inner| {
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
            .arg(part)
            .env("OUT", self.0.join("out"))
            .env("CUDA_HOME", self.0.join("cuda"))
            .env("TINY", "1")
            .env("ATTENTION_VARIANTS", ATTENTION_VARIANTS)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("RUST_TEST_THREADS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap(), said)
    }
}

/// Builds the benchmark W10 like the workspace's tests, and returns its path.
fn build_w10() -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--locked", "--workspace", "--bench", "w10"]);
    command.arg("--message-format=json");
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = command.current_dir(root).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let messages = String::from_utf8_lossy(&output.stdout);
    let paths = messages.split("\"executable\":\"").skip(1);
    let mut paths = paths.filter_map(|rest| rest.split('"').next());
    let is_w10 = |path: &&str| path.contains("/w10-");
    paths.find(is_w10).expect("w10 was built").to_owned()
}

/// Returns a script that runs a program on the emulated device, or `None` without a compiler.
fn on_emulator(program: &str) -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let command = cuda_emulator::command_on_cuda(Path::new(program), target)?;
    let mut script = "#!/bin/bash\n".to_owned();
    for (name, value) in command.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value.and_then(|value| value.to_str())) {
            writeln!(script, "export {name}='{value}'").unwrap();
        }
    }
    writeln!(script, "exec '{program}' \"$@\"").unwrap();
    Some(script)
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

/// A later call begins with the missing results, in the order of the loads.
#[test]
fn the_whole_kit_runs_on_the_emulated_device() {
    let Some(script) = on_emulator(&build_w10()) else {
        return;
    };
    let folder = Folder::new("gpu-run-kit");
    folder.program("deps/w10", &script, 0o755);
    folder.program("lib/libcachescope_capi.so", "", 0o755);
    let (status, said) = folder.run_parts("next");
    assert_eq!(status, 3, "{said}");
    assert!(said.starts_with("torch "), "{said}");
    says(&said, "next: load1");
    says(&said, "ok       defect: ");
    says(
        &said,
        "ok       own attention bf16,64,64,causal: forward_ms ",
    );
    says(&said, "ok       own attention f32,32,64,full: forward_ms ");
    says(
        &said,
        "ok       own attention bf16,64,64,causal CACHESCOPE_ATTENTION_TILES=forward:2x32: ",
    );
    says(
        &said,
        "ok       own layer layer_norm,bf16,64,64: forward_ms ",
    );
    says(&said, "ok       own layer linear,bf16,64,64: forward_ms ");
    says(&said, "NOT RUN  attention: 8 of 15 rows: no PyTorch");
    let (status, said) = folder.run_parts("next");
    assert_eq!(status, 3, "{said}");
    says(&said, "next: load2");
    says(&said, "ok       own train gpt tiny bf16 recycle: step_ms ");
    says(&said, "ok       own train gpt tiny bf16 plan: step_ms ");
    says(&said, "ok       own train gpt tiny tf32 graph: step_ms ");
    let (status, said) = folder.run_parts("next");
    assert_eq!(status, 3, "{said}");
    says(&said, "next: load3");
    says(&said, "ok       own train gpt2 tiny bf16 graph: step_ms ");
    says(&said, "NOT RUN  allocators: torch: ");
    says(&said, "NOT RUN  compiled: 1 of 1 rows: no PyTorch");
    let (status, said) = folder.run_parts("next");
    assert_eq!(status, 0, "{said}");
    says(&said, "next: suites");
    let (_, said) = folder.run_parts("load1");
    says(&said, "ok       defect, in an earlier call");
    let stored = fs::read_to_string(folder.0.join("out/halves.md")).unwrap();
    says(&stored, "| bf16, 64, 64, causal |");
    says(&stored, "| bf16, 64, 64, causal, backward | ");
    says(
        &stored,
        "| fastest | default | forward:8x64 | forward:2x32 |",
    );
    says(&stored, "| linear, bf16, 64, 64 |");
    says(&stored, "| gpt2 tiny, bf16 |");
}

#[test]
fn a_defect_of_several_processes_runs_again_for_its_name() {
    let folder = Folder::new("gpu-run-defect");
    folder.program("deps/emulated", ILLEGAL, 0o755);
    fs::create_dir_all(folder.0.join("cuda/bin")).unwrap();
    folder.program("cuda/bin/compute-sanitizer", SANITIZER, 0o755);
    let (status, said) = folder.run_parts("defect");
    assert_eq!(status, 1, "{said}");
    says(&said, "FAILED   graph:: in process 6 of six, plain");
    says(&said, "CUDA_ERROR_ILLEGAL_ADDRESS, recorded: 1");
    says(&said, "FAILED   graph:: in process 1 of six, memcheck");
    says(&said, "ERROR SUMMARY: 1 error");
    let first = fs::read_to_string(folder.0.join("out/defect.memcheck.1")).unwrap();
    assert!(first.contains("ERROR SUMMARY"), "{first}");
}
