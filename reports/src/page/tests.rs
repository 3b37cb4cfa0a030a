//! What is written, without a browser: the data decode to the events, and nothing breaks out of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::columns::{LARGEST, encode};
use super::passes::{entries_of, passes};
use super::pending::pending_until;
use super::reserved::{changes, neighbourhoods};
use super::rows::rows;
use super::write;
use crate::lifetimes::{lifetimes, peak};
use crate::profile::{CallSite, Event, EventKind, Frame, Profile, Segment};

fn html(profile: &Profile) -> String {
    let mut html = Vec::new();
    write(profile, &mut html).unwrap();
    String::from_utf8(html).unwrap()
}

/// The object that the page embeds, as a parser of HTML would find it.
fn embedded(html: &str) -> Value {
    let begin = r#"<script id="recording" type="application/json">"#;
    let (_, data) = html.split_once(begin).unwrap();
    let (data, _) = data.split_once("</script").unwrap();
    serde_json::from_str(data).unwrap()
}

/// Read without regard to how it is written.
fn decode(text: &str) -> Vec<u64> {
    let mut values = Vec::new();
    let (mut value, mut zigzag, mut shift) = (0i64, 0u64, 0);
    for byte in STANDARD.decode(text).unwrap() {
        zigzag |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            let magnitude = (zigzag >> 1) as i64;
            value += if zigzag & 1 == 0 {
                magnitude
            } else {
                -magnitude - 1
            };
            values.push(value as u64);
            (zigzag, shift) = (0, 0);
        }
    }
    values
}

fn column(table: &Value, name: &str) -> Vec<u64> {
    let values = decode(table[name].as_str().unwrap());
    assert_eq!(
        values.len() as u64,
        table["count"].as_u64().unwrap(),
        "{name}"
    );
    values
}

fn event(kind: EventKind, address: u64, bytes: u64) -> Event {
    Event {
        time_ns: 0,
        kind,
        thread: 1,
        stream: 0,
        scope: Some(0),
        call_site: Some(0),
        stack: None,
        address,
        bytes,
        block_bytes: bytes,
    }
}

/// Of these events, a microsecond apart, with one scope and one line.
fn profile(events: impl IntoIterator<Item = Event>) -> Profile {
    let at = |(index, event): (usize, Event)| Event {
        time_ns: index as u64 * 1000,
        ..event
    };
    Profile {
        scopes: vec!["step".into()],
        call_sites: vec![CallSite {
            file: "src/main.rs".into(),
            line: 7,
            column: 9,
        }],
        events: events.into_iter().enumerate().map(at).collect(),
        ..Profile::default()
    }
}

const KINDS: [EventKind; 17] = [
    EventKind::Hit,
    EventKind::Miss,
    EventKind::Uncached,
    EventKind::Free,
    EventKind::FreePending,
    EventKind::CopyOnWrite,
    EventKind::Reserve,
    EventKind::Release,
    EventKind::Enter,
    EventKind::Exit,
    EventKind::Invalidate,
    EventKind::Trim,
    EventKind::Retry,
    EventKind::OutOfMemory,
    EventKind::Wait,
    EventKind::OperationBegin,
    EventKind::OperationEnd,
];

/// Events without sense: few addresses and threads, times that run backwards, numbers beyond the tables.
fn soup(mut seed: u64) -> Profile {
    let mut random = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut number = |below: u64| match random(below + 1) as u32 {
        0 => None,
        number => Some(number - 1),
    };
    let numbers: Vec<[Option<u32>; 3]> = (0..2000)
        .map(|_| [number(4), number(6), number(3)])
        .collect();
    let mut make = |[scope, call_site, stack]: [Option<u32>; 3]| Event {
        time_ns: random(1 << 40),
        kind: KINDS[random(17) as usize],
        thread: random(3) as u32,
        stream: random(3) as u32,
        scope,
        call_site,
        stack,
        address: random(40) * 256,
        bytes: random(1 << 30) << random(20),
        block_bytes: random(1 << 30),
    };
    Profile {
        device: "host".into(),
        scopes: vec!["a".into(), "b".into()],
        stacks: vec![Vec::new()],
        segments: vec![Segment {
            address: 0,
            bytes: 0,
        }],
        events: numbers.into_iter().map(&mut make).collect(),
        ..profile([])
    }
}

