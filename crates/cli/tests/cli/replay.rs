//! Tests of the results of `cachescope replay`.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;

use crate::oracle::{self, POOLS, Placed};
use crate::{
    Numbers, cachescope, file, json, number, place, refused, replayed, replayed_once, run,
    succeeded, text,
};

/// A program of five buffers. At step 4, two buffers end and one begins.
const FIVE: &str = "id,lower,upper,size\n\
                    a,0,4,1000\n\
                    b,1,4,512\n\
                    c,2,9,2048\n\
                    d,4,8,1536\n\
                    e,5,6,1\n";

/// The log of an equal program in RMM's format, with recorded pointers.
const FIVE_LOGGED: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
                           1,10:00:00.000001,allocate,0x7f0000000000,1000,0x0\n\
                           2,10:00:00.000002,allocate,0x7f0000000400,512,0x2\n\
                           1,10:00:00.000003,allocate,0x7f0000000600,2048,0x0\n\
                           1,10:00:00.000004,free,0x7f0000000000,1000,0x2\n\
                           2,10:00:00.000005,free,0x7f0000000400,512,0x0\n\
                           1,10:00:00.000006,allocate,0x7f0000000000,1536,0x0\n\
                           1,10:00:00.000007,allocate,0x7f0000000e00,1,0x0\n\
                           1,10:00:00.000008,free,0x7f0000000e00,1,0x0\n\
                           1,10:00:00.000009,free,0x7f0000000000,1536,0x0\n\
                           1,10:00:00.000010,free,0x7f0000000600,2048,0x0\n";

#[test]
fn the_figures_of_both_formats_are_those_of_the_program() {
    let traces = [file("five.csv", FIVE), file("five-logged.csv", FIVE_LOGGED)];
    for trace in traces {
        let pool = replayed_once(&[&trace]);
        assert_eq!(pool["name"], "best-fit");
        assert_eq!(number(&pool, "events"), 10);
        assert_eq!(number(&pool, "peak_live_bytes"), 2048 + 1536 + 1);
        // Buffer d is placed in the three units that a and b leave. Buffer e is placed after c.
        assert_eq!(number(&pool, "peak_reserved_bytes"), 4096 - 512 + 512);
        assert_eq!(number(&pool, "failures"), 0);
        let nanos = pool["ns_per_event"].as_f64().unwrap();
        assert!(nanos > 0.0 && nanos < 1e6, "{nanos}");
    }
}

#[test]
fn the_table_has_a_row_a_pool_with_the_figures_of_the_json() {
    let trace = file("table.csv", FIVE);
    let printed = succeeded(&run(&["replay", &trace, "--pool", "all"]));
    let mut lines = printed.lines();
    let title = lines.next().unwrap();
    for column in [
        "pool",
        "events",
        "ns/event",
        "peak live",
        "peak reserved",
        "ratio",
        "failures",
    ] {
        assert!(title.contains(column), "{title}");
    }
    let pools = replayed(&["--pool", "all", &trace]);
    assert_eq!(pools.len(), POOLS.len());
    for ((line, pool), (name, _)) in lines.zip(&pools).zip(POOLS) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reserved = number(pool, "peak_reserved_bytes");
        let live = number(pool, "peak_live_bytes");
        let ratio = reserved as f64 / live as f64;
        assert_eq!(pool["name"], name);
        assert_eq!(words[0], name);
        assert_eq!(words[1], "10");
        assert!(words[2].parse::<f64>().unwrap() > 0.0);
        assert_eq!(words[3..5], [live.to_string(), reserved.to_string()]);
        assert_eq!(words[5], format!("{ratio:.4}"));
        assert_eq!(words[6], "0");
    }
    assert_eq!(printed.lines().count(), 1 + POOLS.len());
}

#[test]
fn the_json_records_the_options() {
    let trace = file("report.csv", FIVE);
    let report = json(&["replay", &trace, "--unit", "1KiB", "--memory-limit", "1MiB"]);
    assert_eq!(report["trace"], trace);
    assert_eq!(report["unit_bytes"], 1024);
    assert_eq!(report["memory_limit_bytes"], 1 << 20);
}

