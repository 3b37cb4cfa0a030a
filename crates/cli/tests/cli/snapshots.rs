//! Tests of `replay` and `plan` with memory snapshots of PyTorch, and with damaged snapshots.
//! `snapshots/make.py` wrote the undamaged snapshots.

use serde_json::{Value, json};

use crate::{file, json, number, refused, run, succeeded};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;
const HIGH: u64 = 0x7f80_0000_0000;

/// The same snapshot in each of the protocols 2 to 5.
pub(crate) const FILES: [(&str, &[u8]); 4] = [
    ("protocol-2", include_bytes!("snapshots/protocol-2.pickle")),
    ("protocol-3", include_bytes!("snapshots/protocol-3.pickle")),
    ("protocol-4", include_bytes!("snapshots/protocol-4.pickle")),
    ("protocol-5", include_bytes!("snapshots/protocol-5.pickle")),
];

/// Encodes `value` as a pickle of protocol 2.
pub(crate) fn pickle(value: &Value) -> Vec<u8> {
    fn write(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Null => out.push(b'N'),
            Value::Bool(holds) => out.push(if *holds { 0x88 } else { 0x89 }),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => {
                    out.extend([0x8a, 8]);
                    out.extend(whole.to_le_bytes());
                }
                None if number.is_u64() => {
                    out.extend([0x8a, 9]);
                    out.extend(number.as_u64().unwrap().to_le_bytes());
                    out.push(0);
                }
                None => {
                    out.push(b'G');
                    out.extend(number.as_f64().unwrap().to_be_bytes());
                }
            },
            Value::String(text) => {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::Array(items) => {
                out.extend(b"](");
                items.iter().for_each(|item| write(item, out));
                out.push(b'e');
            }
            Value::Object(entries) => {
                out.extend(b"}(");
                for (key, value) in entries {
                    write(&json!(key), out);
                    write(value, out);
                }
                out.push(b'u');
            }
        }
    }
    let mut out = b"\x80\x02".to_vec();
    write(value, &mut out);
    out.push(b'.');
    out
}

fn entry(action: &str, address: u64, size: u64) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": []})
}

fn of_entries(entries: &[Value]) -> Vec<u8> {
    pickle(&json!({"segments": [], "device_traces": [entries]}))
}

#[test]
fn each_protocol_gives_the_figures_of_pytorch_and_of_the_pools() {
    for (name, bytes) in FILES {
        let snapshot = file(&format!("{name}.pickle"), bytes);
        let report = json(&["replay", &snapshot, "--pool", "all"]);
        let devices = report["devices"].as_array().unwrap();
        assert!(report.get("pools").is_none());
        let ordinals: Vec<u64> = devices
            .iter()
            .map(|device| number(device, "device"))
            .collect();
        assert_eq!(ordinals, [0, 2], "the second has nothing");
        // The 6 MiB are live until their free is completed, so they are live together with 12 MiB.
        // A block of 2 MiB ends before the peak. A block whose free still waits at the end is live
        // throughout.
        let throughout = 2 * MIB - 7;
        let live = 6 * MIB + 1000 + 12 * MIB + throughout;
        let pytorch = &devices[0]["pytorch"];
        assert_eq!(number(pytorch, "peak_live_bytes"), live);
        // Initially, 4 MiB are reserved. Then 20 MiB are reserved, and then 2 MiB temporarily.
        assert_eq!(number(pytorch, "peak_reserved_bytes"), 26 * MIB);
        assert_eq!(number(pytorch, "out_of_memory"), 1);
        for pool in devices[0]["pools"].as_array().unwrap() {
            assert_eq!(number(pool, "events"), 2 * 6);
            assert_eq!(number(pool, "peak_live_bytes"), live);
            assert!(number(pool, "peak_reserved_bytes") >= live);
        }
        let second = &devices[1];
        assert_eq!(number(&second["pytorch"], "peak_live_bytes"), 4096);
        assert_eq!(number(&second["pytorch"], "peak_reserved_bytes"), 2 * MIB);
        let only = json(&["replay", &snapshot, "--device", "2"]);
        assert_eq!(only["devices"].as_array().unwrap().len(), 1);
        let plan = json(&["plan", &snapshot, "--device", "0", "--time-limit", "1"]);
        assert_eq!(number(&plan, "buffers"), 6);
        assert_eq!(number(&plan, "max_load_bytes"), live);
    }
}

