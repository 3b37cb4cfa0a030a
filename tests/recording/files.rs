//! Reports in files, from `Recording::write` and from `CACHESCOPE_PROFILE`.

use std::fs;
#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
#[cfg(unix)]
use std::process::{Child, Stdio};
use std::process::{Command, Output};
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;

use cachescope::record::{EventKind, Profile};
use cachescope::{Buffer, Device, ErrorKind, Policy, cache_scope};
use cachescope_tools::trace::profiles;

use super::{device, record};

/// Returns a new, empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("recording-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn program(device: &Device) {
    let _weights = Buffer::new(device, 1 << 20).unwrap();
    for number in 0..20 {
        cache_scope!("step", policy = Policy::Plan, device = device, {
            let a = Buffer::new(device, 5000).unwrap();
            let _b = Buffer::new(device, 700 * (1 + number % 2)).unwrap();
            drop(a);
            let _c = Buffer::new(device, 4000).unwrap();
        });
    }
}

#[test]
fn the_extension_selects_the_report() {
    let device = device();
    let recording = record(&device);
    program(&device);
    let folder = folder("endings");
    for (ending, begins, has) in [
        ("html", "<!DOCTYPE html>", "files.rs"),
        ("json", "{", "\"traceEvents\""),
        ("dhat", "{", "\"dhatFileVersion\":2"),
        ("folded", "", "step;"),
        ("svg", "<?xml", "bytes"),
        ("txt", "host: ", "files.rs"),
    ] {
        let path = folder.join(format!("report.{ending}"));
        recording.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.to_lowercase().starts_with(&begins.to_lowercase()),
            "{ending}: {}",
            &text[..80]
        );
        assert!(text.contains(has), "{ending}");
    }
}

/// The fields of an allocation or a free that a snapshot preserves. They are the kind (true for a
/// free), address, size, scope and line.
type Told = (bool, u64, u64, Option<String>, Option<u32>);

fn blocks(profile: &Profile) -> Vec<Told> {
    let blocks = profile
        .events
        .iter()
        .filter(|event| event.kind.is_allocation() || event.kind.is_free());
    let told = blocks.map(|event| {
        let scope = event
            .scope
            .map(|number| profile.scopes[number as usize].clone());
        let line = event
            .call_site
            .map(|number| profile.call_sites[number as usize].line);
        (
            event.kind.is_free(),
            event.address,
            event.block_bytes,
            scope,
            line,
        )
    });
    told.collect()
}

#[test]
fn a_snapshot_is_read_as_it_was_recorded() {
    let device = device();
    let before = Buffer::new(&device, 3000).unwrap();
    let recording = record(&device);
    program(&device);
    let kept = Buffer::new(&device, 9000).unwrap();
    drop(before);
    let path = folder("snapshot").join("run.pickle");
    recording.write(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let read = profiles("run", &*bytes).unwrap().remove(0);
    let recorded = recording.profile();
    assert_eq!(blocks(&read), blocks(&recorded));
    let segments = |profile: &Profile| {
        let of_kind = |kind| {
            let events = profile
                .events
                .iter()
                .filter(move |event| event.kind == kind);
            events.map(|event| event.bytes).sum::<u64>()
        };
        let first: u64 = profile.segments.iter().map(|segment| segment.bytes).sum();
        first + of_kind(EventKind::Reserve) - of_kind(EventKind::Release)
    };
    assert_eq!(segments(&read), segments(&recorded));
    assert_eq!(segments(&read), device.memory_stats().reserved_bytes);
    let snapshot = cachescope_tools::trace::Snapshot::read("run", &*bytes).unwrap();
    let [trace] = &snapshot.devices[..] else {
        panic!("one device, and not {}", snapshot.devices.len());
    };
    assert!(trace.peak_live_bytes >= (1 << 20) + 9000);
    drop(kept);
}

#[test]
fn files_that_cannot_be_are_refused() {
    let device = device();
    let recording = record(&device);
    let refused = recording.write("report.docx").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(
        refused
            .to_string()
            .contains("report.docx: unknown ending, expected one of .html, .pickle"),
        "{refused}"
    );
    assert!(refused.to_string().contains("files.rs:"), "{refused}");
    assert_eq!(
        recording.write("report").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let refused = recording.write("no/such/folder/report.html").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Io);
    assert!(
        refused.to_string().contains("no/such/folder/report.html"),
        "{refused}"
    );
}

/// `/dev/full` behaves like a file on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = folder("full");
    let path = folder.join("report.html");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let device = device();
    let recording = record(&device);
    program(&device);
    assert_eq!(recording.write(&path).unwrap_err().kind(), ErrorKind::Io);
    program(&device);
}

/// Returns a command that runs an ignored test of this file with `CACHESCOPE_PROFILE=path`.
fn profiling(path: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env("CACHESCOPE_PROFILE", path);
    command
}

fn profiled(path: &str, test: &str) -> Output {
    profiling(path, test).output().unwrap()
}

#[test]
#[ignore = "run by the tests of the environment, in a process of its own"]
fn a_profiled_program() {
    program(&Device::host());
    let other = device();
    program(&other);
    drop(other);
}

