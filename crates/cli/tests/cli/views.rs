//! Tests of `view` and `compare`: reports of all kinds of recordings, and refusals of other files.

use std::fs;

use serde_json::{Value, json};

use crate::snapshots::{FILES, pickle};
use crate::{file, json, place, refused, run, succeeded, text};

const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    1,10:00:00.000001,allocate,0x1000,1000,0\n\
    1,10:00:00.000002,allocate,0x2000,500,0\n\
    1,10:00:00.000003,free,0x1000,1000,0\n";

#[test]
fn every_kind_of_recording_becomes_a_page() {
    let plan = "id,lower,upper,size,offset\nweights,0,9,4096,0\n";
    let mut inputs = vec![file("view-log.csv", LOG), file("view-plan.csv", plan)];
    inputs.extend(FILES.map(|(name, bytes)| file(&format!("view-{name}.pickle"), bytes)));
    for input in inputs {
        let told = succeeded(&run(&["view", &input]));
        let page = told.trim_end();
        assert!(page.ends_with(".html") && page != input, "{page}");
        let html = fs::read_to_string(page).unwrap();
        assert!(html.starts_with("<!doctype html>") || html.starts_with("<!DOCTYPE html>"));
        assert!(html.len() > 10_000, "{input}");
    }
}

#[test]
fn the_output_s_extension_selects_the_report() {
    let input = file("view-endings.csv", LOG);
    for (ending, has) in [
        ("txt", "1.5 KiB"),
        ("json", "traceEvents"),
        ("folded", "1500"),
        ("svg", "<svg"),
        ("dhat", "dhatFileVersion"),
    ] {
        let output = text(&place(&format!("view-endings.{ending}")));
        succeeded(&run(&["view", &input, "--output", &output]));
        let report = fs::read_to_string(&output).unwrap();
        assert!(report.contains(has), "{ending}: {report}");
    }
    let output = text(&place("view-endings.pickle"));
    succeeded(&run(&["view", &input, "-o", &output]));
    let replayed = succeeded(&run(&["replay", &output]));
    assert!(replayed.contains("1500"), "{replayed}");
}

/// Returns a snapshot of two devices. The first device allocates the given sizes at the given
/// lines.
fn snapshot(allocations: &[(u64, u64)]) -> Vec<u8> {
    let mut address = 0x10000;
    let entries = allocations.iter().map(|&(line, size)| {
        address += 0x10000;
        let frames = json!([{ "name": "step", "filename": "train.py", "line": line }]);
        json!({ "action": "alloc", "addr": address, "size": size, "stream": 0, "frames": frames,
                "time_us": address })
    });
    let first: Vec<_> = entries.collect();
    let second =
        json!([{ "action": "alloc", "addr": 0x999, "size": 7, "stream": 0, "frames": [] }]);
    pickle(&json!({ "segments": [], "device_traces": [first, second] }))
}

#[test]
fn a_comparison_names_the_lines_that_grew() {
    let before = file(
        "before.pickle",
        snapshot(&[(10, 512), (20, 1024), (30, 2048)]),
    );
    let after = file(
        "after.pickle",
        snapshot(&[(10, 512), (20, 4096), (20, 4096), (40, 512)]),
    );
    let told = succeeded(&run(&["compare", &before, &after]));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines[0],
        "peak live bytes 3584 -> 9216 (+5632), allocations 3 -> 4 (+1)"
    );
    let rows: Vec<Vec<&str>> = lines[3..]
        .iter()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["+7168", "+7168", "+1", "train.py:20", "(<uncached>)"],
            ["+512", "+512", "+1", "train.py:40", "(<uncached>)"],
            ["-2048", "-2048", "-1", "train.py:30", "(<uncached>)"],
        ]
    );
    let object = json(&["compare", &before, &after]);
    assert_eq!(
        object["peak_bytes"],
        json!({ "before": 3584, "after": 9216 })
    );
    assert_eq!(object["lines"][0]["line"], "train.py:20");
    let same = succeeded(&run(&["compare", &before, &before]));
    assert!(same.ends_with("no line differs\n"), "{same}");
}

const GATHER: &str = "torch::cuda::(anonymous namespace)::gather_with_cpp()";

