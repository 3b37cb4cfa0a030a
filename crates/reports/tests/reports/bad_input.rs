//! Tests with lost or impossible events: each report is written, and can be parsed.

use std::collections::HashSet;

use cachescope_reports::{
    Event, EventKind, Profile, Segment, by_call_site, dhat, flame, folded, growth, page, perfetto,
    snapshot, table,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::perfetto::check_trace;
use crate::toy::{record, tables};
use crate::unpickle::unpickle;
use crate::viewer::{check_tiles, walk_back};

pub(crate) type Report = fn(&Profile, &mut dyn std::io::Write) -> std::io::Result<()>;

pub(crate) fn bytes(write: Report, profile: &Profile) -> Vec<u8> {
    let mut file = Vec::new();
    write(profile, &mut file).expect("a vector takes all");
    file
}

pub(crate) fn text(write: Report, profile: &Profile) -> String {
    String::from_utf8(bytes(write, profile)).expect("UTF-8")
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Writes all reports, and checks the properties that hold for any events.
fn check_all(profile: &Profile) {
    let snapshot = unpickle(&bytes(snapshot::write, profile));
    check_tiles(&snapshot);
    let device = snapshot.list("device_traces").len() - 1;
    if profile.events.iter().all(|event| event.stream == 0) {
        walk_back(&snapshot, device);
    }
    check_trace(&json(&text(perfetto::write, profile)));
    check_dhat(&json(&text(dhat::write, profile)));
    let stacks = text(folded::write, profile);
    for line in stacks.lines() {
        let (stack, bytes) = line.rsplit_once(' ').expect("a count");
        assert!(
            !stack.starts_with('#') && bytes.parse::<u64>().is_ok(),
            "{line}"
        );
    }
    assert!(text(flame::write, profile).trim_end().ends_with("</svg>"));
    assert!(text(table::write, profile).lines().count() > by_call_site(profile).len());
    assert!(text(page::write, profile).ends_with("</html>\n"));
    growth(profile);
}

fn check_dhat(profile: &Value) {
    let mut stacks = HashSet::new();
    let frames = profile["ftbl"].as_array().expect("frames").len() as u64;
    for point in profile["pps"].as_array().expect("points") {
        let number = |key: &str| point[key].as_u64().expect(key);
        for (less, more) in [("mb", "tb"), ("gb", "mb"), ("eb", "mb")] {
            assert!(number(less) <= number(more), "{less}, {more} of {point}");
            assert!(number(&format!("{less}k")) <= number("tbk"), "{point}");
        }
        assert!(
            stacks.insert(point["fs"].to_string()),
            "the viewer wants each once"
        );
        let stack = point["fs"].as_array().expect("a stack").iter();
        assert!(
            stack
                .map(|frame| frame.as_u64().expect("a number"))
                .all(|frame| (1..frames).contains(&frame))
        );
    }
}

fn allocation(address: u64) -> Event {
    Event {
        address,
        bytes: 1000,
        block_bytes: 1024,
        scope: Some(1),
        call_site: Some(2),
        ..Event::new(EventKind::Miss, 10)
    }
}

fn free(address: u64) -> Event {
    Event {
        kind: EventKind::Free,
        time_ns: 20,
        ..allocation(address)
    }
}

fn of_events(events: Vec<Event>) -> Profile {
    Profile {
        events,
        duration_ns: 100,
        ..tables("cuda:0")
    }
}

#[test]
fn empty_profiles() {
    check_all(&Profile::default());
    check_all(&of_events(Vec::new()));
}

#[test]
fn frees_without_allocations() {
    let profile = of_events(vec![free(4096), free(8192), free(4096)]);
    check_all(&profile);
    let sites = by_call_site(&profile);
    assert_eq!(sites.len(), 1);
    assert_eq!(
        (
            sites[0].peak_bytes,
            sites[0].live_bytes,
            sites[0].allocations
        ),
        (3000, 0, 0)
    );
}

#[test]
fn allocations_whose_frees_were_lost() {
    let profile = of_events(vec![allocation(4096), allocation(4096)]);
    check_all(&profile);
    let sites = by_call_site(&profile);
    assert_eq!(
        (
            sites[0].peak_bytes,
            sites[0].live_bytes,
            sites[0].allocations
        ),
        (1000, 1000, 2)
    );
}

#[test]
fn overlapping_addresses() {
    check_all(&of_events(vec![
        allocation(4096),
        allocation(4100),
        free(4096),
        allocation(4000),
    ]));
    let segment = |address, bytes| Segment { address, bytes };
    check_all(&Profile {
        segments: vec![
            segment(0, 5000),
            segment(4000, 200),
            segment(4096, 0),
            segment(u64::MAX, 9),
        ],
        ..of_events(vec![allocation(4096), allocation(u64::MAX / 2), free(4500)])
    });
}

#[test]
fn times_that_run_backwards() {
    let late = Event {
        time_ns: 1_000,
        ..allocation(4096)
    };
    let profile = of_events(vec![late, free(4096), allocation(4096)]);
    check_all(&profile);
    let points = json(&text(dhat::write, &profile));
    assert_eq!(points["pps"][0]["tl"], 0);
    assert_eq!(points["te"], 1_000);
}

#[test]
fn recordings_cut_anywhere() {
    for seed in 0..40 {
        let mut profile = record(seed, 0, 250).profile;
        check_all(&profile);
        let kept = profile.events.split_off(100 + seed as usize);
        profile.events = kept;
        check_all(&profile);
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let who = (
        0u32..3,
        0u32..3,
        prop::option::of(0u32..3),
        prop::option::of(0u32..9),
    );
    let what = (
        0..EventKind::ALL.len(),
        0u64..1 << 20,
        prop::option::weighted(0.2, 0u32..40),
    );
    // Addresses are few, so that several events share an address.
    let memory = (0u64..24, 0u64..4, 0u64..6);
    (who, what, memory).prop_map(
        |(who, (kind, time_ns, stack), (address, bytes, block_bytes))| {
            let (thread, stream, scope, call_site) = who;
            Event {
                time_ns,
                kind: EventKind::ALL[kind],
                thread,
                stream,
                scope,
                call_site,
                stack,
                address: address * 100,
                bytes: bytes * 90,
                block_bytes: block_bytes * 100,
            }
        },
    )
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let segment = (0u64..30, 0u64..9).prop_map(|(address, bytes)| Segment {
        address: address * 90,
        bytes: bytes * 70,
    });
    let segments = prop::collection::vec(segment, 0..4);
    let events = prop::collection::vec(any_event(), 0..120);
    (segments, events, 0u64..1 << 20).prop_map(|(segments, events, duration_ns)| Profile {
        segments,
        events,
        duration_ns,
        ..tables("cuda:0")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_events(mut profile in any_profile()) {
        check_all(&profile);
        // The viewer may fail to walk back over ranges of several streams.
        profile.events.iter_mut().for_each(|event| event.stream = 0);
        check_all(&profile);
    }
}
