//! What the page is told of a recording beyond its events.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::columns::{LARGEST, encode};
use super::passes::{entries_of, passes};
use super::pending::pending_until;
use super::reserved::{changes, neighbourhoods};
use super::rows::rows;
use crate::lifetimes::{lifetimes, peak};
use crate::profile::{CallSite, Event, EventKind, Profile, Segment};

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
