//! Tests of the examples. Only the first steps of their loops may allocate from the driver. Each
//! example checks its own result.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TAKING: [&str; 6] = [
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemAllocFromPoolAsync",
];

/// Builds an example, and returns its path. The build uses the features of the workspace's tests,
/// so that the library is built only once.
fn build(name: &str) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--locked", "--workspace", "--example", name]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = command.current_dir(root).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let own = env::current_exe().unwrap();
    let profile = own.ancestors().nth(2);
    profile.unwrap().join("examples").join(name)
}

/// Runs an example. Asserts that it makes at most `most` allocating calls. The loop has many more
/// steps, so one call per step would exceed the limit.
#[track_caller]
fn takes_at_most(most: u64, name: &str) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut command) = cuda_emulator::command_on_cuda(&build(name), target) else {
        return;
    };
    if !command.get_envs().any(|(name, _)| name == "LD_PRELOAD") {
        cuda_emulator::print_skipped("a real driver does not count its calls");
        return;
    }
    let calls = target.join(format!("{name}-calls"));
    let output = command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("CACHESCOPE_EMULATOR_MEMORY", (16u64 << 30).to_string())
        .env("CACHESCOPE_EMULATOR_CALLS", &calls)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    assert!(!said.contains(" misuses in all"), "{name}: {said}");
    let calls = fs::read_to_string(calls).unwrap();
    let count = |wanted: &str| {
        let lines = calls.lines().map(|line| line.split(' '));
        let mut found = lines.filter_map(|mut fields| {
            let is_wanted = fields.next() == Some(wanted);
            is_wanted.then(|| fields.next()?.parse::<u64>().ok())?
        });
        found.next().unwrap_or(0)
    };
    let taking: u64 = TAKING.iter().map(|name| count(name)).sum();
    let launches = count("cuLaunchKernel");
    assert!(launches > 4 * most, "{name}: {launches} launches");
    assert!(taking <= most, "{name} takes memory in its steps: {calls}");
}

#[test]
fn logistic_regression() {
    takes_at_most(24, "logistic_regression");
}

#[test]
fn power_iteration() {
    takes_at_most(24, "power_iteration");
}

#[test]
fn kmeans() {
    takes_at_most(24, "kmeans");
}

#[test]
fn image_filter() {
    takes_at_most(24, "image_filter");
}

#[test]
fn cudarc_kernels() {
    takes_at_most(24, "cudarc_kernels");
}

/// The example runs on the host device.
#[test]
fn host_buffers() {
    let output = Command::new(build("host_buffers")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
}

#[test]
#[ignore = "the examples that train take minutes on the emulator"]
fn trainings() {
    for name in ["mnist_like_cnn", "char_transformer", "gaussian_splatting"] {
        takes_at_most(100, name);
    }
}