/// Returns a snapshot with PyTorch's backtraces: three frames without a line, and then Python's
/// frames.
fn with_frames() -> Vec<u8> {
    let hidden = [
        ("torch::unwind::unwind()", "??", 0),
        (GATHER, "memory_snapshot.cpp", 0),
    ];
    let frame = |(name, file, line): (&str, &str, u64)| json!({ "name": name, "filename": file, "line": line });
    let frames = |own: &[(&str, &str, u64)]| -> Vec<Value> {
        let hidden = hidden.into_iter().chain([("at::empty", "??", u64::MAX)]);
        hidden.chain(own.iter().copied()).map(frame).collect()
    };
    let linear = ("forward", "/lib/torch/linear.py", 125);
    let entry = |number: u64, size: u64, frames: Vec<Value>| json!({ "action": "alloc", "addr": number << 20, "size": size, "frames": frames });
    let mut free = entry(
        9,
        128,
        frames(&[linear, ("main", "/home/train/model.py", 50)]),
    );
    free["action"] = json!("free");
    let entries = [
        free,
        entry(
            1,
            1024,
            frames(&[linear, ("forward", "/home/train/model.py", 44)]),
        ),
        entry(
            2,
            512,
            frames(&[linear, ("main", "/home/train/main.py", 9)]),
        ),
        entry(3, 256, frames(&[("MmBackward0::apply", "??", 0)])),
    ];
    let throughout = json!({ "size": 2048, "state": "active_allocated",
        "frames": frames(&[("load", "/home/train/data.py", 7)]) });
    let old = json!({ "size": 4096, "state": "active_allocated",
        "history": [{ "addr": 0, "frames": frames(&[("load", "/home/train/old.py", 3)]) }] });
    let segment = json!({ "device": 0, "address": 1_u64 << 40, "total_size": 8192,
        "blocks": [throughout, old] });
    pickle(&json!({ "segments": [segment], "device_traces": [entries] }))
}

#[test]
fn an_allocation_is_listed_by_its_first_line() {
    let input = file("frames.pickle", with_frames());
    let output = text(&place("frames.txt"));
    let lines = |more: &[&str]| -> Vec<String> {
        succeeded(&run(&[&["view", &input, "-o", &output], more].concat()));
        let table = fs::read_to_string(&output).unwrap();
        let rows = table.lines().skip(4);
        rows.map(|row| row.split_whitespace().next_back().unwrap().to_owned())
            .collect()
    };
    let before = ["/home/train/old.py:3", "/home/train/data.py:7"];
    let function = "MmBackward0::apply";
    let linear = "/lib/torch/linear.py:125";
    assert_eq!(lines(&[]), [before[0], before[1], linear, function, linear]);
    let table = fs::read_to_string(&output).unwrap();
    assert!(table.contains(&format!("freed at {linear}")), "{table}");
    let freed = "/home/train/model.py:50";
    let own = [
        "/home/train/model.py:44",
        "/home/train/main.py:9",
        function,
        freed,
    ];
    assert_eq!(
        lines(&["--own", "train/*.py"]),
        [&before[..], &own].concat()
    );
    let named = json(&["compare", &input, &input, "--own", "train/"]);
    assert_eq!(named["lines"], json!([]));
    let folded = text(&place("frames.folded"));
    succeeded(&run(&["view", &input, "-o", &folded]));
    let stacks = fs::read_to_string(&folded).unwrap();
    let whole = "forward (/home/train/model.py:44);forward (/lib/torch/linear.py:125);at::empty;";
    assert!(stacks.contains(whole), "{stacks}");
}

#[test]
fn a_device_is_chosen() {
    let input = file("two.pickle", snapshot(&[(10, 512), (20, 1024)]));
    let output = text(&place("two.txt"));
    let table = |more: &[&str]| {
        succeeded(&run(&[&["view", &input, "-o", &output], more].concat()));
        fs::read_to_string(&output).unwrap()
    };
    assert!(table(&[]).starts_with("cuda:0: 1.5 KiB"));
    assert!(table(&["--device", "1"]).starts_with("cuda:1: 7 B"));
    let error = refused(&run(&["view", &input, "--device", "2"]));
    assert!(
        error.contains("nothing was recorded of device 2, the snapshot has cuda:0, cuda:1"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_or_written_is_refused() {
    let log = file("view-refused.csv", LOG);
    let hostile = file(
        "hostile.pickle",
        b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.",
    );
    let error = refused(&run(&["view", &hostile]));
    assert!(
        error.contains("GLOBAL") && error.contains("hostile.pickle"),
        "{error}"
    );
    let cut = file("cut.pickle", &FILES[2].1[..FILES[2].1.len() / 2]);
    assert!(refused(&run(&["compare", &cut, &log])).contains("cut.pickle"));
    assert!(refused(&run(&["view", "no such file.csv"])).contains("no such file.csv"));
    let error = refused(&run(&["view", &log, "-o", "page.docx"]));
    assert!(
        error.contains("page.docx: unknown ending, expected one of .html"),
        "{error}"
    );
    let error = refused(&run(&["view", &log, "-o", "no/such/folder/page.html"]));
    assert!(error.contains("no/such/folder/page.html"), "{error}");
}
