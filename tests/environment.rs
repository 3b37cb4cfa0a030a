//! Environment variables. Each test runs this test binary as a separate process, with one of the
//! `child_…` tests below.

use std::path::PathBuf;
use std::process::{Command, Output};

use cachescope::{Array, Buffer, Device, DeviceConfig};

fn run(child: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("environment::{child}");
    command.args(["--exact", &test, "--include-ignored", "--nocapture"]);
    for variable in ["DEVICE", "POOL", "MEMORY_LIMIT", "POLICY", "PROFILE"] {
        command.env_remove(format!("CACHESCOPE_{variable}"));
    }
    command
        .envs(variables.iter().copied())
        .env("CACHESCOPE_TEST_CHILD", "1")
        .output()
        .unwrap()
}

/// Returns the text that the child printed between brackets.
fn output_of(child: &str, variables: &[(&str, &str)]) -> String {
    let output = run(child, variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let begin = text
        .find("<<")
        .unwrap_or_else(|| panic!("the child said nothing: {text}"))
        + 2;
    text[begin..text.find(">>").unwrap()].to_owned()
}

fn is_child() -> bool {
    std::env::var_os("CACHESCOPE_TEST_CHILD").is_some()
}

#[test]
fn child_allocates() {
    if is_child() {
        let outcome = Array::<f32>::zeros([1000]).map(|array| array.device().to_string());
        let config = DeviceConfig::from_environment(&Device::host());
        let own = config.and_then(Device::host_with);
        let own = own.map(|device| device.to_string());
        println!("<<{outcome:?} | {own:?}>>");
    }
}

#[test]
fn child_fills_a_limit() {
    if is_child() {
        let held: Vec<_> = (0..64)
            .map_while(|_| Array::<u8>::zeros([1 << 20]).ok())
            .collect();
        println!("<<{}>>", held.len());
    }
}

#[test]
fn child_uses_a_scope() {
    if is_child() {
        cachescope::cache_scope!("loop", { drop(Array::<u8>::zeros([1000]).unwrap()) });
        println!(
            "<<{} {}>>",
            cachescope::scope::report().caches[0].policy,
            cachescope::cache_stats("loop").unwrap().cached_blocks
        );
    }
}

#[test]
fn child_times_phases() {
    if is_child() {
        let config = DeviceConfig::from_environment(&Device::host()).unwrap();
        let device = Device::host_with(config).unwrap();
        println!("<<{}>>", !device.memory_report().phases.is_empty());
    }
}

#[test]
fn the_environment_switches_the_timing_of_phases() {
    for (value, timed) in [("on", "true"), ("off", "false"), ("", "false")] {
        let variables = [("CACHESCOPE_TIME_PHASES", value)];
        assert_eq!(output_of("child_times_phases", &variables), timed);
    }
}

#[test]
fn without_variables_everything_works() {
    assert_eq!(
        output_of("child_allocates", &[]),
        "Ok(\"host\") | Ok(\"host\")"
    );
    assert_eq!(output_of("child_uses_a_scope", &[]), "recycle 1");
}

#[test]
fn a_value_that_does_not_parse_is_an_error_that_names_its_variable() {
    for (variable, value) in [
        ("CACHESCOPE_POOL", "bogus"),
        ("CACHESCOPE_POOL", "BEST-FIT"),
        ("CACHESCOPE_MEMORY_LIMIT", "lots"),
        ("CACHESCOPE_MEMORY_LIMIT", "-1GiB"),
        ("CACHESCOPE_MEMORY_LIMIT", "200%"),
        ("CACHESCOPE_POLICY", "hoard"),
        ("CACHESCOPE_TIME_PHASES", "1"),
        ("CACHESCOPE_RECLAIM_WAIT", "long"),
        ("CACHESCOPE_RECLAIM_WAIT", "-1"),
    ] {
        let output_of = output_of("child_allocates", &[(variable, value)]);
        let (array, own) = output_of.split_once(" | ").unwrap();
        for outcome in [array, own] {
            assert!(
                outcome.starts_with("Err(InvalidArgument"),
                "{variable}={value}: {outcome}"
            );
            assert!(
                outcome.contains(variable) && outcome.contains(value),
                "{outcome}"
            );
        }
    }
}

#[test]
fn child_allocates_three_units() {
    if is_child() {
        let device = Device::host();
        let live = Buffer::new(&device, 3 * 512).unwrap();
        let allocated = device.memory_stats().allocated_bytes;
        drop(live);
        println!("<<{allocated} {}>>", device.memory_stats().segments);
    }
}

#[test]
fn the_pool_is_chosen_by_name() {
    for (value, expected) in [
        ("best-fit", "1536 1"),
        ("binned", "2048 1"),
        ("direct", "1536 0"),
    ] {
        let output_of = output_of("child_allocates_three_units", &[("CACHESCOPE_POOL", value)]);
        assert_eq!(
            output_of, expected,
            "allocated bytes and idle segments of {value}"
        );
    }
    let output_of = output_of("child_allocates", &[("CACHESCOPE_POOL", "stream-ordered")]);
    let (array, own) = output_of.split_once(" | ").unwrap();
    let by_variable = "Err(Unsupported: CACHESCOPE_POOL=stream-ordered: ";
    assert!(array.starts_with(by_variable), "{array}");
    let by_program = "Err(Unsupported: pool stream-ordered: ";
    assert!(own.starts_with(by_program), "{own}");
}

/// The path of a temporary file, which is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("cachescope-{}-{name}.csv", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Returns the columns Action and Size of each row.
    fn rows(&self) -> Vec<(String, u64)> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("Thread,Time,Action,Pointer,Size,Stream"));
        let row = |line: &str| {
            let fields: Vec<_> = line.split(',').collect();
            (fields[2].to_owned(), fields[4].parse().unwrap())
        };
        lines.map(row).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_log_has_the_requests_of_a_program_to_its_end() {
    let log = Scratch::new("direct");
    let variables = [
        ("CACHESCOPE_POOL", "direct"),
        ("CACHESCOPE_PROFILE", log.path()),
    ];
    output_of("child_allocates_three_units", &variables);
    let row = |action: &str| (action.to_owned(), 1536);
    assert_eq!(log.rows(), [row("allocate"), row("free")]);
}