#[test]
fn the_table_has_a_row_of_pytorch_for_each_device() {
    let snapshot = file("table.pickle", FILES[0].1);
    let printed = succeeded(&run(&["replay", &snapshot]));
    for text in ["cuda:0\n", "cuda:2\n", "best-fit", "PyTorch", "27262976"] {
        assert!(printed.contains(text), "no {text:?} in {printed}");
    }
    assert_eq!(printed.matches("PyTorch").count(), 2);
}

#[test]
fn a_plan_of_several_devices_needs_the_name_of_one() {
    let snapshot = file("several.pickle", FILES[0].1);
    let errors = refused(&run(&["plan", &snapshot]));
    assert!(
        errors.contains("the snapshot has cuda:0, cuda:2: select one with --device"),
        "{errors}"
    );
    let errors = refused(&run(&["replay", &snapshot, "--device", "1"]));
    assert!(
        errors.contains("nothing was recorded of device 1, the snapshot has cuda:0, cuda:2"),
        "{errors}"
    );
    let errors = refused(&run(&["replay", &snapshot, "--output", "plan.csv"]));
    assert!(errors.contains("single --device"), "{errors}");
    let lifetimes = file("no-devices.csv", "id,lower,upper,size\na,0,1,1\n");
    for command in ["plan", "replay"] {
        let errors = refused(&run(&[command, &lifetimes, "--device", "0"]));
        assert!(errors.contains("no devices"), "{errors}");
    }
}

#[test]
fn offsets_are_written_of_one_device() {
    let snapshot = file("placed.pickle", FILES[0].1);
    let output = file("placed.csv", "");
    succeeded(&run(&[
        "replay", &snapshot, "--device", "0", "--output", &output,
    ]));
    let written = std::fs::read_to_string(&output).unwrap();
    assert_eq!(written.lines().count(), 1 + 6, "{written}");
    assert!(
        written.contains(&format!("{BASE:#x}@2,2,8,{},", 6 * MIB)),
        "{written}"
    );
    assert!(
        written.contains(&format!("{:#x}@0,0,14,", HIGH + 2 * MIB)),
        "{written}"
    );
}

#[test]
fn what_was_allocated_before_the_recording_is_known_from_its_free() {
    let entries = [
        entry("free_requested", BASE, 100),
        entry("free_completed", BASE, 100),
        entry("alloc", BASE, 7),
    ];
    let snapshot = file("known-by-free.pickle", of_entries(&entries));
    let report = json(&["replay", &snapshot]);
    assert_eq!(
        number(&report["devices"][0]["pytorch"], "peak_live_bytes"),
        100
    );
}

#[test]
fn times_are_not_used_and_completions_may_be_missing() {
    let mut entries = [
        entry("alloc", BASE, 512),
        entry("free_requested", BASE, 512),
        entry("alloc", BASE, 1024),
        entry("a later version's", 0, 0),
    ];
    for (time, entry) in [9, 7, 5, 3].into_iter().zip(&mut entries) {
        entry["time_us"] = json!(time);
    }
    let report = json(&["replay", &file("backwards.pickle", of_entries(&entries))]);
    assert_eq!(
        number(&report["devices"][0]["pytorch"], "peak_live_bytes"),
        1024
    );
}

#[track_caller]
fn refuses(name: &str, bytes: impl AsRef<[u8]>, reason: &str) {
    refused_by(&["replay", "plan", "view"], name, bytes, reason);
}

#[track_caller]
fn refused_by(commands: &[&str], name: &str, bytes: impl AsRef<[u8]>, reason: &str) {
    let snapshot = file(&format!("refused-{name}.pickle"), bytes);
    for command in commands {
        let errors = refused(&run(&[command, &snapshot]));
        assert!(
            errors.contains(&snapshot) && errors.contains(reason),
            "{errors}"
        );
    }
}

