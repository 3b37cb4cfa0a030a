//! The example `train_digits` from its user's perspective: a process with arguments, an
//! environment, two output streams and an exit code. The example runs on the host, or on the device
//! that `CACHESCOPE_DEVICE` names.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The arguments of a short run.
const QUICK: [&str; 6] = ["--epochs", "1", "--hidden", "16", "--batch-size", "128"];

/// Returns the example's command, without the environment variables of device settings.
fn example() -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test
        .ancestors()
        .nth(2)
        .expect("a test runs from PROFILE/deps");
    let binary = profile
        .join("examples/train_digits")
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        binary.exists(),
        "{} is missing: a plain `cargo test` builds it, and so does `cargo build --example \
         train_digits`",
        binary.display()
    );
    let mut command = Command::new(binary);
    for variable in ["DEVICE", "POOL", "MEMORY_LIMIT", "POLICY"] {
        command.env_remove(format!("CACHESCOPE_{variable}"));
    }
    command
}

/// Returns the device that the suite runs on.
fn device() -> String {
    std::env::var("CACHESCOPE_DEVICE").unwrap_or_else(|_| "host".to_owned())
}

/// Returns the example's command on the suite's device.
fn on_device() -> Command {
    let mut command = example();
    command.args(["--device", &device()]);
    command
}

fn run_with(arguments: &[&str]) -> Output {
    on_device().args(arguments).output().unwrap()
}

fn quickly_with(arguments: &[&str]) -> Output {
    run_with(&[&QUICK, arguments].concat())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    stdout(output)
}

/// Returns the error output of a process that must have failed with this exit code.
#[track_caller]
fn failed(output: &Output, code: i32) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// Returns the words of the line that begins with `start`.
#[track_caller]
fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("no line \"{start}\" in\n{text}"))
        .split_whitespace()
        .collect()
}

#[track_caller]
fn number(word: &str) -> f64 {
    word.parse()
        .unwrap_or_else(|_| panic!("\"{word}\" is no number"))
}

#[test]
fn a_run_with_defaults_learns_to_read_and_gives_its_memory_back() {
    let text = succeeded(&run_with(&[]));

    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("epoch "))
            .count(),
        40
    );
    assert!(number(words(&text, "test accuracy")[2]) >= 0.95, "{text}");

    // The line is: reserved from the device: B KiB before, A KiB after
    let reserved = words(&text, "reserved from the device:");
    assert!(number(reserved[7]) < number(reserved[4]), "{text}");
}

#[test]
fn the_table_shows_the_savings_of_each_policy() {
    let text = succeeded(&quickly_with(&[]));
    // The columns are: name, median step, µs, requests, to the pool, to the device, peak reserved,
    // KiB
    let [none, recycle, release, plan] =
        ["none", "recycle", "release", "plan"].map(|name| words(&text, name));
    let requests = number(none[3]);

    assert!(requests >= 10.0, "{text}");
    assert_eq!(number(none[4]), requests, "{text}");
    assert_eq!(number(recycle[4]), 0.0, "{text}");
    assert_eq!(number(plan[4]), 0.0, "{text}");
    let released = number(release[4]);
    assert!(0.0 < released && released < requests, "{text}");
    // The name `no pool` has two words, so every column's index is one higher.
    let no_pool = words(&text, "no pool");
    assert_eq!(
        number(no_pool[6]),
        requests,
        "each array is a reservation: {text}"
    );
    for row in [none, recycle, release, plan] {
        assert_eq!(number(row[5]), 0.0, "the pool is warm: {text}");
        assert!(number(row[6]) > 0.0, "{text}");
    }
}

#[test]
fn the_policy_is_that_of_the_command_line_else_of_the_environment() {
    let blocks_released = |variable: &str, arguments: &[&str]| {
        let mut command = on_device();
        command.env("CACHESCOPE_POLICY", variable);
        command.args(QUICK).args(arguments);
        let text = succeeded(&command.output().unwrap());
        number(words(&text, "invalidate_cache")[1])
    };

    assert!(blocks_released("", &[]) > 0.0);
    assert!(blocks_released("", &["--policy", "recycle"]) > 0.0);
    assert_eq!(blocks_released("", &["--policy", "release"]), 0.0);
    assert_eq!(blocks_released("release", &[]), 0.0);
    assert!(blocks_released("release", &["--policy", "recycle"]) > 0.0);
}

