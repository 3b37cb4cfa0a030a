//! The data of the page: one JSON object. Nothing else of a profile is written to it, so this is where a hostile name
//! must be made harmless.

use std::collections::{BTreeMap, HashMap};
use std::io::{Result, Write};

use super::columns::encode;
use super::passes::{Pass, entries_of, passes};
use super::pending::pending_until;
use super::reserved::{Change, changes, neighbourhoods};
use super::rows::{Key, Row, rows};
use crate::lifetimes::{Lifetime, lifetimes, peak};
use crate::profile::{Event, EventKind, Frame, Profile};

pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let lifetimes = lifetimes(profile);
    let peak = peak(profile, &lifetimes);
    let passes = passes(profile);
    let entries = entries_of(profile, &lifetimes, &passes);
    write!(out, "{{\"device\":{}", string(&profile.device))?;
    let began_unix_ms = profile.began_unix_ns / 1_000_000;
    write!(out, ",\n\"beganUnixMs\":{began_unix_ms}")?;
    write!(out, ",\n\"durationNs\":{}", profile.duration_ns)?;
    write!(out, ",\n\"lostEvents\":{}", profile.lost_events)?;
    let (peak_bytes, peak_moment) = (peak.bytes, moment(peak.event));
    write!(
        out,
        ",\n\"peak\":{{\"bytes\":{peak_bytes},\"moment\":{peak_moment}}}"
    )?;
    let names = profile.scopes.iter().map(|name| string(name));
    write!(out, ",\n\"scopes\":{}", list(names))?;
    write_places(profile, out)?;
    write_reserved(&changes(profile), out)?;
    write_events(profile, out)?;
    write_lifetimes(profile, &lifetimes, &entries, out)?;
    write_passes(profile, &passes, out)?;
    write_rows(
        profile,
        &rows(profile, &lifetimes, peak, &passes, &entries),
        out,
    )?;
    out.write_all(b"}")
}

/// Lines, and the frames of backtraces, each distinct frame once.
fn write_places(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let sites = (profile.call_sites.iter())
        .map(|site| format!("[{},{},{}]", string(&site.file), site.line, site.column));
    write!(out, ",\n\"sites\":{}", list(sites))?;
    let mut numbers: HashMap<&Frame, usize> = HashMap::new();
    let mut frames = Vec::new();
    let mut stacks = Vec::new();
    for stack in &profile.stacks {
        let stack = stack.iter().map(|frame| {
            let number = *numbers.entry(frame).or_insert_with(|| {
                let (function, file) = (string(&frame.function), string(&frame.file));
                frames.push(format!("[{function},{file},{}]", frame.line));
                frames.len() - 1
            });
            number.to_string()
        });
        stacks.push(list(stack));
    }
    write!(out, ",\n\"stacks\":{}", list(stacks))?;
    write!(out, ",\n\"frames\":{}", list(frames))
}

fn write_reserved(changes: &[Change], out: &mut dyn Write) -> Result<()> {
    let spans = neighbourhoods(changes);
    write!(out, ",\n\"neighbourhoods\":{{\"count\":{}", spans.len())?;
    write_column("from", spans.iter().map(|span| span.0), out)?;
    write_column("to", spans.iter().map(|span| span.1), out)?;
    write!(out, "}},\n\"changes\":{{\"count\":{}", changes.len())?;
    write_column("moment", changes.iter().map(|change| change.moment), out)?;
    write_column("from", changes.iter().map(|change| change.from), out)?;
    write_column("to", changes.iter().map(|change| change.to), out)?;
    write_column(
        "isReserve",
        changes.iter().map(|change| change.is_reserve.into()),
        out,
    )?;
    out.write_all(b"}")
}

fn write_events(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let events = &profile.events;
    let (kinds, kind_of) = number_kinds(events);
    write!(out, ",\n\"kinds\":{}", list(kinds))?;
    write!(out, ",\n\"events\":{{\"count\":{}", events.len())?;
    let scopes = profile.scopes.len();
    let sites = profile.call_sites.len();
    let stacks = profile.stacks.len();
    write_column("time", events.iter().map(|event| event.time_ns), out)?;
    write_column("kind", kind_of, out)?;
    write_column(
        "thread",
        events.iter().map(|event| event.thread.into()),
        out,
    )?;
    write_column(
        "stream",
        events.iter().map(|event| event.stream.into()),
        out,
    )?;
    write_column(
        "scope",
        events.iter().map(|event| known(event.scope, scopes)),
        out,
    )?;
    write_column(
        "site",
        events.iter().map(|event| known(event.call_site, sites)),
        out,
    )?;
    write_column(
        "stack",
        events.iter().map(|event| known(event.stack, stacks)),
        out,
    )?;
    write_column("address", events.iter().map(|event| event.address), out)?;
    write_column("bytes", events.iter().map(|event| event.bytes), out)?;
    write_column("block", events.iter().map(|event| event.block_bytes), out)?;
    out.write_all(b"}")
}