#[test]
fn damaged_foreign_and_hostile_files_are_refused() {
    let whole = FILES[2].1;
    for length in [1, 2, 3, 20, whole.len() / 2, whole.len() - 1] {
        refuses("short", &whole[..length], "cut short");
    }
    refuses(
        "code",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.",
        "STACK_GLOBAL",
    );
    refuses("old", b"\x80\x01N.", "protocol 1");
    refuses(
        "foreign",
        pickle(&json!({"weights": [1, 2]})),
        "no list `segments`",
    );
    refuses(
        "no-traces",
        pickle(&json!({"segments": []})),
        "no list `device_traces`",
    );
    refuses("number", pickle(&json!(3)), "not a snapshot");
    let far = json!({"segments": [{"device": 1_u64 << 40, "address": 0, "total_size": 1, "blocks": []}], "device_traces": []});
    refuses("far", pickle(&far), "expected at most");
    refuses(
        "no-list",
        pickle(&json!({"segments": [], "device_traces": [3]})),
        "device_traces[0] is not a list",
    );
    refuses(
        "no-entry",
        of_entries(&[json!(3)]),
        "device_traces[0][0] is not a dictionary",
    );
    refuses(
        "no-action",
        of_entries(&[json!({})]),
        "device_traces[0][0] has no text `action`",
    );
    refuses(
        "no-size",
        of_entries(&[json!({"action": "alloc", "addr": 1})]),
        "no whole number `size`",
    );
    let negative = json!({"action": "alloc", "addr": 1, "size": -5});
    refuses("negative", of_entries(&[negative]), "`size` is -5");
}

#[test]
fn addresses_that_cannot_be_are_refused_with_their_entry() {
    let twice = [entry("alloc", BASE, 512), entry("alloc", BASE, 512)];
    refuses(
        "twice",
        of_entries(&twice),
        "device_traces[0][1]: 0x7f0000000000 overlaps the block at",
    );
    let inside = [entry("alloc", BASE, 512), entry("alloc", BASE + 511, 1)];
    refuses("inside", of_entries(&inside), "alive since entry 1");
    let around = [entry("alloc", BASE, 512), entry("alloc", BASE - 1, 4)];
    refuses("around", of_entries(&around), "alive since entry 1");
    let freed = [
        entry("alloc", BASE, 512),
        entry("free_completed", BASE, 512),
        entry("free_completed", BASE, 512),
    ];
    refuses(
        "freed-twice",
        of_entries(&freed),
        "device_traces[0][2]: 0x7f0000000000 was freed already",
    );
    let most = i64::MAX as u64;
    let many = [
        entry("alloc", 0, most),
        entry("free_completed", 0, most),
        entry("alloc", 0, 1),
    ];
    refused_by(&["replay", "plan"], "many", of_entries(&many), "2^63");
    let inside = [
        entry("alloc", BASE, 512),
        entry("free_requested", BASE + 256, 64),
    ];
    refuses(
        "free-inside",
        of_entries(&inside),
        "device_traces[0][1]: no block begins there: 0x7f0000000100 overlaps the block at \
         0x7f0000000000, which is alive since entry 1",
    );
    let around = [entry("alloc", BASE, 512), entry("free", BASE - 256, 512)];
    refuses(
        "free-around",
        of_entries(&around),
        "device_traces[0][1]: no block begins there",
    );
    let before = [
        entry("free_requested", BASE, 512),
        entry("alloc", BASE, 512),
        entry("free_completed", BASE + 64, 64),
    ];
    refuses("free-later", of_entries(&before), "is alive since entry 2");
}

/// Returns a segment of 4096 bytes at `address` with the given blocks.
fn segment(address: u64, blocks: Value) -> Value {
    json!({"device": 0, "address": address, "total_size": 4096, "blocks": blocks})
}

fn block(address: u64, size: u64, state: &str) -> Value {
    json!({"address": address, "size": size, "state": state})
}

fn of_segments(segments: &[Value]) -> Vec<u8> {
    pickle(&json!({"segments": segments, "device_traces": []}))
}