#[test]
fn a_log_has_the_pages_that_a_pool_reserves() {
    let log = Scratch::new("best-fit");
    output_of(
        "child_allocates_three_units",
        &[("CACHESCOPE_PROFILE", log.path())],
    );
    // The device of the process keeps its segments until the process exits.
    assert_eq!(log.rows(), [("allocate".to_owned(), 2 << 20)]);
}

#[test]
fn the_device_is_chosen_by_name() {
    assert_eq!(
        output_of("child_allocates", &[("CACHESCOPE_DEVICE", "host")]),
        "Ok(\"host\") | Ok(\"host\")"
    );
    for value in ["gpu", "cuda", "cuda:x", "HOST"] {
        let output_of = output_of("child_allocates", &[("CACHESCOPE_DEVICE", value)]);
        assert!(
            output_of.starts_with("Err(InvalidArgument: CACHESCOPE_DEVICE"),
            "{output_of}"
        );
        assert!(
            output_of.ends_with("Ok(\"host\")"),
            "only the current device is concerned: {output_of}"
        );
    }
    let output_of = output_of("child_allocates", &[("CACHESCOPE_DEVICE", "cuda:63")]);
    assert!(
        output_of.starts_with("Err(") && output_of.contains("CACHESCOPE_DEVICE=cuda:63"),
        "{output_of}"
    );
}

#[test]
fn child_configures_a_device() {
    if is_child() {
        let config = DeviceConfig::default();
        let device = Device::host_with(config).unwrap();
        let _guard = device.enter();
        let held: Vec<_> = (0..3)
            .map_while(|_| Buffer::new(&device, 4 << 20).ok())
            .collect();
        cachescope::cache_scope!("loop", { drop(Array::<u8>::zeros([1000]).unwrap()) });
        let policy = cachescope::scope::report().caches[0].policy;
        let phases = device.memory_report().phases.len();
        let pool = device.memory_stats().segments > 0;
        println!("<<{} {policy} {phases} {pool}>>", held.len());
    }
}

#[test]
fn the_environment_does_not_change_what_a_program_configures() {
    let variables = [
        ("CACHESCOPE_POOL", "direct"),
        ("CACHESCOPE_MEMORY_LIMIT", "8MiB"),
        ("CACHESCOPE_POLICY", "bump"),
        ("CACHESCOPE_TIME_PHASES", "on"),
        ("CACHESCOPE_RECLAIM_WAIT", "0"),
    ];
    let configured = output_of("child_configures_a_device", &variables);
    assert_eq!(configured, output_of("child_configures_a_device", &[]));
    assert_eq!(configured, "3 recycle 0 true");
    let wrong = [("CACHESCOPE_POOL", "bogus"), ("CACHESCOPE_POLICY", "hoard")];
    assert_eq!(output_of("child_configures_a_device", &wrong), configured);
}

#[test]
fn the_limit_is_taken_in_any_unit() {
    assert_eq!(
        output_of(
            "child_fills_a_limit",
            &[("CACHESCOPE_MEMORY_LIMIT", "8MiB")]
        ),
        "8"
    );
    assert_eq!(
        output_of("child_fills_a_limit", &[("CACHESCOPE_MEMORY_LIMIT", "9MB")]),
        "8"
    );
    assert_eq!(
        output_of("child_fills_a_limit", &[("CACHESCOPE_MEMORY_LIMIT", "50%")]),
        "64"
    );
}

#[test]
fn the_policy_is_the_default_of_unconfigured_caches() {
    for told_of in ["recycle 1", "release 0", "bump 1", "plan 0"] {
        let policy = told_of.split(' ').next().unwrap();
        let variables = [("CACHESCOPE_POLICY", policy)];
        assert_eq!(output_of("child_uses_a_scope", &variables), told_of);
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let error = Device::cuda(63).unwrap_err();
    assert!(error.to_string().contains("cuda:63"), "{error}");
    assert_eq!(Device::available().last(), Some(&Device::host()));
    assert!("cuda:63".parse::<Device>().is_err());
    assert_eq!("host".parse::<Device>().unwrap(), Device::host());
}