#[test]
fn at_equal_times_frees_precede_allocations_each_in_file_order() {
    // At step 1, the frees of 512 and 1024 bytes are merged before the next allocation.
    let trace = file(
        "equal-times.csv",
        "id,lower,upper,size\nlast,1,2,512\na,0,1,512\nb,0,1,1024\nend,0,3,512\nwhole,1,2,1536\n",
    );
    let out = place("equal-times-out.csv");
    replayed_once(&[&trace, "--output", &text(&out)]);
    let offsets: Vec<_> = oracle::read(&out)
        .into_iter()
        .map(|row| row.offset)
        .collect();
    assert_eq!(offsets[1..4], [Some(0), Some(512), Some(1536)]);
    // Buffer `last` precedes `whole` in the file. It occupies a part of the hole of `a` and `b`, so
    // `whole` does not fit there.
    let last = offsets[0].expect("it was placed");
    assert!(last <= 1024, "{last}");
    assert_eq!(offsets[4], Some(2048));
}

#[test]
fn what_occupies_nothing_is_an_event_all_the_same() {
    let trace = file(
        "nothing.csv",
        "id,lower,upper,size\nnever,3,3,4096\nempty,0,9,0\none,3,4,7\n",
    );
    let out = place("nothing-out.csv");
    let pool = replayed_once(&[&trace, "--output", &text(&out)]);
    assert_eq!(number(&pool, "events"), 6);
    assert_eq!(number(&pool, "peak_live_bytes"), 7);
    assert_eq!(number(&pool, "peak_reserved_bytes"), 512);
    let offsets: Vec<_> = oracle::read(&out).iter().map(|row| row.offset).collect();
    assert_eq!(offsets, [Some(0); 3]);
}

#[test]
fn the_unit_is_what_blocks_are_multiples_of() {
    let trace = file("unit.csv", "id,lower,upper,size\na,0,9,1000\nb,1,9,1000\n");
    for (unit, end) in [
        ("1", 2000),
        ("3", 2004),
        ("512", 2048),
        ("4KiB", 8192),
        ("7MB", 14_000_000),
    ] {
        for pool in ["best-fit", "direct"] {
            let pool = replayed_once(&[&trace, "--unit", unit, "--pool", pool]);
            assert_eq!(number(&pool, "peak_reserved_bytes"), end, "{unit}");
        }
    }
    // The pool rounds 1000 units to 1024.
    let binned = replayed_once(&[&trace, "--unit", "1", "--pool", "binned"]);
    assert_eq!(number(&binned, "peak_reserved_bytes"), 2048);
}

#[test]
fn failures_below_a_limit_are_counted_and_their_frees_passed_over() {
    // The limit allows two of three blocks. The last block fits after another block has ended.
    let lines = "id,lower,upper,size\na,0,4,1024\nb,1,9,1024\nfails,2,3,1024\nfits,5,9,1024\n";
    let trace = file("limit.csv", lines);
    let out = place("limit-out.csv");
    for (pool, _) in POOLS {
        let arguments = [&trace, "--memory-limit", "2559", "--pool", pool];
        let pool = replayed_once(&[&arguments[..], &["--output", &text(&out)]].concat());
        assert_eq!(number(&pool, "failures"), 1);
        assert_eq!(number(&pool, "events"), 8);
        assert_eq!(number(&pool, "peak_live_bytes"), 2048);
        assert_eq!(number(&pool, "peak_reserved_bytes"), 2048);
        let offsets: Vec<_> = oracle::read(&out).iter().map(|row| row.offset).collect();
        assert_eq!(offsets, [Some(0), Some(1024), None, Some(0)]);
    }
}

#[test]
fn a_limit_below_a_unit_leaves_room_for_nothing() {
    let trace = file("no-room.csv", "id,lower,upper,size\na,0,4,1\nb,1,9,0\n");
    for pool in replayed(&[&trace, "--memory-limit", "511", "--pool", "all"]) {
        assert_eq!(number(&pool, "failures"), 1);
        assert_eq!(number(&pool, "peak_live_bytes"), 0);
        assert_eq!(number(&pool, "peak_reserved_bytes"), 0);
    }
}

