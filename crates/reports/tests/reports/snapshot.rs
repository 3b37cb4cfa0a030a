//! Tests of snapshots, parsed as PyTorch's viewer parses them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use cachescope_reports::{Event, EventKind, Profile, Segment, snapshot};

use crate::bad_input::bytes;
use crate::toy::{Recorded, block, record, tables};
use crate::unpickle::{Value, unpickle};
use crate::viewer::{categories, check_tiles, walk_back};

fn read(profile: &Profile) -> Value {
    unpickle(&bytes(snapshot::write, profile))
}

/// Returns the action, the address and the size of each entry of a device.
fn entries(snapshot: &Value, device: usize) -> Vec<(&str, u64, u64)> {
    let trace = snapshot.list("device_traces")[device].items().iter();
    let of = |entry: &'_ Value| entry.get("addr").map_or(0, |_| entry.int("addr"));
    trace
        .map(|entry| (entry.text("action"), of(entry), entry.int("size")))
        .collect()
}

fn block_event(kind: EventKind, address: u64, bytes: u64) -> Event {
    Event {
        block_bytes: bytes.next_multiple_of(512),
        ..block(kind, 2_500, address, bytes)
    }
}

fn of_events(events: Vec<Event>) -> Profile {
    Profile {
        segments: vec![Segment {
            address: 0x1000,
            bytes: 0x1000,
        }],
        events,
        duration_ns: 9_000,
        ..tables("cuda:0")
    }
}

