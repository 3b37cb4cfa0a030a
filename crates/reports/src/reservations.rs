//! A log of reservations in the format of RMM's `logging_resource_adaptor`, which
//! `cachescope replay` reads.
//!
//! Memory that was reserved in one step may be released in several. So a reservation has a row for
//! each part that a release ends or begins with, and every row that frees matches one that
//! allocates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufWriter, Write};

use crate::profile::{Event, EventKind, Profile};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Writes a row for each reservation, each release and each request that failed.
///
/// # Errors
///
/// Those of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Event, EventKind, Profile, reservations};
///
/// let reserve = Event { address: 0x200, bytes: 512, ..Event::new(EventKind::Reserve, 1_500) };
/// let profile = Profile { events: vec![reserve], ..Profile::default() };
/// let mut file = Vec::new();
/// reservations::write(&profile, &mut file)?;
/// let rows = "Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.000001,allocate,0x200,512,0x0\n";
/// assert_eq!(file, rows.as_bytes());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "{HEADER}")?;
    let began = profile.segments.iter().map(|segment| Event {
        address: segment.address,
        bytes: segment.bytes,
        ..Event::new(EventKind::Reserve, 0)
    });
    let cuts = cuts_of(profile);
    let mut live = BTreeMap::new();
    for event in began.chain(profile.events.iter().copied()) {
        let time = TimeOfDay::of(profile.began_unix_ns.saturating_add(event.time_ns));
        let mut row = |action: &str, address: u64, bytes: u64| {
            let Event { thread, stream, .. } = event;
            writeln!(
                out,
                "{thread},{time},{action},{address:#x},{bytes},{stream:#x}"
            )
        };
        match event.kind {
            EventKind::Reserve => {
                for (address, bytes) in parts(&event, &cuts) {
                    live.insert(address, bytes);
                    row("allocate", address, bytes)?;
                }
            }
            EventKind::Release => {
                let freed: Vec<_> = live
                    .range(event.address..end_of(&event))
                    .map(|(&address, &bytes)| (address, bytes))
                    .collect();
                for (address, bytes) in freed {
                    live.remove(&address);
                    row("free", address, bytes)?;
                }
            }
            EventKind::OutOfMemory => row("allocate failure", 0, event.bytes)?,
            _ => {}
        }
    }
    out.flush()
}

fn end_of(event: &Event) -> u64 {
    event.address.saturating_add(event.bytes)
}

/// Returns the addresses at which releases begin and end.
fn cuts_of(profile: &Profile) -> BTreeSet<u64> {
    let releases = profile.events.iter();
    releases
        .filter(|event| event.kind == EventKind::Release)
        .flat_map(|event| [event.address, end_of(event)])
        .collect()
}

/// Returns the parts of a reservation, address and bytes: it is divided at the cuts inside it.
fn parts<'a>(event: &Event, cuts: &'a BTreeSet<u64>) -> impl Iterator<Item = (u64, u64)> + use<'a> {
    let (start, end) = (event.address, end_of(event));
    let inside = cuts
        .range(start..end)
        .copied()
        .filter(move |&cut| cut > start);
    let mut begin = start;
    inside.chain((start < end).then_some(end)).map(move |cut| {
        let part = (begin, cut - begin);
        begin = cut;
        part
    })
}

/// The time since midnight, UTC, in microseconds.
#[derive(Clone, Copy)]
struct TimeOfDay(u64);

impl TimeOfDay {
    fn of(unix_ns: u64) -> Self {
        const DAY_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
        Self(unix_ns / 1000 % DAY_MICROS)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Segment;

    #[test]
    fn times_are_those_of_a_day() {
        let text = |micros: u64| TimeOfDay::of(micros * 1000).to_string();
        assert_eq!(text(0), "00:00:00.000000");
        assert_eq!(text(86_399_999_999), "23:59:59.999999");
        assert_eq!(text(86_400_000_000 + 3_661_000_042), "01:01:01.000042");
    }

    fn event(kind: EventKind, address: u64, bytes: u64, stream: u32) -> Event {
        Event {
            address,
            bytes,
            stream,
            ..Event::new(kind, 0)
        }
    }

    fn rows(profile: &Profile) -> Vec<String> {
        let mut file = Vec::new();
        write(profile, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        let rows = text.lines().skip(1);
        // The first two columns are thread and time.
        rows.map(|line| line.splitn(3, ',').nth(2).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_row_that_frees_matches_one_that_allocates() {
        let profile = Profile {
            segments: vec![Segment {
                address: 0x1000,
                bytes: 0x200,
            }],
            events: vec![
                event(EventKind::Reserve, 0x4000, 0x4000, 0),
                event(EventKind::OutOfMemory, 0, 9000, 1),
                event(EventKind::Release, 0x6000, 0x1000, 17),
                event(EventKind::Reserve, 0x6000, 0x1000, 0),
                event(EventKind::Release, 0x4000, 0x4000, 0),
                event(EventKind::Release, 0x1000, 0x200, 2),
            ],
            ..Profile::default()
        };
        let expected = [
            "allocate,0x1000,512,0x0",
            "allocate,0x4000,8192,0x0",
            "allocate,0x6000,4096,0x0",
            "allocate,0x7000,4096,0x0",
            "allocate failure,0x0,9000,0x1",
            "free,0x6000,4096,0x11",
            "allocate,0x6000,4096,0x0",
            "free,0x4000,8192,0x0",
            "free,0x6000,4096,0x0",
            "free,0x7000,4096,0x0",
            "free,0x1000,512,0x2",
        ];
        assert_eq!(rows(&profile), expected);
    }

    #[test]
    fn memory_of_any_address_and_length_is_written() {
        let events = vec![
            event(EventKind::Reserve, u64::MAX - 1, u64::MAX, 0),
            event(EventKind::Reserve, 7, 0, 0),
            event(EventKind::Release, 0, u64::MAX, 0),
            event(EventKind::Release, u64::MAX, 3, 0),
        ];
        let rows = rows(&Profile {
            events,
            ..Profile::default()
        });
        assert_eq!(rows.len(), 2, "{rows:?}");
    }
}