#[test]
fn segments_that_cannot_be_are_refused_with_their_place() {
    let none = || json!([]);
    let overlapping = [BASE + 8192, BASE, BASE + 4095].map(|address| segment(address, none()));
    refuses(
        "segments",
        of_segments(&overlapping),
        "segments[2] overlaps segments[1] at 0x7f0000000fff",
    );
    let twice = [segment(BASE, none()), segment(BASE, none())];
    refuses(
        "segment-twice",
        of_segments(&twice),
        "segments[1] overlaps segments[0]",
    );
    let blocks = json!([
        block(BASE, 512, "inactive"),
        block(BASE + 256, 512, "active_allocated")
    ]);
    refuses(
        "blocks",
        of_segments(&[segment(BASE, blocks)]),
        "segments[0].blocks[1]: its address 0x7f0000000100 is below 0x7f0000000200",
    );
    let below = json!([block(BASE - 512, 512, "inactive")]);
    refuses(
        "below",
        of_segments(&[segment(BASE, below)]),
        "segments[0].blocks[0]: its address",
    );
    for state in ["active_allocated", "inactive"] {
        let beyond = json!([{"size": 4096, "state": state}, {"size": 1, "state": state}]);
        refuses(
            "beyond",
            of_segments(&[segment(BASE, beyond)]),
            "segments[0].blocks[1] ends at 0x7f0000001001, its segment ends at 0x7f0000001000",
        );
    }
    let unknown = json!([block(BASE, 512, "active_forgotten")]);
    refuses(
        "state",
        of_segments(&[segment(BASE, unknown)]),
        "segments[0].blocks[0]: unknown state \"active_forgotten\"",
    );
}

#[test]
fn segments_that_can_be_are_read() {
    let other_device = json!({"device": 1, "address": BASE, "total_size": 4096, "blocks": []});
    let segments = [
        segment(BASE + 4096, json!([])),
        other_device,
        segment(
            BASE,
            json!([
                block(BASE, 512, "active_awaiting_free"),
                block(BASE + 1024, 3072, "active_allocated")
            ]),
        ),
    ];
    // `torch.cuda.memory_snapshot` returns only the list of segments.
    let list = pickle(&json!(segments));
    for (name, bytes) in [("gap", of_segments(&segments)), ("list", list)] {
        let snapshot = file(&format!("{name}.pickle"), bytes);
        let report = json(&["replay", &snapshot, "--device", "0"]);
        let pytorch = &report["devices"][0]["pytorch"];
        assert_eq!(number(pytorch, "peak_live_bytes"), 512 + 3072);
        assert_eq!(number(pytorch, "peak_reserved_bytes"), 8192);
        let plan = json(&["plan", &snapshot, "--device", "0"]);
        assert_eq!(number(&plan, "slab_bytes"), 512 + 3072);
        succeeded(&run(&[
            "view",
            &snapshot,
            "--output",
            &snapshot.replace(".pickle", ".txt"),
        ]));
    }
    refuses(
        "list-of-numbers",
        pickle(&json!([1, 2])),
        "segments[0] has no",
    );
    let errors = refused(&run(&[
        "plan",
        &file("no-segments.pickle", pickle(&json!([]))),
    ]));
    assert!(
        errors.contains("the snapshot has no recorded device"),
        "{errors}"
    );
}

#[test]
fn skips_what_no_figure_needs() {
    let mut allocation = entry("alloc", BASE, 512);
    allocation["frames"] = json!([
        {"name": "at::empty", "filename": "??", "line": u64::MAX},
        {"name": 3, "filename": null, "line": "x"},
        7,
        {"name": "step", "filename": "train.py", "line": 12},
    ]);
    allocation["compile_context"] = json!(-1.5);
    allocation["user_metadata"] = json!({"nested": [u64::MAX, {}]});
    allocation["stream"] = json!(u64::MAX);
    allocation["time_us"] = json!("soon");
    let strange = json!({"segments": [], "device_traces": [[allocation]], "other": u64::MAX});
    let snapshot = file("strange.pickle", pickle(&strange));
    let report = json(&["replay", &snapshot]);
    assert_eq!(
        number(&report["devices"][0]["pytorch"], "peak_live_bytes"),
        512
    );
    let output = snapshot.replace(".pickle", ".txt");
    succeeded(&run(&["view", &snapshot, "-o", &output]));
    let table = std::fs::read_to_string(&output).unwrap();
    assert!(table.contains("train.py:12"), "{table}");
}
