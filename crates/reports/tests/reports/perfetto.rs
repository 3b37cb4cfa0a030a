//! Tests of traces for Perfetto.

use std::collections::HashMap;

use cachescope_reports::{Event, EventKind, Profile, lifetimes, peak, perfetto};
use serde_json::Value;

use crate::bad_input::{json, text};
use crate::toy::{record, tables};

fn events(trace: &Value) -> &Vec<Value> {
    trace["traceEvents"].as_array().expect("events")
}

fn of_phase<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    let has_phase = |event: &&Value| event["ph"] == phase;
    events(trace).iter().filter(has_phase).collect()
}

/// Returns the category and the id that identify an asynchronous slice.
fn identity(event: &Value) -> (&str, &str) {
    let text = |key: &str| event[key].as_str().expect("a text");
    (text("cat"), text("id"))
}

/// Checks that the slices of each thread nest in time order. Checks that each asynchronous slice
/// begins once and ends once.
pub(crate) fn check_trace(trace: &Value) {
    let mut open: HashMap<u64, Vec<&Value>> = HashMap::new();
    let mut latest: HashMap<u64, f64> = HashMap::new();
    let mut lifetimes: HashMap<(&str, &str), f64> = HashMap::new();
    for event in events(trace) {
        let time = event["ts"].as_f64().unwrap_or(0.0);
        let thread = event["tid"].as_u64().unwrap_or(0);
        match event["ph"].as_str().expect("a phase") {
            "B" => {
                assert!(time >= *latest.entry(thread).or_default());
                latest.insert(thread, time);
                open.entry(thread).or_default().push(&event["name"]);
            }
            "E" => {
                assert!(time >= *latest.entry(thread).or_default());
                latest.insert(thread, time);
                let begun = open.entry(thread).or_default().pop();
                assert_eq!(begun, Some(&event["name"]), "{event}");
            }
            "b" => {
                let former = lifetimes.insert(identity(event), time);
                assert_eq!(former, None, "{event}");
            }
            "e" => {
                let begun = lifetimes.remove(&identity(event));
                assert!(begun.expect("it began") <= time, "{event}");
            }
            phase => assert!(["M", "C", "i"].contains(&phase), "{event}"),
        }
    }
    assert!(lifetimes.is_empty() && open.values().all(Vec::is_empty));
}

fn scope_event(kind: EventKind, scope: u32, time_ns: u64) -> Event {
    Event {
        scope: Some(scope),
        call_site: Some(0),
        ..Event::new(kind, time_ns)
    }
}

/// Returns the phase, the name and the time of each slice of a thread.
fn slices(events: Vec<Event>) -> Vec<(String, String, f64)> {
    let profile = Profile {
        events,
        duration_ns: 9_500,
        ..tables("cuda:0")
    };
    let trace = json(&text(perfetto::write, &profile));
    check_trace(&trace);
    let slices = events_of_slices(&trace);
    let of = |event: &&Value| {
        let text = |key: &str| event[key].as_str().expect("a text").to_owned();
        (
            text("ph"),
            text("name"),
            event["ts"].as_f64().expect("a time"),
        )
    };
    slices.iter().map(of).collect()
}

fn events_of_slices(trace: &Value) -> Vec<&Value> {
    let is_slice = |event: &&Value| event["ph"] == "B" || event["ph"] == "E";
    events(trace).iter().filter(is_slice).collect()
}

fn slice(phase: &str, name: &str, time: f64) -> (String, String, f64) {
    (phase.to_owned(), name.to_owned(), time)
}

#[test]
fn scopes_and_operations_nest() {
    let hash = "# hash";
    let written = slices(vec![
        scope_event(EventKind::Enter, 0, 1_001),
        scope_event(EventKind::OperationBegin, 0, 2_000),
        scope_event(EventKind::Enter, 2, 2_500),
        scope_event(EventKind::Exit, 2, 3_000),
        scope_event(EventKind::OperationEnd, 0, 3_500),
        scope_event(EventKind::Exit, 0, 4_000),
    ]);
    assert_eq!(
        written,
        [
            slice("B", "loop", 1.001),
            slice("B", "src/main.rs:1", 2.0),
            slice("B", hash, 2.5),
            slice("E", hash, 3.0),
            slice("E", "src/main.rs:1", 3.5),
            slice("E", "loop", 4.0),
        ]
    );
}