#[test]
fn idle_segments_are_released_before_an_allocation_fails() {
    // The binned pool caches the large block at the addresses that the small blocks need.
    let lines = "id,lower,upper,size\nlarge,0,1,1MiB\nsmall,2,9,half\nother,3,9,half\n"
        .replace("1MiB", "1048576")
        .replace("half", "524288");
    let trace = file("idle.csv", lines);
    let binned = replayed_once(&[&trace, "--pool", "binned", "--memory-limit", "1MiB"]);
    assert_eq!(number(&binned, "failures"), 0);
    assert_eq!(number(&binned, "peak_reserved_bytes"), 1 << 20);
    let unlimited = replayed_once(&[&trace, "--pool", "binned"]);
    assert_eq!(number(&unlimited, "peak_reserved_bytes"), 2 << 20);
}

#[test]
fn what_the_binned_pool_did_not_need_for_long_makes_room_again() {
    // The program allocates a thousand blocks once, and then a block of another size forty thousand
    // times. Finally, it allocates many blocks of a third size.
    let mut lines = String::from("id,lower,upper,size\n");
    for index in 0..1000 {
        writeln!(lines, "old{index},0,1,1024").unwrap();
    }
    for index in 0..40_000 {
        writeln!(lines, "turn{index},{},{},512", index + 2, index + 3).unwrap();
    }
    for index in 0..400 {
        writeln!(lines, "new{index},50000,50001,2048").unwrap();
    }
    let trace = file("surplus.csv", lines);
    let binned = replayed_once(&[&trace, "--pool", "binned"]);
    // The peak contains the thousand blocks, which were still cached, and one repeated block.
    assert_eq!(number(&binned, "peak_reserved_bytes"), 1000 * 1024 + 512);
}

/// Returns a random program of `count` allocations in both formats.
fn random_program(seed: u64, count: u64) -> (String, String) {
    let mut numbers = Numbers(seed);
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    let mut lifetimes = String::from("id,lower,upper,size\n");
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    let (mut step, mut made) = (0, 0);
    while made < count || !live.is_empty() {
        if made < count && numbers.below(100) < 60 {
            let magnitude = 4 + numbers.below(14);
            let size = numbers.below(1 << magnitude);
            writeln!(log, "1,x,allocate,{:#x},{size},0", 4096 + made).unwrap();
            live.push((made, step, size));
            made += 1;
        } else if !live.is_empty() {
            let pick = numbers.below(live.len() as u64) as usize;
            let (index, lower, size) = live.swap_remove(pick);
            writeln!(log, "1,x,free,{:#x},{size},0", 4096 + index).unwrap();
            writeln!(lifetimes, "{index},{lower},{step},{size}").unwrap();
        } else {
            continue;
        }
        step += 1;
    }
    (log, lifetimes)
}

/// Replays a trace through each pool, and checks the results against the file of `--output`.
fn check_against_the_oracle(name: &str, trace: &str, extra: &[&str], unit: u64) {
    for (pool, round) in POOLS {
        let out = place(&format!("oracle-{name}-{pool}.csv"));
        let arguments = [trace, "--pool", pool, "--output", &text(&out)];
        let figures = replayed_once(&[&arguments, extra].concat());
        let placed = oracle::read(&out);
        assert_eq!(number(&figures, "events"), 2 * placed.len() as u64);
        let failed = placed.iter().filter(|row| row.offset.is_none()).count();
        assert_eq!(number(&figures, "failures"), failed as u64, "{pool}");
        oracle::check_disjoint(&placed, unit, round);
        assert_eq!(
            number(&figures, "peak_live_bytes"),
            oracle::peak_live(&placed)
        );
        let reserved = oracle::peak_reserved(&placed, unit, round);
        assert_eq!(number(&figures, "peak_reserved_bytes"), reserved, "{pool}");
    }
}

#[test]
fn no_two_live_blocks_overlap_and_the_peaks_are_theirs() {
    for seed in 0..4 {
        let (log, lifetimes) = random_program(seed, 700);
        let log = file(&format!("random-{seed}-log.csv"), log);
        let lifetimes = file(&format!("random-{seed}.csv"), lifetimes);
        check_against_the_oracle(&format!("log-{seed}"), &log, &[], 512);
        check_against_the_oracle(&format!("{seed}"), &lifetimes, &["--unit", "100"], 100);
        let limited = ["--memory-limit", "300KiB"];
        check_against_the_oracle(&format!("limited-{seed}"), &log, &limited, 512);
    }
}