#[test]
fn columns_decode() {
    let values = [0, 1, 63, 64, 8191, 8192, 5, LARGEST, 0, LARGEST, 1 << 47, 3];
    assert_eq!(decode(&encode(values)), values);
    assert!(encode([]).is_empty());
    assert_eq!(decode(&encode([u64::MAX, 1])), [LARGEST, 1]);
    for length in 0..9 {
        let values: Vec<u64> = (0..length).collect();
        assert_eq!(decode(&encode(values.clone())), values);
    }
}

#[test]
fn the_embedded_data_are_the_events() {
    for seed in 0..20 {
        let profile = soup(seed);
        let data = embedded(&html(&profile));
        let events = &data["events"];
        let same = |name: &str, expected: &dyn Fn(&Event) -> u64| {
            let expected: Vec<u64> = profile.events.iter().map(expected).collect();
            assert_eq!(column(events, name), expected, "{name}");
        };
        let known = |number: Option<u32>, length: u64| {
            number
                .map(u64::from)
                .filter(|&number| number < length)
                .map_or(0, |number| number + 1)
        };
        same("time", &|event| event.time_ns);
        same("thread", &|event| event.thread.into());
        same("stream", &|event| event.stream.into());
        same("scope", &|event| known(event.scope, 2));
        same("site", &|event| known(event.call_site, 1));
        same("stack", &|event| known(event.stack, 1));
        same("address", &|event| event.address);
        same("bytes", &|event| event.bytes);
        same("block", &|event| event.block_bytes);
        let kinds = column(events, "kind").into_iter().zip(&profile.events);
        for (kind, event) in kinds {
            assert_eq!(data["kinds"][kind as usize], format!("{:?}", event.kind));
        }
        let lifetimes = lifetimes(&profile);
        let died = column(&data["lifetimes"], "died");
        for (lifetime, died) in lifetimes.iter().zip(died) {
            assert_eq!(died, lifetime.freed.map_or(2001, |freed| freed as u64 + 1));
        }
    }
}

#[test]
fn an_empty_profile_is_a_page() {
    let data = embedded(&html(&Profile::default()));
    assert!(column(&data["events"], "time").is_empty());
    assert_eq!(data["peak"]["bytes"], 0);
}

#[test]
fn hostile_names_stay_in_the_data() {
    let names = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"},\\\u{0}\u{1f}\n\u{2028}\u{1f980}",
        "*/ /* scripts */",
    ];
    for name in names {
        let plain = html(&Profile::default());
        let mut profile = profile([event(EventKind::Miss, 16, 8)]);
        profile.device = name.into();
        profile.scopes[0] = name.into();
        profile.call_sites[0].file = name.into();
        profile.stacks = vec![vec![Frame {
            function: name.into(),
            file: name.into(),
            line: 0,
        }]];
        let html = html(&profile);
        assert_eq!(
            html.matches("<script").count(),
            plain.matches("<script").count()
        );
        assert_eq!(
            html.matches("</script").count(),
            plain.matches("</script").count()
        );
        assert_eq!(html.matches("<!--").count(), plain.matches("<!--").count());
        let data = embedded(&html);
        assert_eq!(data["device"], name);
        assert_eq!(data["scopes"][0], name);
        assert_eq!(data["sites"][0][0], name);
        assert_eq!(data["frames"][0][0], name);
        assert_eq!(data["frames"][0][1], name);
    }
}

#[test]
fn nothing_is_loaded() {
    let html = html(&Profile::default());
    for sign in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(sign), "{sign}");
    }
}