#[test]
#[ignore = "run by the tests of the environment, in a process of its own"]
fn a_profiled_program_that_waits() {
    let device = Device::host();
    program(&device);
    println!("waits");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
#[ignore = "run by the tests of the environment, in a process of its own"]
fn a_profiled_program_that_fails() {
    let config = cachescope::DeviceConfig {
        memory_limit: Some(2 << 20),
        ..Default::default()
    };
    let device = Device::host_with(config).unwrap();
    program(&device);
    for bytes in [3 << 20, 4 << 20] {
        let error = Buffer::new(&device, bytes).unwrap_err();
        println!("{}", error.out_of_memory_report().unwrap());
    }
    let _later = Buffer::new(&device, 1 << 19).unwrap();
}

#[test]
fn the_environment_profiles_every_device_until_the_end() {
    let folder = folder("environment");
    let path = folder.join("run.pickle");
    let run = profiled(
        path.to_str().unwrap(),
        "recording::files::a_profiled_program",
    );
    assert!(run.status.success(), "{run:?}");
    let read = |name: &str| {
        let bytes = fs::read(folder.join(name)).unwrap();
        profiles(name, &*bytes).unwrap().remove(0)
    };
    let (first, second) = (read("run.pickle"), read("run-host-2.pickle"));
    assert_eq!(blocks(&first).len(), 2 * 61);
    assert_eq!(blocks(&second).len(), 2 * 61);
    assert!(
        second
            .events
            .iter()
            .any(|event| event.kind == EventKind::Release),
        "that device ended"
    );
}

#[test]
fn the_file_of_a_rank_has_its_number() {
    let folder = folder("rank");
    let path = folder.join("run.pickle");
    let test = "recording::files::a_profiled_program";
    let run = profiling(path.to_str().unwrap(), test)
        .envs([("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    for name in ["run-rank-3.pickle", "run-rank-3-host-2.pickle"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(!path.exists());
}

/// Starts `a_profiled_program_that_waits`, and returns once the program waits. `more` contains
/// further environment variables.
#[cfg(unix)]
fn waiting(path: &Path, more: &[(&str, &str)]) -> Child {
    let test = "recording::files::a_profiled_program_that_waits";
    let mut command = profiling(path.to_str().unwrap(), test);
    let command = command.envs(more.iter().copied()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("waits")));
    child
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .unwrap()
            .success()
    );
}

/// Returns whether this process, and therefore its children, ignores a signal.
#[cfg(all(unix, feature = "signals"))]
fn ignores(signal: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

#[cfg(all(unix, feature = "signals"))]
#[test]
fn a_program_that_is_stopped_writes_its_report() {
    use std::os::unix::process::ExitStatusExt;

    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        // Shells make background jobs ignore SIGINT. The profile installs no handler for an ignored
        // signal.
        if ignores(number) {
            continue;
        }
        let path = folder(&format!("signal{signal}")).join("run.pickle");
        let mut child = waiting(&path, &[]);
        send(signal, &child);
        let status = child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(number as i32),
            "ended as without a profile"
        );
        let profile = profiles("run", &*fs::read(&path).unwrap())
            .unwrap()
            .remove(0);
        assert_eq!(blocks(&profile).len(), 2 * 61);
    }
}

#[cfg(unix)]
#[test]
fn a_report_at_an_interval_is_whole_when_the_program_is_killed() {
    let path = folder("interval").join("run.pickle");
    let mut child = waiting(&path, &[("CACHESCOPE_PROFILE_EVERY", "0.05")]);
    let began = Instant::now();
    // The first reports may be written before the program waits, and are then incomplete.
    let is_whole = || {
        let bytes = fs::read(&path).ok()?;
        let profile = profiles("run", &*bytes).unwrap().remove(0);
        (blocks(&profile).len() == 2 * 61).then_some(())
    };
    while is_whole().is_none() {
        assert!(began.elapsed() < Duration::from_secs(30), "no report");
        std::thread::sleep(Duration::from_millis(5));
    }
    send("-KILL", &child);
    child.wait().unwrap();
    assert!(is_whole().is_some());
}

#[test]
fn an_interval_is_a_positive_number_of_seconds() {
    for every in ["0", "-1", "soon", "inf", "1e-30"] {
        let run = profiling(
            "run.html",
            "recording::files::a_profiled_program_without_a_device",
        )
        .env("CACHESCOPE_PROFILE_EVERY", every)
        .output()
        .unwrap();
        let told = String::from_utf8_lossy(&run.stdout);
        let expected =
            format!("CACHESCOPE_PROFILE_EVERY={every}: cannot read \"{every}\" as seconds");
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
#[ignore = "run by the tests of the environment, in a process of its own"]
fn a_profiled_program_without_a_device() {
    let error = Device::host_with(cachescope::DeviceConfig::default()).unwrap_err();
    println!("{error}");
}

#[test]
fn a_failed_request_writes_its_own_report() {
    let folder = folder("failure");
    let path = folder.join("run.pickle");
    let run = profiled(
        path.to_str().unwrap(),
        "recording::files::a_profiled_program_that_fails",
    );
    assert!(run.status.success(), "{run:?}");
    let told = String::from_utf8_lossy(&run.stdout);
    let page = folder.join("run-out-of-memory.pickle");
    let row = format!("\n  profile             {}\n", page.display());
    assert_eq!(told.matches(&row).count(), 2, "{told}");
    let failures = |name: &str| {
        let bytes = fs::read(folder.join(name)).unwrap();
        let profile = profiles(name, &*bytes).unwrap().remove(0);
        let events = profile.events.iter();
        events
            .filter(|event| event.kind == EventKind::OutOfMemory)
            .count()
    };
    assert_eq!(
        failures("run-out-of-memory.pickle"),
        1,
        "as the first request failed"
    );
    assert_eq!(failures("run.pickle"), 2);
}

#[test]
fn a_profile_that_cannot_be_written_is_reported_and_the_program_continues() {
    let run = profiled(
        "no/such/folder/run.html",
        "recording::files::a_profiled_program",
    );
    assert!(run.status.success(), "{run:?}");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("no/such/folder/run.html"), "{told}");
    let run = profiled("run.docx", "recording::files::a_profiled_program");
    assert!(!run.status.success());
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("CACHESCOPE_PROFILE"), "{told}");
}
