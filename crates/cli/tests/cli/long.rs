//! Tests with long traces. Memory use grows only with the live allocations. `--nocapture` prints
//! the time in seconds.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Instant;

use crate::{Numbers, cachescope, number, place, text};

const LINES: u64 = 1_000_000;
const LIVE: usize = 1000;

/// Writes a log of a million lines, with at most a thousand live allocations.
fn write_log(path: &std::path::Path) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    writeln!(out, "Thread,Time,Action,Pointer,Size,Stream").unwrap();
    let mut numbers = Numbers(1);
    let mut live = Vec::new();
    let mut line = String::new();
    for index in 0..LINES {
        let (action, pointer, size) =
            if live.len() < LIVE && (live.is_empty() || numbers.below(2) == 0) {
                let allocation = (0x7f00_0000_0000 + index * 512, 1 + numbers.below(1 << 20));
                live.push(allocation);
                ("allocate", allocation.0, allocation.1)
            } else {
                let pick = numbers.below(live.len() as u64) as usize;
                let (pointer, size) = live.swap_remove(pick);
                ("free", pointer, size)
            };
        line.clear();
        let micros = index % 1_000_000;
        writeln!(
            line,
            "4711,12:00:00.{micros:06},{action},{pointer:#x},{size},0x0"
        )
        .unwrap();
        out.write_all(line.as_bytes()).unwrap();
    }
    out.flush().unwrap();
}

/// Returns a command that runs the program with at most `kib` KiB of address space. Some systems do
/// not enforce the limit.
#[cfg(unix)]
fn confined(kib: u64, arguments: &[&str]) -> std::process::Command {
    let binary = cachescope(&[]);
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    command
        .args(["-c", &script])
        .arg(binary.get_program())
        .args(arguments);
    command
}

#[cfg(unix)]
#[test]
fn a_million_lines_are_replayed_in_less_memory_than_they_take() {
    let (log, out) = (place("million.csv"), place("million-out.csv"));
    write_log(&log);
    let log_kib = log.metadata().unwrap().len() / 1024;
    let (log, out_text) = (text(&log), text(&out));
    let kib = 32 * 1024;
    assert!(log_kib > kib, "{log_kib} KiB do not show anything");
    for options in [&["--pool", "all"][..], &["--output", &out_text]] {
        let arguments = [&["replay", &log, "--json"], options].concat();
        let start = Instant::now();
        let output = confined(kib, &arguments).output().unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!("{seconds:.2} s with {}", options[0]);
        assert!(seconds < 60.0, "{seconds} s");
        let report: serde_json::Value = serde_json::from_str(&crate::succeeded(&output)).unwrap();
        for pool in report["pools"].as_array().unwrap() {
            assert_eq!(number(pool, "events"), LINES);
            assert_eq!(number(pool, "failures"), 0);
        }
    }
    let rows = std::fs::read_to_string(&out).unwrap().lines().count() as u64;
    assert!(
        rows > LINES / 2 && rows < LINES / 2 + LIVE as u64 + 2,
        "{rows}"
    );
    std::fs::remove_file(log).unwrap();
    std::fs::remove_file(out).unwrap();
}
