//! Profiles of tables: logs of RMM, lifetimes and plans.

use std::io::BufRead;

use cachescope_reports::{CallSite, EventKind, Profile};

use super::builder::{ProfileBuilder, event};
use crate::error::Result;
use crate::trace::csv_table::CsvTable;
use crate::trace::event::TraceEvent;
use crate::trace::lifetimes::Lifetime;
use crate::trace::rmm_log::{self, RmmLog};

/// Of a log of RMM whose header was read.
pub(super) fn of_log(table: CsvTable<impl BufRead>) -> Result<Profile> {
    let [thread, time, _, _, _, stream] = table.columns(rmm_log::COLUMNS)?;
    let mut builder = ProfileBuilder::new("RMM".into());
    let mut log = RmmLog::new(table)?;
    let mut last_ns = 0;
    while let Some(entry) = log.next_entry()? {
        let table = log.table();
        // A row whose time cannot be read comes a microsecond after the one before.
        last_ns = time_of_day_ns(table.text(time)).unwrap_or(last_ns + 1000);
        let kind = match entry.event {
            TraceEvent::Allocate { .. } => EventKind::Allocate,
            TraceEvent::Free { .. } => EventKind::Free,
        };
        let mut event = event(kind, last_ns);
        event.thread = numeral(table.text(thread)) as u32;
        event.stream = numeral(table.text(stream)) as u32;
        event.address = entry.pointer;
        event.bytes = entry.bytes;
        event.block_bytes = entry.bytes;
        builder.push(event);
    }
    Ok(builder.finish())
}

/// `10:21:33.123456` or RMM's `10:21:33:123456`, since midnight.
fn time_of_day_ns(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut part = || parts.next()?.parse::<u32>().ok().map(u64::from);
    let seconds = (part()? * 60 + part()?) * 60 + part()?;
    let fraction = parts.next().unwrap_or("0");
    let fraction_ns = format!("{fraction:0<9}").get(..9)?.parse::<u64>().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// A number that names something, decimal or with `0x`; 0 where it is none.
fn numeral(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or(0)
}

/// Of lifetimes whose header was read, at the offsets of a plan where it has them.
pub(super) fn of_lifetimes(table: CsvTable<impl BufRead>) -> Result<Profile> {
    let (lifetimes, offsets) = Lifetime::read_placed(table)?;
    let offsets = offsets.unwrap_or_else(|| side_by_side(&lifetimes));
    let mut builder = ProfileBuilder::new("plan".into());
    let occupying = lifetimes.iter().zip(&offsets);
    let occupying = occupying.filter(|(lifetime, _)| lifetime.occupies());
    let ends = occupying
        .clone()
        .map(|(lifetime, offset)| offset.saturating_add(lifetime.size_bytes));
    let mut reserve = event(EventKind::Reserve, 0);
    reserve.bytes = ends.max().unwrap_or(0);
    reserve.block_bytes = reserve.bytes;
    let mut events = vec![(0, 0, reserve)];
    for (lifetime, &offset) in occupying {
        let call_site = builder.call_site(CallSite {
            file: lifetime.id.clone(),
            line: 0,
            column: 0,
        });
        // Frees before allocations at equal times.
        for (rank, kind, step) in [
            (2, EventKind::Allocate, lifetime.lower),
            (1, EventKind::Free, lifetime.upper),
        ] {
            let mut event = event(kind, 0);
            event.address = offset;
            event.bytes = lifetime.size_bytes;
            event.block_bytes = lifetime.size_bytes;
            event.call_site = Some(call_site);
            events.push((step, rank, event));
        }
    }
    events.sort_by_key(|(step, rank, _)| (*step, *rank));
    let first_step = events.get(1).map_or(0, |(step, _, _)| *step);
    for (step, _, mut event) in events {
        event.time_ns = step.saturating_sub(first_step).saturating_mul(1000);
        builder.push(event);
    }
    Ok(builder.finish())
}

/// Addresses of their own for all.
fn side_by_side(lifetimes: &[Lifetime]) -> Vec<u64> {
    let ends = lifetimes.iter().scan(0, |end, lifetime| {
        *end += lifetime.size_bytes; // All sizes sum to less than 2^63.
        Some(*end - lifetime.size_bytes)
    });
    ends.collect()
}
