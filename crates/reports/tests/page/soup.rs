//! Random, contradictory events.

use cachescope_reports::{CallSite, Event, EventKind, Profile, Segment};

/// Returns random events with few addresses and threads. Times run backwards, and indices exceed
/// their tables.
pub(crate) fn soup(mut seed: u64) -> Profile {
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
        kind: EventKind::ALL[random(EventKind::ALL.len() as u64) as usize],
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
        call_sites: vec![CallSite {
            file: "src/main.rs".into(),
            line: 7,
            column: 9,
        }],
        ..Profile::default()
    }
}