#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let text = succeeded(&quickly_with(&["--seed", seed]));
        words(&text, "epoch").join(" ")
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn sizes_that_divide_nothing_are_no_trouble() {
    for batch_size in ["100", "1436", "1437", "5000"] {
        succeeded(&quickly_with(&[
            "--hidden",
            "1",
            "--batch-size",
            batch_size,
        ]));
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = on_device();
    command.args(QUICK).stdout(writer);
    let output = command.output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Returns a CSV row: an image of zeros and a label.
fn line(label: &str) -> String {
    "0,".repeat(64) + label
}

/// Writes a file with this content. If the name ends in ".gz", compresses the content.
fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let content = content.as_ref();
    if name.ends_with(".gz") {
        fs::write(&path, compressed(content)).unwrap();
    } else {
        fs::write(&path, content).unwrap();
    }
    path
}

fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[track_caller]
fn refused(path: &Path) -> String {
    let output = quickly_with(&["--data", path.to_str().unwrap()]);
    assert_eq!(stdout(&output), "");
    failed(&output, 2)
}

#[test]
fn a_broken_line_is_named_with_its_file_and_column() {
    let pixel = "which is a whole number from 0 to 16";
    let label = "which is a whole number from 0 to 9";
    let columns = "where 64 pixels and a label are expected";
    let cases = [
        (
            "missing",
            "0,".repeat(63) + "3",
            format!("64 columns, {columns}"),
        ),
        ("surplus", line("3,3"), format!("66 columns, {columns}")),
        (
            "text",
            line("3").replacen("0", "ink", 1),
            format!("column 1: \"ink\" is no pixel, {pixel}"),
        ),
        (
            "empty",
            line("3").replacen("0,0", "0,", 1),
            format!("column 2: \"\" is no pixel, {pixel}"),
        ),
        (
            "fraction",
            line("3").replacen("0", "0.5", 1),
            format!("column 1: \"0.5\" is no pixel, {pixel}"),
        ),
        (
            "dark",
            line("3").replacen("0", "17", 1),
            format!("column 1: \"17\" is no pixel, {pixel}"),
        ),
        (
            "negative",
            line("-1"),
            format!("column 65: \"-1\" is no label, {label}"),
        ),
        (
            "ten",
            line("10"),
            format!("column 65: \"10\" is no label, {label}"),
        ),
        (
            "quoted",
            line("\"3"),
            format!("column 65: \"\"3\" is no label, {label}"),
        ),
    ];
    for (name, broken, reason) in cases {
        for suffix in ["csv", "csv.gz"] {
            let content = format!("{}\n{}\r\n{broken}\n{}\n", line("1"), line("2"), line("4"));
            let path = file(&format!("broken-{name}.{suffix}"), content);
            let expected = format!("error: {}:3: {reason}\n", path.display());
            assert_eq!(refused(&path), expected);
        }
    }
}

#[test]
fn blank_lines_are_counted_and_bytes_that_are_no_text_are_shown() {
    let blank = file(
        "blank-lines.csv",
        format!("{}\n\n\r\n{}\n", line("1"), line("11")),
    );
    let expected = format!("error: {}:4: column 65: \"11\"", blank.display());
    assert!(
        refused(&blank).starts_with(&expected),
        "{}",
        refused(&blank)
    );

    let mut bytes = line("1").into_bytes();
    bytes.extend(b"\n\xff\xfe,0\n");
    let bytes = file("no-text.csv", bytes);
    assert!(refused(&bytes).contains("no-text.csv:2: 2 columns"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let whole = compressed(line("1\n").repeat(100).as_bytes());
    let truncated = Path::new(env!("CARGO_TARGET_TMPDIR")).join("truncated.csv.gz");
    fs::write(&truncated, &whole[..whole.len() - 12]).unwrap();
    let plain = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plain-text.csv.gz");
    fs::write(&plain, line("1\n").repeat(100)).unwrap();

    let unreadable = [
        file("nothing.csv", ""),
        file("one-image.csv.gz", line("1\n")),
        PathBuf::from("no/such/file.csv"),
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        truncated,
        plain,
    ];
    for path in unreadable {
        let expected = format!("error: {}: ", path.display());
        let errors = refused(&path);
        assert!(
            errors.starts_with(&expected) && errors.len() > expected.len() + 1,
            "{errors}"
        );
    }
}

#[test]
fn two_images_are_enough() {
    let path = file("two-images.csv", line("1\n") + &line("2"));
    let text = succeeded(&quickly_with(&["--data", path.to_str().unwrap()]));
    assert!(
        text.contains("1 images to train with, 1 to test with"),
        "{text}"
    );
}

#[test]
fn an_argument_out_of_range_is_named_with_what_is_allowed() {
    let cases = [
        (["--policy", "bogus"], "one of recycle, release"),
        (["--device", "gpu"], "unknown device \"gpu\""),
        (["--device", "cuda:x"], "unknown device \"cuda:x\""),
        (["--memory-limit", "lots"], "64MiB"),
        (["--memory-limit", "0"], "64MiB"),
        (["--memory-limit", "18446744073709551615KiB"], "64MiB"),
        (["--epochs", "0"], "1.."),
        (["--batch-size", "0"], "1.."),
        (["--hidden", "0"], "1.."),
        (["--hidden", "many"], "invalid digit"),
        (["--seed", "1.5"], "invalid digit"),
    ];
    for (arguments, allowed) in cases {
        let mut command = example();
        let errors = failed(&command.args(arguments).output().unwrap(), 2);
        let [option, value] = arguments;
        assert!(
            errors.contains(option) && errors.contains(value),
            "{errors}"
        );
        assert!(errors.contains(allowed), "{errors}");
    }
}

#[test]
fn a_limit_below_the_working_set_of_a_step_ends_with_the_report() {
    for (limit, shown) in [
        ("1MiB", "1 MiB"),
        ("1048576", "1 MiB"),
        ("1024 KiB", "1 MiB"),
        ("1MB", "976.56 KiB"),
    ] {
        let output = run_with(&["--memory-limit", limit]);
        let errors = failed(&output, 1);
        let told = format!("error: out of memory on {}: requested ", device());
        assert!(errors.starts_with(&told), "{errors}");
        assert!(errors.contains("in the scope \"train\""), "{errors}");
        let limit = errors
            .lines()
            .find_map(|line| line.trim().strip_prefix("limit"));
        assert_eq!(limit.map(str::trim), Some(shown), "{errors}");
        assert!(errors.contains("remedy: "), "{errors}");
        assert!(!stdout(&output).contains("epoch"), "the first step fails");
    }
}

#[test]
fn a_limit_above_the_working_set_bounds_what_is_reserved() {
    let text = succeeded(&quickly_with(&["--memory-limit", "1536KiB"]));
    for name in ["none", "recycle", "release"] {
        assert!(number(words(&text, name)[6]) <= 1536.0, "{text}");
    }
}

#[test]
fn a_malformed_variable_is_named() {
    for (variable, value) in [
        ("CACHESCOPE_DEVICE", "gpu"),
        ("CACHESCOPE_POOL", "foo"),
        ("CACHESCOPE_MEMORY_LIMIT", "lots"),
        ("CACHESCOPE_POLICY", "bogus"),
    ] {
        let mut command = example();
        if variable != "CACHESCOPE_DEVICE" {
            // `--device host` avoids a CUDA device. A CUDA device would read these variables as
            // soon as it is opened.
            command.args(["--device", "host"]);
        }
        let output = command.args(QUICK).env(variable, value).output().unwrap();
        let errors = failed(&output, 1);
        assert!(errors.contains(&format!("{variable}={value}")), "{errors}");
    }
}

/// Returns the accuracy at the end of a run.
fn accuracy(output: &Output) -> f64 {
    let text = stdout(output);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("test accuracy "));
    let number = line.and_then(|line| line.split(' ').next());
    number.and_then(|number| number.parse().ok()).expect(&text)
}

#[test]
fn several_ranks_learn_what_one_does() {
    let alone = accuracy(&quickly_with(&["--epochs", "5"]));
    for ranks in ["threads:1", "threads:2", "threads:4"] {
        let output = quickly_with(&["--epochs", "5", "--parallel", ranks]);
        assert!(output.status.success(), "{output:?}");
        let count = ranks.trim_start_matches("threads:");
        assert!(stdout(&output).contains(&format!("on {count} ranks")));
        // If a batch's size is not a multiple of the number of ranks, the batch's last samples are
        // skipped.
        assert!((accuracy(&output) - alone).abs() < 0.03, "{ranks}");
    }
}

#[test]
fn impossible_ranks_are_errors() {
    for ranks in ["threads:0", "threads", "mpl"] {
        let output = quickly_with(&["--parallel", ranks]);
        assert_eq!(output.status.code(), Some(2), "{ranks}");
    }
    let output = quickly_with(&["--parallel", "mpi"]);
    if !cfg!(feature = "mpi") {
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("feature `mpi`"), "{error}");
    }
}
