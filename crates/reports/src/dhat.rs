//! Writes a profile for DHAT's viewer, `dh_view.html`: totals, peaks and lifetimes per allocation
//! site.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use crate::json::Quoted;
use crate::lifetimes::{AllocationLifetime, lifetimes, live_at, peak};
use crate::place::Place;
use crate::profile::Profile;
use crate::timeline::{changes, times_ns};

/// The threshold below which the viewer calls a lifetime short.
const SHORT_LIVED_NS: u64 = 10_000;

/// Writes a profile for DHAT's viewer, in version 2 of its format.
///
/// # Errors
///
/// Returns the errors of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, dhat};
///
/// let mut file = Vec::new();
/// dhat::write(&Profile::default(), &mut file)?;
/// assert!(file.starts_with(br#"{"dhatFileVersion":2"#));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let times_ns = times_ns(profile);
    let lifetimes = lifetimes(profile);
    let peak = peak(profile, &lifetimes);
    let mut points = Points::of(profile, &lifetimes, &times_ns);
    for lifetime in live_at(&lifetimes, peak) {
        let own = points.of_lifetime(profile, lifetime);
        own.peak.add(lifetime.bytes);
    }
    let device = Quoted(&profile.device);
    let peak_ns = peak.event.map_or(0, |event| times_ns[event]);
    let end_ns = times_ns[profile.events.len()];
    // The process ID is not recorded, so 0 is written.
    write!(
        out,
        r#"{{"dhatFileVersion":2,"mode":"cachescope","verb":"Allocated","bklt":true,"bkacc":false,"tu":"ns","Mtu":"ms","tuth":{SHORT_LIVED_NS},"cmd":{device},"pid":0,"tg":{peak_ns},"te":{end_ns},"pps":["#
    )?;
    let mut separator = "\n";
    for point in &points.points {
        point.write(&mut out, separator)?;
        separator = ",\n";
    }
    write!(out, "\n],\"ftbl\":[\"[root]\"")?;
    for frame in &points.frames.table {
        write!(out, ",\n{}", Quoted(frame))?;
    }
    writeln!(out, "]}}")?;
    out.flush()
}

/// A tally of blocks: their total size and their number.
#[derive(Clone, Copy, Debug, Default)]
struct HeapBlocks {
    bytes: u64,
    count: u64,
}

impl HeapBlocks {
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count += 1;
    }

    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count -= 1;
    }
}

/// The allocations of one or more places with equal frames.
#[derive(Debug, Default)]
struct Point {
    /// The indices of the frames, from the innermost outwards.
    stack: Vec<usize>,
    total: HeapBlocks,
    /// The sum of the lifetimes in nanoseconds.
    lived_ns: u64,
    live: HeapBlocks,
    /// The live blocks at the time when the point's live bytes had their maximum.
    most: HeapBlocks,
    /// The live blocks at the time when the device's live bytes had their maximum.
    peak: HeapBlocks,
}

impl Point {
    fn allocate(&mut self, bytes: u64) {
        self.total.add(bytes);
        self.live.add(bytes);
        if self.live.bytes > self.most.bytes {
            self.most = self.live;
        }
    }

    fn write(&self, out: &mut impl Write, separator: &str) -> io::Result<()> {
        let Self {
            stack,
            total,
            lived_ns,
            live,
            most,
            peak,
        } = self;
        let (tb, tbk) = (total.bytes, total.count);
        let (mb, mbk) = (most.bytes, most.count);
        let (gb, gbk) = (peak.bytes, peak.count);
        let (eb, ebk) = (live.bytes, live.count);
        write!(
            out,
            r#"{separator}{{"tb":{tb},"tbk":{tbk},"tl":{lived_ns},"mb":{mb},"mbk":{mbk},"gb":{gb},"gbk":{gbk},"eb":{eb},"ebk":{ebk},"fs":{stack:?}}}"#
        )
    }
}

/// All points, ordered by their first allocation.
///
/// Invariant: no two points have equal frames, because the viewer fails on equal frames. If two
/// places differ only in their columns, they have equal frames.
#[derive(Debug, Default)]
struct Points {
    points: Vec<Point>,
    frames: Frames,
    numbers: HashMap<Place, usize>,
    numbers_by_stack: HashMap<Vec<usize>, usize>,
}

impl Points {
    fn of(profile: &Profile, lifetimes: &[AllocationLifetime], times_ns: &[u64]) -> Self {
        let mut points = Self::default();
        for change in changes(lifetimes) {
            let lifetime = &lifetimes[change.lifetime];
            let point = points.of_lifetime(profile, lifetime);
            if change.begins {
                point.allocate(lifetime.bytes);
            } else {
                point.live.remove(lifetime.bytes);
            }
        }
        for lifetime in lifetimes {
            let begin_ns = lifetime.allocated.map_or(0, |event| times_ns[event]);
            let end_ns = times_ns[lifetime.freed.unwrap_or(profile.events.len())];
            let point = points.of_lifetime(profile, lifetime);
            point.lived_ns = point.lived_ns.saturating_add(end_ns - begin_ns);
        }
        points
    }

    fn of_lifetime(&mut self, profile: &Profile, lifetime: &AllocationLifetime) -> &mut Point {
        let place = Place::of(lifetime.event(profile));
        let number = match self.numbers.get(&place) {
            Some(&number) => number,
            None => self.insert(place, profile),
        };
        &mut self.points[number]
    }

    fn insert(&mut self, place: Place, profile: &Profile) -> usize {
        let stack = self.frames.numbers(place.frames(profile));
        let by_stack = self.numbers_by_stack.entry(stack);
        let number = *by_stack.or_insert_with_key(|stack| {
            self.points.push(Point {
                stack: stack.clone(),
                ..Point::default()
            });
            self.points.len() - 1
        });
        self.numbers.insert(place, number);
        number
    }
}

/// The frames of all places, without duplicates. Index 0 is the root.
#[derive(Debug, Default)]
struct Frames {
    table: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Frames {
    fn numbers(&mut self, frames: Vec<String>) -> Vec<usize> {
        let number = |frame: String| {
            *self.numbers.entry(frame).or_insert_with_key(|frame| {
                self.table.push(frame.clone());
                self.table.len()
            })
        };
        frames.into_iter().map(number).collect()
    }
}