#[test]
fn a_small_profile_is_these_bytes() {
    let profile = Profile {
        device: "host".to_owned(),
        began_unix_ns: 1_000_000,
        duration_ns: 5_000,
        ..of_events(vec![block_event(EventKind::Miss, 0x1200, 1000)])
    };
    let mut expected = Vec::new();
    let mut push = |bytes: &[u8]| expected.extend(bytes);
    push(b"\x80\x04}(\x8c\x0ddevice_traces](](");
    push(
        b"}(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94M\x00\x12\x8c\x04size\x94M\x00\x04",
    );
    push(
        b"\x8c\x08category\x94\x8c\x04loop\x94\x8c\x06stream\x94K\x00\x8c\x07time_us\x94M\xea\x03",
    );
    push(b"\x8c\x06frames\x94](}(\x8c\x04name\x94h\x05\x8c\x08filename\x94\x8c\x0bsrc/main.rs\x94");
    push(b"\x8c\x04line\x94K\x01u\x94e\x94u");
    push(b"}(h\x00\x8c\x08snapshot\x94h\x02K\x00h\x03K\x00h\x04\x8c\x07unknown\x94h\x06K\x00");
    push(b"h\x07M\xed\x03h\x08](e\x94uee");
    push(b"\x8c\x08segments](}(\x8c\x06device\x94K\x00\x8c\x07address\x94M\x00\x10");
    push(b"\x8c\x0atotal_size\x94M\x00\x10h\x06K\x00\x8c\x0csegment_type\x94\x8c\x05large\x94");
    push(b"\x8c\x0dis_expandable\x94\x88h\x08h\x11\x8c\x06blocks\x94](");
    push(b"}(h\x13M\x00\x10h\x03M\x00\x02\x8c\x0erequested_size\x94K\x00\x8c\x05state\x94");
    push(b"\x8c\x08inactive\x94h\x08h\x11u");
    push(
        b"}(h\x13M\x00\x12h\x03M\x00\x04h\x19M\xe8\x03h\x1a\x8c\x10active_allocated\x94h\x08h\x0eu",
    );
    push(b"}(h\x13M\x00\x16h\x03M\x00\x0ah\x19K\x00h\x1ah\x1bh\x08h\x11ue");
    push(b"\x8c\x0eallocated_size\x94M\x00\x04\x8c\x0bactive_size\x94M\x00\x04h\x19M\xe8\x03ue");
    push(b"\x8c\x12allocator_settings}(\x8c\x13expandable_segments\x88u");
    push(b"\x8c\x14external_annotations](eu.");
    let written = bytes(snapshot::write, &profile);
    assert_eq!(
        written.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

#[test]
fn programs_are_walked_back_by_the_viewer() {
    for seed in 0..60 {
        let before = [0, 50, 200][seed as usize % 3];
        let Recorded { profile, live } = record(seed, before, 300);
        let snapshot = read(&profile);
        assert!(snapshot.list("device_traces")[0].items().is_empty());
        walk_back(&snapshot, 1);
        let (_, blocks) = check_tiles(&snapshot);
        let active = blocks
            .into_iter()
            .filter(|(_, own)| own.1 == "active_allocated");
        let active: BTreeMap<u64, u64> = active.map(|(at, (end, _))| (at, end)).collect();
        let known = live.iter().filter(|block| block.is_known);
        let known = known.map(|block| (block.address, block.address + block.block_bytes));
        assert_eq!(active, known.collect(), "seed {seed}");
        assert!(categories(&snapshot, 1).contains(&"unknown"));
    }
}

#[test]
fn neighbours_that_were_reserved_are_one_segment() {
    let reserve = |address, bytes| Event {
        address,
        bytes,
        ..Event::new(EventKind::Reserve, 0)
    };
    let mut straddling = block_event(EventKind::Hit, 0x1f00, 0x200);
    straddling.stream = 4;
    let mut other_stream = reserve(0x3000, 0x1000);
    other_stream.stream = 9;
    let mut elsewhere = reserve(0x8000, 0x1000);
    elsewhere.stream = 9;
    let events = vec![reserve(0x2000, 0x1000), straddling, other_stream, elsewhere];
    let snapshot = read(&of_events(events));
    // A range grows in place, regardless of the requesting stream.
    let segments = check_tiles(&snapshot).0;
    assert_eq!(segments, [(0x1000, 0x4000, 0), (0x8000, 0x9000, 9)]);
    walk_back(&snapshot, 0);
}

#[test]
fn a_block_across_two_streams_makes_them_one_segment() {
    let reserve = |address, stream| Event {
        address,
        bytes: 0x1000,
        stream,
        ..Event::new(EventKind::Reserve, 0)
    };
    let mut events = vec![reserve(0x4000, 9), reserve(0x2000, 5), reserve(0x3000, 9)];
    let segments = |events: &[Event]| check_tiles(&read(&of_events(events.to_vec()))).0;
    assert_eq!(
        segments(&events),
        [(0x1000, 0x4000, 0), (0x4000, 0x5000, 9)]
    );
    events.push(block_event(EventKind::Hit, 0x3f00, 0x200));
    assert_eq!(segments(&events), [(0x1000, 0x5000, 0)]);
}

#[test]
fn entries_name_the_scope_and_the_line() {
    let mut allocated = block_event(EventKind::Uncached, 0x1000, 700);
    allocated.scope = None;
    let mut freed = block_event(EventKind::Free, 0x1000, 700);
    freed.stack = Some(4);
    let snapshot = read(&of_events(vec![allocated, freed]));
    assert_eq!(
        entries(&snapshot, 0),
        [
            ("alloc", 0x1000, 1024),
            ("free_requested", 0x1000, 1024),
            ("free_completed", 0x1000, 1024),
            ("snapshot", 0, 0),
        ]
    );
    let trace = snapshot.list("device_traces")[0].items();
    assert_eq!(trace[0].int("time_us"), 1_790_000_000_123_459);
    assert_eq!(trace[0].text("category"), "<uncached>");
    let frame = |entry: usize, frame: usize| {
        let frame = &trace[entry].list("frames")[frame];
        (
            frame.text("name"),
            frame.text("filename"),
            frame.int("line"),
        )
    };
    assert_eq!(frame(0, 0), ("<uncached>", "src/main.rs", 1));
    assert_eq!(frame(1, 0), ("step<[u8; 4]>", "", 0));
    assert_eq!(frame(1, 1), ("step<[u8; 51]>", "src/step.rs", 3));
    assert_eq!(categories(&snapshot, 0), ["<uncached>", "loop", "unknown"]);
}

#[test]
fn a_pending_block_stays_until_its_range_is_allocated_again() {
    let allocated = block_event(EventKind::Miss, 0x1000, 1024);
    let pending = block_event(EventKind::FreePending, 0x1000, 1024);
    let snapshot = read(&of_events(vec![allocated, pending]));
    let state = |snapshot: &Value| check_tiles(snapshot).1.remove(&0x1000);
    assert_eq!(
        state(&snapshot),
        Some((0x1400, "active_pending_free".to_owned()))
    );
    walk_back(&snapshot, 0);
    // The new block begins in the middle of the pending block.
    let again = block_event(EventKind::Hit, 0x1200, 512);
    let snapshot = read(&of_events(vec![allocated, pending, again]));
    assert_eq!(state(&snapshot), None);
    let actions = entries(&snapshot, 0);
    assert_eq!(
        actions[1..4],
        [
            ("free_requested", 0x1000, 1024),
            ("free_completed", 0x1000, 1024),
            ("alloc", 0x1200, 512),
        ]
    );
    walk_back(&snapshot, 0);
}

#[test]
fn a_pending_block_is_free_once_other_streams_are_done() {
    let allocated = block_event(EventKind::Miss, 0x1000, 1024);
    let pending = block_event(EventKind::FreePending, 0x1000, 1024);
    // The completed span is an arena that begins before the block and contains it.
    let completed = block_event(EventKind::FreeCompleted, 0xc00, 2048);
    // The second completion has no effect. The completion of a live block is ignored.
    let live = block_event(EventKind::Miss, 0x2000, 512);
    let events = vec![
        allocated,
        pending,
        completed,
        completed,
        live,
        block_event(EventKind::FreeCompleted, 0x2000, 512),
    ];
    let snapshot = read(&of_events(events));
    let blocks = check_tiles(&snapshot).1;
    assert!(!blocks.contains_key(&0x1000) && blocks.contains_key(&0x2000));
    let actions = entries(&snapshot, 0);
    let of_block = actions.iter().filter(|action| action.1 == 0x1000);
    let names: Vec<_> = of_block.map(|action| action.0).collect();
    let [.., requested, done] = names[..] else {
        panic!("{names:?}");
    };
    assert_eq!((requested, done), ("free_requested", "free_completed"));
    walk_back(&snapshot, 0);
}

#[test]
fn lost_events_are_reconstructed() {
    let allocated = block_event(EventKind::Hit, 0x1000, 1024);
    // The free of the first block was lost. The allocation of the last freed block was lost too.
    let events = vec![
        allocated,
        block_event(EventKind::Hit, 0x1000, 512),
        block_event(EventKind::Free, 0x1800, 512),
    ];
    let snapshot = read(&of_events(events));
    let actions: Vec<_> = entries(&snapshot, 0).iter().map(|entry| entry.0).collect();
    let freed = ["free_requested", "free_completed"];
    assert_eq!(
        actions,
        [&["alloc"], &freed[..], &["alloc"], &freed, &["snapshot"]].concat()
    );
    walk_back(&snapshot, 0);
}

#[test]
fn memory_of_no_segment_lives_as_long_as_its_block() {
    let address = 0x70_0000;
    let allocated = block_event(EventKind::Uncached, address, 512);
    let snapshot = read(&of_events(vec![allocated]));
    let own = (address, address + 512, 0);
    assert_eq!(check_tiles(&snapshot).0, [(0x1000, 0x2000, 0), own]);
    walk_back(&snapshot, 0);
    let freed = block_event(EventKind::Free, address, 512);
    for events in [vec![allocated, freed], vec![freed]] {
        let snapshot = read(&of_events(events));
        assert_eq!(check_tiles(&snapshot).0, [(0x1000, 0x2000, 0)]);
        walk_back(&snapshot, 0);
    }
}

#[test]
fn what_is_reserved_around_a_block_stays_after_it() {
    let address = 0x70_0000;
    let reserved = Event {
        address,
        bytes: 0x1000,
        ..Event::new(EventKind::Reserve, 0)
    };
    let events = vec![
        block_event(EventKind::Uncached, address, 512),
        reserved,
        block_event(EventKind::Free, address, 512),
    ];
    let snapshot = read(&of_events(events));
    let around = (address, address + 0x1000, 0);
    assert_eq!(check_tiles(&snapshot).0, [(0x1000, 0x2000, 0), around]);
    walk_back(&snapshot, 0);
}

#[test]
fn numbers_are_none_that_the_viewer_takes_as_long() {
    let failed = Event {
        bytes: u64::MAX,
        scope: Some(0),
        ..Event::new(EventKind::OutOfMemory, 0)
    };
    let snapshot = read(&of_events(vec![failed]));
    assert_eq!(entries(&snapshot, 0)[0], ("oom", 0, i64::MAX as u64));
    assert_eq!(categories(&snapshot, 0), ["loop", "unknown"]);
}

#[test]
fn what_is_released_has_the_stream_of_its_range() {
    let of = |kind, stream| Event {
        address: 0x9000,
        bytes: 0x1000,
        stream,
        ..Event::new(kind, 0)
    };
    let released = of(EventKind::Release, 2);
    let snapshot = read(&of_events(vec![of(EventKind::Reserve, 5), released]));
    let trace = snapshot.list("device_traces")[0].items();
    let streams = trace[..2]
        .iter()
        .map(|entry| (entry.text("action"), entry.int("stream")));
    let streams: Vec<_> = streams.collect();
    assert_eq!(streams, [("segment_map", 5), ("segment_unmap", 5)]);
}

#[test]
fn python_reads_the_same() {
    let Recorded { profile, .. } = record(3, 40, 5_000);
    let program = "import pickle,sys; s = pickle.load(sys.stdin.buffer); t = s['device_traces'][1]\n\
        print(len(t), sum(e.get('addr', 0) for e in t), sum(len(e['frames']) for e in t), \
        sum(b['size'] for g in s['segments'] for b in g['blocks']))";
    let python = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        eprintln!("no python3: left out");
        return;
    };
    let file = bytes(snapshot::write, &profile);
    let mut input = python.stdin.take().expect("it is piped");
    input.write_all(&file).expect("python reads all");
    drop(input);
    let output = python.wait_with_output().expect("python ends");
    let snapshot = unpickle(&file);
    let trace = snapshot.list("device_traces")[1].items();
    let addresses = entries(&snapshot, 1)
        .iter()
        .map(|entry| u128::from(entry.1))
        .sum::<u128>();
    let frames: usize = trace.iter().map(|entry| entry.list("frames").len()).sum();
    let segments = check_tiles(&snapshot).0;
    let reserved: u64 = segments.iter().map(|(start, end, _)| end - start).sum();
    let expected = format!("{} {addresses} {frames} {reserved}\n", trace.len());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