#[test]
fn kernels_of_a_stream_may_overlap() {
    let kernel = |stream, time_ns, bytes| Event {
        stream,
        bytes,
        ..scope_event(EventKind::Kernel, 0, time_ns)
    };
    let profile = Profile {
        events: vec![
            kernel(3, 1_000, 2_500),
            kernel(5, 1_500, 10),
            kernel(3, 3_000, 1_000),
        ],
        ..tables("cuda:0")
    };
    let trace = json(&text(perfetto::write, &profile));
    check_trace(&trace);
    let times = |phase| {
        let kernels = of_phase(&trace, phase)
            .into_iter()
            .filter(|event| event["cat"] == "kernel");
        kernels
            .map(|event| event["ts"].as_f64().expect("a time"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (times("b"), times("e")),
        (vec![1.0, 1.5, 3.0], vec![3.5, 1.51, 4.0])
    );
    let names = of_phase(&trace, "b")
        .into_iter()
        .map(|event| event["name"].as_str().expect("a text"));
    assert!(
        names
            .map(|name| &name[..8])
            .eq(["stream 3", "stream 5", "stream 3"])
    );
}

#[test]
fn an_exit_without_its_enter_began_before() {
    let written = slices(vec![
        scope_event(EventKind::Enter, 0, 1_000),
        scope_event(EventKind::Exit, 0, 2_000),
        scope_event(EventKind::Exit, 1, 3_000),
        scope_event(EventKind::OperationEnd, 0, 4_000),
    ]);
    let outer = "a \"quoted\\\" näme; with all\n";
    assert_eq!(
        written,
        [
            slice("B", "<unknown>", 0.0),
            slice("B", outer, 0.0),
            slice("B", "loop", 1.0),
            slice("E", "loop", 2.0),
            slice("E", outer, 3.0),
            slice("E", "<unknown>", 4.0),
        ]
    );
}

#[test]
fn an_enter_without_its_exit_ends_with_what_is_around_it() {
    let written = slices(vec![
        scope_event(EventKind::Enter, 0, 1_000),
        scope_event(EventKind::Enter, 2, 2_000),
        scope_event(EventKind::Exit, 0, 3_000),
        scope_event(EventKind::Enter, 0, 4_000),
        // This is an Exit of a scope that is not open, while another scope is open.
        scope_event(EventKind::Exit, 2, 5_000),
    ]);
    assert_eq!(
        written[2..],
        [
            slice("E", "# hash", 3.0),
            slice("E", "loop", 3.0),
            slice("B", "loop", 4.0),
            slice("E", "loop", 9.5),
        ]
    );
}

#[test]
fn counters_have_live_and_reserved_bytes() {
    for seed in 0..10 {
        let recorded = record(seed, 60, 400);
        let profile = recorded.profile;
        let trace = json(&text(perfetto::write, &profile));
        check_trace(&trace);
        let mut live: HashMap<&str, u64> = HashMap::new();
        let mut reserved = 0;
        let mut most = 0;
        for event in of_phase(&trace, "C") {
            let series = event["args"].as_object().expect("series");
            let series = series
                .iter()
                .map(|(name, own)| (&**name, own.as_u64().expect("bytes")));
            if event["name"] == "live bytes" {
                live.extend(series);
                most = most.max(live.values().sum());
            } else {
                reserved = series.map(|own| own.1).sum();
            }
        }
        let lifetimes = lifetimes(&profile);
        assert_eq!(most, peak(&profile, &lifetimes).bytes);
        let known = recorded.live.iter().filter(|block| block.is_known);
        let at_end: u64 = known.map(|block| block.bytes).sum();
        assert_eq!(live.values().sum::<u64>(), at_end);
        let change = |sum: i64, event: &Event| match event.kind {
            EventKind::Reserve => sum + event.bytes as i64,
            EventKind::Release => sum - event.bytes as i64,
            _ => sum,
        };
        let at_first: u64 = profile.segments.iter().map(|own| own.bytes).sum();
        assert_eq!(
            reserved as i64,
            profile.events.iter().fold(at_first as i64, change)
        );
        assert_eq!(of_phase(&trace, "b").len(), lifetimes.len());
    }
}

#[test]
fn lifetimes_and_instants_name_their_subject() {
    let allocated = Event {
        address: 4096,
        bytes: 700,
        ..scope_event(EventKind::Hit, 0, 1_500)
    };
    let retry = Event {
        bytes: 33,
        ..scope_event(EventKind::Retry, 0, 1_700)
    };
    let profile = Profile {
        events: vec![allocated, retry, Event::new(EventKind::Wait, 1_800)],
        duration_ns: 2_000,
        ..tables("cuda:0")
    };
    let trace = json(&text(perfetto::write, &profile));
    let begin = of_phase(&trace, "b")[0];
    assert_eq!(begin["name"], "src/main.rs:1");
    assert_eq!(begin["tid"], 1, "thread 0 would be the one that idles");
    assert_eq!(begin["args"], json(r#"{"bytes":700,"scope":"loop"}"#));
    assert_eq!(
        (&begin["ts"], &of_phase(&trace, "e")[0]["ts"]),
        (&json("1.500"), &json("2.000"))
    );
    let instants = of_phase(&trace, "i");
    assert_eq!(instants.len(), 1);
    assert_eq!(
        (&instants[0]["name"], &instants[0]["args"]["bytes"]),
        (&json("\"retry\""), &json("33"))
    );
    assert_eq!(trace["otherData"]["device"], "cuda:0");
}
