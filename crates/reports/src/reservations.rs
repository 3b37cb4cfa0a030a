//! A log of reservations in the format of RMM's `logging_resource_adaptor`. `cachescope replay`
//! reads this format.
//!
//! One reservation may be released in several steps. So addresses are divided wherever a
//! reservation or a release begins or ends. Each part has its own rows. So each row of a free
//! matches a row of an allocation.

use std::fmt;
use std::io::{self, BufWriter, Write};

use crate::profile::{Event, EventKind, Profile};
use crate::snapshot::reserved::{AddressSpan, Reserved};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Writes a row for each part of a reservation or a release, and for each failed request.
///
/// # Errors
///
/// Returns the errors of `out`.
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
    let events = || began.clone().chain(profile.events.iter().copied());
    let cuts = cuts(events());
    let mut reserved = Reserved::default();
    for event in events() {
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
                for gap in reserved.fill(span(&event), 0) {
                    for part in parts(gap, &cuts) {
                        row("allocate", part.start, part.bytes())?;
                    }
                }
            }
            EventKind::Release => {
                for range in reserved.remove(span(&event)) {
                    for part in parts(range.span, &cuts) {
                        row("free", part.start, part.bytes())?;
                    }
                }
            }
            EventKind::OutOfMemory => row("allocate failure", 0, event.bytes)?,
            _ => {}
        }
    }
    out.flush()
}

fn span(event: &Event) -> AddressSpan {
    AddressSpan::new(event.address, event.bytes)
}

/// Returns the sorted addresses at which reservations and releases begin or end.
fn cuts(events: impl Iterator<Item = Event>) -> Vec<u64> {
    let mut cuts: Vec<u64> = events
        .filter(|event| matches!(event.kind, EventKind::Reserve | EventKind::Release))
        .map(|event| span(&event))
        .flat_map(|span| [span.start, span.end])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Divides a span at the cuts. The span must begin and end at cuts.
fn parts(span: AddressSpan, cuts: &[u64]) -> impl Iterator<Item = AddressSpan> {
    let first = cuts.partition_point(|&cut| cut < span.start);
    let inside = cuts[first..].windows(2).map(|pair| AddressSpan {
        start: pair[0],
        end: pair[1],
    });
    inside.take_while(move |part| part.end <= span.end)
}

/// The time of day (UTC) in microseconds.
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
        // Skips the first two columns, which are the thread and the time.
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
            event(EventKind::Reserve, (1 << 62) - 1, u64::MAX, 0),
            event(EventKind::Release, 0, u64::MAX, 0),
            event(EventKind::Release, u64::MAX, 3, 0),
        ];
        let expected = ["allocate", "free"]
            .map(|action| format!("{action},0x3fffffffffffffff,{},0x0", 1_u64 << 62));
        assert_eq!(
            rows(&Profile {
                events,
                ..Profile::default()
            }),
            expected
        );
    }

    /// Memory that is reserved twice has one row, and is freed once.
    #[test]
    fn memory_that_is_held_has_one_row() {
        let events = vec![
            event(EventKind::Reserve, 0x1000, 0x1000, 0),
            event(EventKind::Reserve, 0x1800, 0x1000, 0),
            event(EventKind::Release, 0x1000, 0x1800, 0),
            event(EventKind::Release, 0x1000, 0x1800, 0),
        ];
        let expected = [
            "allocate,0x1000,2048,0x0",
            "allocate,0x1800,2048,0x0",
            "allocate,0x2000,2048,0x0",
            "free,0x1000,2048,0x0",
            "free,0x1800,2048,0x0",
            "free,0x2000,2048,0x0",
        ];
        assert_eq!(
            rows(&Profile {
                events,
                ..Profile::default()
            }),
            expected
        );
    }
}
