//! Test executables with several suites. Each suite runs in a separate process.
//!
//! The driver, the environment and the counters are per process, and tests assert their states. So
//! the executable starts itself again for each suite, on the host and on a CUDA device.
//!
//! A suite is a module of the executable. The arguments are libtest's: `pools:: --nocapture` runs
//! the suite `pools` on all its devices. `CACHESCOPE_DEVICE` selects the runs on one device.

mod arguments;

use std::env;
use std::io::{BufRead, BufReader, pipe};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use arguments::Arguments;

/// The time limit of a suite. A suite that exceeds the limit counts as hung, and is stopped.
const MOST_TIME: Duration = Duration::from_secs(15 * 60);

/// The environment variable that contains the name of the run that a process executes.
const RUN: &str = "CACHESCOPE_TEST_RUN";

/// The exit code of a failed test run, equal to libtest's.
const FAILED: i32 = 101;

/// A module of tests, with the devices on which it runs.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// The name of the module.
    pub name: &'static str,
    /// The runs of the suite. Each run is a separate process.
    pub runs: &'static [Run],
}

/// A configuration in which a process runs a suite.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    device: RunDevice,
    skipped: &'static [(&'static str, &'static str)],
    skipped_on_hardware: &'static [(&'static str, &'static str)],
    variables: &'static [(&'static str, &'static str)],
    is_serial: bool,
    tier: Tier,
    is_possible: bool,
}

/// The condition under which a run for CUDA uses the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Runs in all cases.
    Always,
    /// Runs if `CACHESCOPE_EMULATOR_ALL=1`.
    All,
    /// Runs if `CACHESCOPE_EMULATOR_ALL=long`.
    Long,
}

#[derive(Clone, Copy, Debug)]
enum RunDevice {
    Host,
    Cuda,
    /// A device that the given function prepares before `main`.
    Own(fn()),
}

impl Run {
    const fn new(device: RunDevice) -> Self {
        Self {
            device,
            skipped: &[],
            skipped_on_hardware: &[],
            variables: &[],
            is_serial: false,
            tier: Tier::All,
            is_possible: true,
        }
    }

    /// Returns a run on the host device.
    #[must_use]
    pub const fn host() -> Self {
        Self::new(RunDevice::Host)
    }

    /// Returns a run on the real CUDA device. If no real device exists and
    /// `CACHESCOPE_EMULATOR_ALL=1`, the run is on the emulated device. Emulated runs are optional,
    /// because most of them compile hundreds of kernels.
    #[must_use]
    pub const fn cuda() -> Self {
        Self::new(RunDevice::Cuda)
    }

    /// Returns a run in a process that calls `prepare` before `main`, while the process has only
    /// one thread.
    #[must_use]
    pub const fn own(prepare: fn()) -> Self {
        Self::new(RunDevice::Own(prepare))
    }

    /// Excludes the tests whose names contain one of the given texts. Each text is paired with a
    /// reason.
    #[must_use]
    pub const fn without(mut self, tests: &'static [(&'static str, &'static str)]) -> Self {
        self.skipped = tests;
        self
    }

    /// Excludes tests only on a real device. Otherwise like [`without`](Self::without).
    #[must_use]
    pub const fn without_on_hardware(
        mut self,
        tests: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.skipped_on_hardware = tests;
        self
    }

    /// Sets environment variables of the run.
    #[must_use]
    pub const fn with(mut self, variables: &'static [(&'static str, &'static str)]) -> Self {
        self.variables = variables;
        self
    }

    /// Disables concurrency: only one test runs at a time.
    #[must_use]
    pub const fn serial(mut self) -> Self {
        self.is_serial = true;
        self
    }

