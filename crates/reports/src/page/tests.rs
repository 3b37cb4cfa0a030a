//! Tests of the data that the page derives from events.

use super::entries::entries;
use super::pending::pending_until;
use super::reserved::{changes, neighbourhoods};
use crate::lifetimes::lifetimes;
use crate::nesting::Nesting;
use crate::profile::{CallSite, Event, EventKind, Profile, Segment};

fn event(kind: EventKind, address: u64, bytes: u64) -> Event {
    Event {
        thread: 1,
        scope: Some(0),
        call_site: Some(0),
        address,
        bytes,
        block_bytes: bytes,
        ..Event::new(kind, 0)
    }
}

/// Returns a profile of the given events, one microsecond apart, with one scope and one line.
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
fn entries_nest_by_thread() {
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
    let profile = profile(events);
    let nesting = Nesting::of(&profile);
    let (entries, _) = entries(&profile, &nesting);
    let spans: Vec<(u32, u64, u64, u64, bool)> = (entries.into_iter())
        .map(|own| (own.thread, own.from, own.to, own.depth, own.is_outermost))
        .collect();
    // An Exit without an Enter ends an entry that began before the recording. Among these entries,
    // the entry with the latest Exit is the outermost. An Exit also ends open inner entries.
    let expected = [
        (1, 0, 8, 0, true),
        (2, 0, 6, 0, true),
        (2, 0, 1, 1, false),
        (1, 2, 7, 1, false),
        (1, 3, 7, 2, true),
        (1, 4, 5, 3, false),
        (1, 9, 10, 0, true),
    ];
    assert_eq!(spans, expected);
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
fn blocks_are_pending_until_the_recorded_event() {
    use EventKind::{FreeCompleted, FreePending, Hit, Wait};
    let profile = profile([
        event(Hit, 16, 8),
        event(Hit, 32, 8),
        event(FreePending, 16, 8),
        event(FreePending, 32, 8),
        event(FreeCompleted, 32, 8),
        event(FreeCompleted, 64, 8),
        event(Wait, 0, 0),
    ]);
    assert_eq!(pending_until(&profile, &lifetimes(&profile)), [7, 5]);
}

#[test]
fn the_end_of_an_arena_is_that_of_all_that_is_pending_there() {
    use EventKind::{FreeCompleted, FreePending, Hit};
    let profile = profile([
        event(Hit, 16, 8),
        event(Hit, 32, 8),
        event(Hit, 48, 8),
        event(FreePending, 16, 8),
        event(FreePending, 32, 8),
        event(FreePending, 48, 8),
        event(FreeCompleted, 16, 32),
    ]);
    assert_eq!(pending_until(&profile, &lifetimes(&profile)), [7, 7, 8]);
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
