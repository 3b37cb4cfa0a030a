//! The library's own suites on a CUDA device: the real one where there is one, else the emulated one.
//!
//! They are the test binaries of the main package, which `cargo test --workspace` has just built: to build
//! each a second time would take minutes. `CACHESCOPE_EMULATOR_ALL=1` runs what is left out here for
//! the time that g++ takes for its kernels.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// No suite takes so long, unless it hangs.
const MOST_TIME: Duration = Duration::from_secs(15 * 60);

/// Why a test of the host's does not hold on CUDA.
const DEFERRED: &str =
    "a drop waits for nothing there, so that a segment is released by the next call";
const LATER: &str = "there, a bad index is told by the next call that waits";
const EARLY: &str = "a real device may have done the work before anybody looks whether it has";
const ROOM: &str = "a fold over several blocks takes room for what they come to";

/// How a suite runs.
#[derive(Default)]
struct Suite<'a> {
    /// What is true of the host alone, and why.
    skipped: &'a [(&'a str, &'a str)],
    /// What is true of devices that do their work as late as they may, the emulated one among them.
    early: &'a [(&'a str, &'a str)],
    /// Whether the emulator watches that the host leaves the device's memory alone, which takes time
    /// with every call that waits.
    guarded: bool,
    /// Whether one test runs at a time: all share one context, and a release waits for all of its streams,
    /// those that another test means to be behind among them.
    alone: bool,
}

/// The newest test binary of that name, which is the one that was built last.
fn binary(suite: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let entries = fs::read_dir(own.parent()?).ok()?;
    let of_suite = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let hash = name.and_then(|name| name.strip_prefix(suite)?.strip_prefix('-'));
        hash.is_some_and(|hash| {
            hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(of_suite).max_by_key(|path| modified(path))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// When a file below `folder` was changed last.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let times = entries.map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            newest(&path)
        } else {
            modified(&path)
        }
    });
    times.max().flatten()
}

fn run(name: &str, suite: &Suite<'_>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let required = cuda_emulator::is_set("CACHESCOPE_REQUIRE_CUDA");
    let Some(program) = binary(name) else {
        assert!(!required, "{name} is not built");
        println!("skipped: {name} is not built; `cargo test --workspace` builds it");
        return;
    };
    let tests = root.join("tests");
    let sources = [
        newest(&root.join("src")),
        newest(&root.join("memory/src")),
        newest(&tests.join(name)),
        newest(&tests.join("operations/tests").join(name)),
        modified(&tests.join(name).with_extension("rs")),
    ];
    let sources = sources.into_iter().max().flatten();
    assert!(
        modified(&program) >= sources,
        "{name} is older than its sources: `cargo test --workspace` builds it anew"
    );
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut command) = cuda_emulator::command_on_cuda(&program, target) else {
        assert!(
            !required,
            "there is no CUDA device, and none can be emulated"
        );
        return;
    };
    command.current_dir(&root);
    let is_emulated = command.get_envs().any(|(name, _)| name == "LD_PRELOAD");
    let early = if is_emulated { &[][..] } else { suite.early };
    for (test, _) in suite.skipped.iter().chain(early) {
        command.args(["--skip", test]);
    }
    // Larger than any limit of a test; what is not touched costs nothing.
    command.env("CACHESCOPE_EMULATOR_MEMORY", (16u64 << 30).to_string());
    if suite.alone {
        command.arg("--test-threads=1");
    }
    if suite.guarded {
        command.env("CACHESCOPE_EMULATOR_GUARD", "1");
    }
    finish(name, command, target);
}

/// Waits for the suite, and fails as it does, or where it ran nothing.
fn finish(name: &str, command: Command, target: &Path) {
    let said = run_to_end(name, command, target);
    let ran = said
        .lines()
        .find(|line| line.starts_with("test result: ok. "));
    assert!(
        ran.is_some_and(|line| !line.starts_with("test result: ok. 0 passed")),
        "{name} ran nothing\n{said}"
    );
}

/// What a program says; fails as it does, or where the emulator was misused.
fn run_to_end(name: &str, mut command: Command, target: &Path) -> String {
    let path = target.join(format!("{name}-on-cuda.log"));
    let log = fs::File::create(&path).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > MOST_TIME {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        thread::sleep(Duration::from_millis(50));
    };
    let said = fs::read(&path).unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    let misused = said
        .lines()
        .any(|line| line.starts_with("cuda-emulator: ") && line.contains(" misuses in all"));
    assert!(status.success() && !misused, "{name}: {status}\n{said}");
    said
}

/// The functions that take memory.
const TAKING: [&str; 6] = [
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemAllocFromPoolAsync",
];