#[test]
fn a_log_and_its_lifetimes_are_placed_alike() {
    let (log, lifetimes) = random_program(7, 500);
    let log = file("alike-log.csv", log);
    let lifetimes = file("alike.csv", lifetimes);
    let placed = |trace: &str| {
        let out = place("alike-out.csv");
        replayed_once(&[trace, "--output", &text(&out)]);
        oracle::read(&out)
    };
    // The log is written in order of its frees, and the lifetimes have the same order.
    assert_eq!(placed(&log), placed(&lifetimes));
}

#[test]
fn an_output_is_an_input_too_and_what_was_never_freed_ends_with_the_log() {
    let lines = "Thread,Time,Action,Pointer,Size,Stream\n\
                 1,x,allocate,0x10,700,0\n1,x,allocate,0x20,100,0\n1,x,allocate,0x30,0,0\n\
                 1,x,free,0x20,100,0\n";
    let out = place("never-freed-out.csv");
    let first = replayed_once(&[&file("never-freed.csv", lines), "--output", &text(&out)]);
    let row = |id: &str, lower, upper, size, offset| Placed {
        id: id.into(),
        lower,
        upper,
        size,
        offset: Some(offset),
    };
    let expected = [
        row("1", 1, 3, 100, 1024),
        row("0", 0, 4, 700, 0),
        row("2", 2, 4, 0, 0),
    ];
    assert_eq!(oracle::read(&out), expected);
    let second = replayed_once(&[&text(&out)]);
    assert_eq!(second["peak_live_bytes"], first["peak_live_bytes"]);
    assert_eq!(second["peak_reserved_bytes"], first["peak_reserved_bytes"]);
}

#[test]
fn an_output_is_for_one_pool_and_never_the_trace() {
    let trace = file("outputs.csv", FIVE);
    let out = text(&place("outputs-out.csv"));
    let several = run(&["replay", &trace, "--pool", "all", "--output", &out]);
    assert!(refused(&several).contains("--output needs a single --pool"));
    let itself = run(&["replay", &trace, "--output", &trace]);
    assert!(refused(&itself).contains("the trace itself"));
    assert_eq!(fs::read_to_string(&trace).unwrap(), FIVE);
    let nowhere = text(&place("no-such-folder/out.csv"));
    let unwritable = refused(&run(&["replay", &trace, "--output", &nowhere]));
    assert!(unwritable.contains(&nowhere), "{unwritable}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_ends_with_2() {
    let trace = file("full.csv", FIVE);
    let errors = refused(&run(&["replay", &trace, "--output", "/dev/full"]));
    assert!(errors.starts_with("error: /dev/full: "), "{errors}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = cachescope(&["replay", &trace])
        .stdout(full)
        .stderr(Stdio::piped())
        .output();
    let errors = refused(&output.unwrap());
    assert!(errors.starts_with("error: standard output: "), "{errors}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let trace = file("closed.csv", FIVE);
    for arguments in [
        &["replay", &trace][..],
        &["replay", &trace, "--json"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = cachescope(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output();
        succeeded(&output.unwrap());
    }
}

#[test]
fn options_that_mean_nothing_are_refused_with_what_would() {
    let trace = file("options.csv", FIVE);
    let cases: &[(&[&str], &str)] = &[
        (
            &["--pool", "buddy"],
            "unknown pool, expected one of best-fit, binned, direct, all",
        ),
        (
            &["--pool", "stream-ordered"],
            "the driver's own pool cannot be simulated",
        ),
        (&["--memory-limit", "50%"], "a percentage"),
        (&["--memory-limit", "lots"], "unknown unit"),
        (&["--memory-limit", "0"], "above 0"),
        (&["--unit", "0"], "above 0"),
        (&["--unit", "-1"], "'-1'"),
        (
            &["--unit", "9223372036854775809"],
            "a unit of 9223372036854775809 bytes",
        ),
        (&["--frobnicate"], "--frobnicate"),
        (&["another.csv"], "another.csv"),
    ];
    for &(arguments, reason) in cases {
        let errors = refused(&run(&[&["replay", &trace], arguments].concat()));
        assert!(errors.contains(reason), "{arguments:?}: {errors}");
    }
    let errors = String::from_utf8(run(&["replay"]).stderr).unwrap();
    assert!(errors.contains("<TRACE>"), "{errors}");
    assert_eq!(run(&["replay"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
}