#[test]
fn passes_nest_by_thread() {
    use EventKind::{Enter, Exit};
    let inner = |kind| Event {
        scope: None,
        ..event(kind, 0, 0)
    };
    let other = |kind| Event {
        thread: 2,
        ..event(kind, 0, 0)
    };
    let own = |kind| event(kind, 0, 0);
    let events = [
        other(Exit),
        own(Enter),
        inner(Enter),
        own(Enter),
        own(Exit),
        other(Exit),
        own(Exit),
        own(Exit),
        own(Enter),
    ];
    let spans: Vec<(u32, u64, u64, u64, bool)> = (passes(&profile(events)).into_iter())
        .map(|pass| (pass.thread, pass.from, pass.to, pass.depth, pass.is_entry))
        .collect();
    // The Exit of the outermost ends the pass in it that has none.
    let expected = [
        (2, 0, 1, 0, true),
        (1, 2, 7, 0, true),
        (1, 3, 7, 1, true),
        (1, 4, 5, 2, false),
        (1, 9, 10, 0, true),
    ];
    assert_eq!(spans, expected);
}

#[test]
fn rows_count_what_lines_did() {
    let [begin, end] =
        [EventKind::OperationBegin, EventKind::OperationEnd].map(|kind| event(kind, 0, 0));
    let profile = profile([
        event(EventKind::Enter, 0, 0),
        event(EventKind::Miss, 16, 100),
        event(EventKind::CopyOnWrite, 16, 100),
        begin,
        begin,
        end,
        end,
        event(EventKind::Hit, 32, 50),
        event(EventKind::Free, 32, 50),
        event(EventKind::Exit, 0, 0),
        event(EventKind::Hit, 48, 10),
        event(EventKind::Free, 16, 100),
        event(EventKind::Free, 64, 7),
    ]);
    let lifetimes = lifetimes(&profile);
    let (peak, passes) = (peak(&profile, &lifetimes), passes(&profile));
    let entries = entries_of(&profile, &lifetimes, &passes);
    // From before the recording, two of the entry, and one behind it.
    assert_eq!(entries, [None, Some(0), Some(0), None]);
    let rows = rows(&profile, &lifetimes, peak, &passes, &entries);
    assert_eq!(rows.len(), 1);
    let row = &rows[&(Some(0), Some(0))];
    assert_eq!((row.count, row.hits, row.misses), (3, 2, 1));
    assert_eq!((row.escaped, row.copies), (1, 1));
    assert_eq!(
        (row.live_bytes, row.peak_bytes, row.at_peak_bytes),
        (10, 157, 157)
    );
    // Three microseconds, and one within them.
    assert_eq!(row.kernel_ns, 4000);
}

#[test]
fn blocks_are_pending_until_they_serve_or_the_host_waits() {
    use EventKind::{FreePending, Hit, Wait};
    let profile = profile([
        event(Hit, 16, 8),
        event(Hit, 32, 8),
        event(Hit, 48, 8),
        event(FreePending, 16, 8),
        event(FreePending, 32, 8),
        event(Hit, 16, 8),
        event(Wait, 0, 0),
        event(FreePending, 48, 8),
    ]);
    assert_eq!(pending_until(&profile, &lifetimes(&profile)), [6, 7, 9, 0]);
}

#[test]
fn neighbours_are_one_segment() {
    const MIB: u64 = 1 << 20;
    let mut profile = profile([
        event(EventKind::Reserve, 100 * MIB, 2 * MIB),
        event(EventKind::Release, 10 * MIB, 2 * MIB),
        event(EventKind::Reserve, 12 * MIB, 4 * MIB),
        event(EventKind::Reserve, u64::MAX - 5, 100),
        event(EventKind::Reserve, 0, 0),
    ]);
    profile.segments = vec![Segment {
        address: 10 * MIB,
        bytes: 2 * MIB,
    }];
    let changes = changes(&profile);
    let moments: Vec<u64> = changes.iter().map(|change| change.moment).collect();
    assert_eq!(moments, [0, 1, 2, 3, 4]);
    let end = u64::MAX;
    let expected = [(10 * MIB, 16 * MIB), (100 * MIB, 102 * MIB), (end - 5, end)];
    assert_eq!(neighbourhoods(&changes), expected);
}