/// Runs an example whose loop has far more steps than `most` calls for memory, so that a call in each would show.
fn run_example(name: &str, most: u64) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    let program = folder.join("examples").join(name);
    let sources = ["src", "memory/src", "examples"].map(|folder| newest(&root.join(folder)));
    if modified(&program) < sources.into_iter().max().flatten() {
        assert!(
            !cuda_emulator::is_set("CACHESCOPE_REQUIRE_CUDA"),
            "the example {name} is not built"
        );
        println!("skipped: {name} is older than its sources; `cargo test --workspace` builds it");
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut command) = cuda_emulator::command_on_cuda(&program, target) else {
        return;
    };
    if !command.get_envs().any(|(name, _)| name == "LD_PRELOAD") {
        println!("skipped: a real driver does not count its calls");
        return;
    }
    let calls = target.join(format!("{name}-calls"));
    command
        .current_dir(&root)
        .env("CACHESCOPE_EMULATOR_MEMORY", (16u64 << 30).to_string())
        .env("CACHESCOPE_EMULATOR_CALLS", &calls);
    run_to_end(name, command, target);
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

/// The loops of the examples take memory in their first steps alone.
#[test]
fn examples() {
    for name in [
        "logistic_regression",
        "power_iteration",
        "kmeans",
        "image_filter",
    ] {
        run_example(name, 24);
    }
    if runs_all("the examples that train") {
        for name in ["mnist_like_cnn", "char_transformer", "gaussian_splatting"] {
            run_example(name, 100);
        }
    }
}

#[test]
fn pools() {
    run(
        "pools",
        &Suite {
            skipped: &[
                (
                    "kinds::a_stream_ordered_pool_is_the_drivers_own",
                    "the host has no such pool",
                ),
                (
                    "kinds::a_direct_pool_holds_what_is_handed_out_and_no_more",
                    DEFERRED,
                ),
                ("blocks::used_and_free_are_the_total_at_all_times", DEFERRED),
            ],
            ..Suite::default()
        },
    );
}

#[test]
fn scopes() {
    run("scopes", &Suite::default());
}

#[test]
fn streams() {
    run(
        "streams",
        &Suite {
            skipped: &[("panics::", "a kernel does not panic")],
            early: &[
                ("pending::a_block_is_pending_while", EARLY),
                ("pending::a_block_written_elsewhere", EARLY),
                ("pending::a_block_that_another_thread_drops", EARLY),
                ("pending::an_orphan_of_a_removed_cache", EARLY),
                ("pending::rung_3_brings", EARLY),
                ("releasing::an_exit_after_an_invalidation", EARLY),
                ("releasing::dropping_does_not_wait", EARLY),
                ("releasing::trimming_waits", EARLY),
            ],
            guarded: true,
            alone: true,
        },
    );
}

#[test]
fn arrays() {
    run(
        "arrays",
        &Suite {
            skipped: &[
                ("index::a_bad_index_is_named", LATER),
                ("picking::a_bad_index_is_named", LATER),
                ("picking::what_does_not_go_together_is_named", LATER),
                ("networks::a_bad_class_is_named", LATER),
            ],
            guarded: true,
            ..Suite::default()
        },
    );
}

#[test]
fn bad_input() {
    run(
        "bad_input",
        &Suite {
            skipped: &[("indices_out_of_range", LATER)],
            guarded: true,
            ..Suite::default()
        },
    );
}

#[test]
fn gradients() {
    run("gradients", &Suite::default());
}

#[test]
fn interop() {
    run("interop", &Suite::default());
}

#[test]
fn macros() {
    run("macros", &Suite::default());
}

#[test]
fn stress() {
    run("stress", &Suite::default());
}

/// Whether what takes the emulator long is asked for; else says that it is skipped.
fn runs_all(what: &str) -> bool {
    let all = cuda_emulator::is_set("CACHESCOPE_EMULATOR_ALL");
    if !all {
        println!("skipped: {what} run on CUDA where CACHESCOPE_EMULATOR_ALL=1");
    }
    all
}

/// Reservations that are worth failing are of millions of elements, and epochs are of hundreds of steps.
#[test]
fn programs() {
    if !runs_all("faults and train_digits") {
        return;
    }
    run("faults", &Suite::default());
    run("train_digits", &Suite::default());
}

/// Thousands of kernels, each of which takes g++ a quarter of a second.
#[test]
fn operations() {
    if !runs_all("ops, evaluators and reference") {
        return;
    }
    run(
        "ops",
        &Suite {
            skipped: &[("reductions::a_fused_reduction_stores", ROOM)],
            ..Suite::default()
        },
    );
    run(
        "evaluators",
        &Suite {
            skipped: &[("agreement::", "between the evaluators of the host")],
            ..Suite::default()
        },
    );
    run("reference", &Suite::default());
}