    /// Runs on the emulator even without `CACHESCOPE_EMULATOR_ALL=1`.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.tier = Tier::Always;
        self
    }

    /// Runs on the emulator only if `CACHESCOPE_EMULATOR_ALL=long`, because the run takes many
    /// minutes.
    #[must_use]
    pub const fn long(mut self) -> Self {
        self.tier = Tier::Long;
        self
    }

    /// Excludes the run if `is_possible` is false, as in builds without a required feature.
    #[must_use]
    pub const fn only_if(mut self, is_possible: bool) -> Self {
        self.is_possible = is_possible;
        self
    }

    fn device_name(&self) -> &'static str {
        match self.device {
            RunDevice::Host => "host",
            RunDevice::Cuda => "cuda",
            RunDevice::Own(_) => "emulator",
        }
    }

    /// Returns the value of `CACHESCOPE_EMULATOR_ALL` that this run requires on the emulator.
    /// Returns `None` if the variable is already sufficient.
    fn lacks(&self) -> Option<&'static str> {
        let all = env::var("CACHESCOPE_EMULATOR_ALL").unwrap_or_default();
        let is_emulated = matches!(self.device, RunDevice::Cuda);
        match self.tier {
            Tier::All if is_emulated && !["1", "long"].contains(&&*all) => Some("1"),
            Tier::Long if is_emulated && all != "long" => Some("long"),
            _ => None,
        }
    }

    /// Returns whether this run is possible, and `CACHESCOPE_DEVICE` selects its device.
    fn is_selected(&self) -> bool {
        let wanted = env::var("CACHESCOPE_DEVICE").unwrap_or_default();
        self.is_possible && (wanted.is_empty() || wanted.starts_with(self.device_name()))
    }

    fn leaves_out(&self, test: &str, is_real: bool) -> bool {
        let on_hardware = if is_real {
            self.skipped_on_hardware
        } else {
            &[]
        };
        let mut skipped = self.skipped.iter().chain(on_hardware);
        skipped.any(|(text, _)| test.contains(text))
    }

    /// Returns the command that executes this run, without arguments. If the device does not exist,
    /// prints the reason and returns `None`.
    fn command(&self, target: &Path) -> Option<Command> {
        let program = env::current_exe().expect("a process knows its program");
        let mut command = match self.device {
            RunDevice::Cuda => crate::command_on_cuda(&program, target)?,
            RunDevice::Host => {
                let mut command = Command::new(program);
                command.env_remove("CACHESCOPE_DEVICE");
                command
            }
            RunDevice::Own(_) => Command::new(program),
        };
        command.envs(self.variables.iter().copied());
        Some(command)
    }
}

/// Makes a test executable run each suite of a table in a separate process.
///
/// The suites are started before `main`, because a process with only one thread may change its
/// environment.
#[macro_export]
macro_rules! run_suites {
    ($suites:expr) => {
        // SAFETY: before `main`, the loader calls each entry of this section once, as a C function.
        #[used]
        #[cfg_attr(
            target_vendor = "apple",
            unsafe(link_section = "__DATA,__mod_init_func")
        )]
        #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
        static RUN_SUITES: extern "C" fn() = {
            extern "C" fn run_suites() {
                $crate::start_suites($suites, ::std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
            }
            run_suites
        };
    };
}

/// Implements [`run_suites!`]. It is called before `main`.
pub fn start_suites(suites: &[Suite], target: &Path) {
    if let Ok(name) = env::var(RUN) {
        prepare(suites, &name);
        return;
    }
    let arguments = Arguments::new(env::args().skip(1));
    if arguments.wants_help {
        return;
    }
    let tests = all_tests();
    for test in &tests {
        let is_in = |suite: &Suite| suite.name == suite_of(test);
        assert!(suites.iter().any(is_in), "{test} belongs to no suite");
    }
    let tests: Vec<&String> = tests.iter().filter(|test| arguments.select(test)).collect();
    if arguments.wants_list {
        return list(suites, &tests);
    }
    process::exit(run_all(suites, &tests, &arguments.others, target));
}

fn name_of(suite: &Suite, run: &Run) -> String {
    format!("{} on {}", suite.name, run.device_name())
}

/// Prepares this process for the run with the given name.
fn prepare(suites: &[Suite], name: &str) {
    let all = suites
        .iter()
        .flat_map(|suite| suite.runs.iter().map(move |run| (suite, run)));
    let mut named = all.filter(|(suite, run)| name_of(suite, run) == name);
    if let Some((_, run)) = named.next()
        && let RunDevice::Own(prepare) = run.device
    {
        prepare();
    }
}

