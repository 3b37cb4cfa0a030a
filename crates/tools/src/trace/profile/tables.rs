//! Profiles of tables: logs of RMM, lifetimes and plans.

use std::io::BufRead;

use cachescope_reports::{CallSite, EventKind, Profile};

use super::builder::{ProfileBuilder, event_of};
use crate::error::Result;
use crate::trace::csv_table::CsvTable;
use crate::trace::event::TraceEvent;
use crate::trace::lifetimes::{Honoured, Lifetime};
use crate::trace::rmm_log::{self, RmmLog};

/// Returns the profile of an RMM log whose header was already read.
pub(super) fn of_log(table: CsvTable<impl BufRead>) -> Result<Profile> {
    let [thread, time, _, _, _, stream] = table.columns(rmm_log::COLUMNS)?;
    let mut builder = ProfileBuilder::new("RMM".into());
    let mut log = RmmLog::new(table)?;
    let mut last_ns = 0;
    while let Some(entry) = log.next_entry()? {
        let table = &log.table;
        // If the time of a row does not parse, the row is one microsecond after its predecessor.
        last_ns = time_of_day_ns(table.text(time)).unwrap_or(last_ns + 1000);
        let kind = match entry.event {
            TraceEvent::Allocate { .. } => EventKind::Allocate,
            TraceEvent::Free { .. } => EventKind::Free,
        };
        let mut event = event_of(kind, last_ns, entry.pointer, entry.bytes);
        event.thread = numeral(table.text(thread)) as u32;
        event.stream = numeral(table.text(stream)) as u32;
        builder.push(event);
    }
    Ok(builder.finish())
}

/// Parses `10:21:33.123456`, or RMM's `10:21:33:123456`. Returns nanoseconds since midnight.
fn time_of_day_ns(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut part = || parts.next()?.parse::<u32>().ok().map(u64::from);
    let seconds = (part()? * 60 + part()?) * 60 + part()?;
    let fraction = parts.next().unwrap_or("0");
    let fraction_ns = format!("{fraction:0<9}").get(..9)?.parse::<u64>().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// Parses the decimal or hexadecimal (`0x`) identifier of a thread or stream. Returns 0 if it does
/// not parse.
fn numeral(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or(0)
}

/// Returns the profile of lifetimes whose header was already read. If the table is a plan, its
/// offsets are used.
pub(super) fn of_lifetimes(table: CsvTable<impl BufRead>) -> Result<Profile> {
    let (lifetimes, _, offsets) = Lifetime::read_rows(table, Honoured::Alignments)?;
    let offsets = offsets.unwrap_or_else(|| side_by_side(&lifetimes));
    let mut builder = ProfileBuilder::new("plan".into());
    let occupying = lifetimes.into_iter().zip(offsets);
    let mut placed: Vec<Placed> = occupying
        .filter(|(lifetime, _)| lifetime.occupies())
        .map(|(lifetime, offset)| Placed {
            offset,
            lower: lifetime.lower,
            upper: lifetime.upper,
            bytes: lifetime.size_bytes,
            call_site: builder.call_site(CallSite {
                file: lifetime.id,
                line: 0,
                column: 0,
            }),
        })
        .collect();
    placed.shrink_to_fit();
    let ends = placed
        .iter()
        .map(|own| own.offset.saturating_add(own.bytes));
    let end = ends.max().unwrap_or(0);
    builder.push(event_of(EventKind::Reserve, 0, 0, end));
    // At one step, frees precede allocations. Frees and allocations each keep the order of the
    // table.
    let mut order: Vec<(u64, bool, usize)> = (placed.iter().enumerate())
        .flat_map(|(number, own)| [(own.upper, false, number), (own.lower, true, number)])
        .collect();
    order.sort_unstable();
    let first_step = order.first().map_or(0, |(step, _, _)| *step);
    builder.profile.events.reserve_exact(order.len());
    for (step, allocates, number) in order {
        let own = &placed[number];
        let kind = if allocates {
            EventKind::Allocate
        } else {
            EventKind::Free
        };
        let time_ns = (step - first_step).saturating_mul(1000);
        let mut event = event_of(kind, time_ns, own.offset, own.bytes);
        event.call_site = Some(own.call_site);
        builder.push(event);
    }
    Ok(builder.finish())
}

/// A buffer that occupies memory, with its offset.
struct Placed {
    offset: u64,
    lower: u64,
    upper: u64,
    bytes: u64,
    call_site: u32,
}

/// Returns offsets that place the buffers side by side.
fn side_by_side(lifetimes: &[Lifetime]) -> Vec<u64> {
    let ends = lifetimes.iter().scan(0, |end, lifetime| {
        *end += lifetime.size_bytes; // The sizes sum to less than 2^63.
        Some(*end - lifetime.size_bytes)
    });
    ends.collect()
}