fn write_lifetimes(
    profile: &Profile,
    lifetimes: &[Lifetime],
    entries: &[Option<usize>],
    out: &mut dyn Write,
) -> Result<()> {
    let count = lifetimes.len();
    let never = profile.events.len();
    let died = |own: &Lifetime| moment(own.freed.or(Some(never)));
    let copied = |own: &Lifetime| own.is_copy_on_write.into();
    write!(out, ",\n\"lifetimes\":{{\"count\":{count}")?;
    write_column(
        "born",
        lifetimes.iter().map(|own| moment(own.allocated)),
        out,
    )?;
    write_column("died", lifetimes.iter().map(died), out)?;
    write_column("copied", lifetimes.iter().map(copied), out)?;
    write_column("entry", entries.iter().map(|&entry| moment(entry)), out)?;
    write_column("pendingUntil", pending_until(profile, lifetimes), out)?;
    out.write_all(b"}")
}

fn write_passes(profile: &Profile, passes: &[Pass], out: &mut dyn Write) -> Result<()> {
    let scopes = profile.scopes.len();
    write!(out, ",\n\"passes\":{{\"count\":{}", passes.len())?;
    write_column("thread", passes.iter().map(|pass| pass.thread.into()), out)?;
    write_column(
        "scope",
        passes.iter().map(|pass| known(pass.scope, scopes)),
        out,
    )?;
    write_column("from", passes.iter().map(|pass| pass.from), out)?;
    write_column("to", passes.iter().map(|pass| pass.to), out)?;
    write_column("depth", passes.iter().map(|pass| pass.depth), out)?;
    write_column(
        "isEntry",
        passes.iter().map(|pass| pass.is_entry.into()),
        out,
    )?;
    out.write_all(b"}")
}

fn write_rows(profile: &Profile, rows: &BTreeMap<Key, Row>, out: &mut dyn Write) -> Result<()> {
    let scopes = profile.scopes.len();
    let sites = profile.call_sites.len();
    write!(out, ",\n\"rows\":{{\"count\":{}", rows.len())?;
    write_column("site", rows.keys().map(|key| known(key.0, sites)), out)?;
    write_column("scope", rows.keys().map(|key| known(key.1, scopes)), out)?;
    write_column("atEnd", rows.values().map(|row| row.live_bytes), out)?;
    write_column("peak", rows.values().map(|row| row.peak_bytes), out)?;
    write_column("atPeak", rows.values().map(|row| row.at_peak_bytes), out)?;
    write_column("allocations", rows.values().map(|row| row.count), out)?;
    write_column("hits", rows.values().map(|row| row.hits), out)?;
    write_column("misses", rows.values().map(|row| row.misses), out)?;
    write_column("escaped", rows.values().map(|row| row.escaped), out)?;
    write_column("copies", rows.values().map(|row| row.copies), out)?;
    write_column("kernelNs", rows.values().map(|row| row.kernel_ns), out)?;
    out.write_all(b"}")
}

/// The kinds that occur, by name, and that of each event as an index of them.
fn number_kinds(events: &[Event]) -> (Vec<String>, Vec<u64>) {
    let mut names = Vec::new();
    let mut numbers: HashMap<EventKind, u64> = HashMap::new();
    let mut number = |kind| {
        *numbers.entry(kind).or_insert_with(|| {
            names.push(string(&format!("{kind:?}")));
            names.len() as u64 - 1
        })
    };
    let kind_of = events.iter().map(|event| number(event.kind)).collect();
    (names, kind_of)
}

/// Moment 0 is the beginning, and moment n + 1 is that behind event n.
fn moment(event: Option<usize>) -> u64 {
    event.map_or(0, |event| event as u64 + 1)
}

/// An index of a table of `length` from 1; 0 for none, and for what the table does not have.
fn known(index: Option<u32>, length: usize) -> u64 {
    let index = index.filter(|&index| (index as usize) < length);
    index.map_or(0, |index| u64::from(index) + 1)
}

fn write_column(
    name: &str,
    values: impl IntoIterator<Item = u64>,
    out: &mut dyn Write,
) -> Result<()> {
    write!(out, ",\n\"{name}\":\"{}\"", encode(values))
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

/// A string of JSON that may stand inside of a `script` element: only `<` could end that, or begin a comment in it.
fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '<' | '\0'..='\x1f' => json.push_str(&format!("\\u{:04x}", character as u32)),
            _ => json.push(character),
        }
    }
    json.push('"');
    json
}