fn suite_of(test: &str) -> &str {
    test.split("::").next().unwrap_or_default()
}

fn all_tests() -> Vec<String> {
    let program = env::current_exe().expect("a process knows its program");
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        // With a run name, the executable behaves like libtest.
        .env(RUN, "none")
        .output();
    let output = output.expect("the test executable can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// Prints the tests that [`run_all`] would run, and ends the process.
fn list(suites: &[Suite], tests: &[&String]) {
    let is_real = crate::has_device();
    let is_run = |test: &str| {
        let of_test = suites.iter().filter(|suite| suite.name == suite_of(test));
        let mut runs = of_test.flat_map(|suite| suite.runs);
        runs.any(|run| run.is_selected() && !run.leaves_out(test, is_real))
    };
    for test in tests.iter().filter(|test| is_run(test)) {
        println!("{test}: test");
    }
    process::exit(0);
}

/// Runs the given tests. Returns the exit code.
fn run_all(suites: &[Suite], tests: &[&String], options: &[String], target: &Path) -> i32 {
    let mut failed = Vec::new();
    for suite in suites {
        let in_suite = |test: &&&String| suite_of(test) == suite.name;
        let tests: Vec<&String> = tests.iter().filter(in_suite).copied().collect();
        for run in suite.runs.iter().filter(|run| run.is_selected()) {
            if !succeeds(suite, run, &tests, options, target) {
                failed.push(name_of(suite, run));
            }
        }
    }
    if failed.is_empty() {
        return 0;
    }
    println!("failed: {}", failed.join(", "));
    FAILED
}

/// Runs the given tests of a suite. Returns whether all tests succeeded, without misuses of the
/// emulator.
fn succeeds(
    suite: &Suite,
    run: &Run,
    tests: &[&String],
    options: &[String],
    target: &Path,
) -> bool {
    let name = name_of(suite, run);
    let is_real = matches!(run.device, RunDevice::Cuda) && crate::has_device();
    let tests = tests.iter().filter(|test| !run.leaves_out(test, is_real));
    let tests: Vec<_> = tests.collect();
    if tests.is_empty() {
        return true;
    }
    if let Some(value) = run.lacks().filter(|_| !is_real) {
        println!("skipped: {name}, which is emulated; CACHESCOPE_EMULATOR_ALL={value} runs it");
        return true;
    }
    let Some(mut command) = run.command(target) else {
        return !crate::is_set("CACHESCOPE_REQUIRE_CUDA");
    };
    command.env(RUN, &name).args(options);
    if run.is_serial {
        command.arg("--test-threads=1");
    }
    command.arg("--exact").args(tests);
    println!("\n     Suite {name}");
    let (passes, misused) = run_to_end(&name, command);
    // The suites that test the emulator misuse it on purpose.
    passes && (!misused || matches!(run.device, RunDevice::Own(_)))
}

/// Runs a command, and prints its output. Returns whether the command succeeded, and whether it
/// misused the emulator.
fn run_to_end(name: &str, mut command: Command) -> (bool, bool) {
    let (said, writer) = pipe().expect("a pipe can be made");
    let errors = writer.try_clone().expect("a pipe can be shared");
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command
        .spawn()
        .expect("the test executable can be started anew");
    // The command owns ends of the pipe, which would keep the pipe open.
    drop(command);
    let (ended, end) = channel();
    let reader = thread::spawn(move || {
        let mut misused = false;
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            misused |= line.starts_with("cuda-emulator: ") && line.contains(" misuses in all");
            println!("{line}");
        }
        // After a timeout, the receiver no longer exists, so the send may fail.
        let _ = ended.send(());
        misused
    });
    if end.recv_timeout(MOST_TIME) == Err(RecvTimeoutError::Timeout) {
        println!("{name} is stopped after {} s", MOST_TIME.as_secs());
        // The child may already have exited. The reader is not joined, because a grandchild may
        // keep the pipe open.
        let _ = child.kill().and_then(|()| child.wait());
        return (false, false);
    }
    let status = child.wait().expect("a child ends");
    let misused = reader.join().unwrap_or(true);
    if !status.success() {
        println!("{name}: {status}");
    }
    (status.success(), misused)
}
