//! The data of the page, as one JSON object. The page contains no other data of the profile, so
//! only this module must escape hostile names.

use std::collections::{BTreeMap, HashMap};
use std::io::{Result, Write};

use super::columns::{LARGEST, distinct, encode};
use super::entries::{Entry, entries};
use super::pending::pending_until;
use super::reserved::{ReservedChange, changes, neighbourhoods};
use crate::growth::growth;
use crate::json::Quoted;
use crate::lifetimes::{AllocationLifetime, lifetimes, peak, unknown_live_bytes};
use crate::nesting::Nesting;
use crate::profile::{Event, Frame, Profile};
use crate::sites::{Key, SiteSummary, by_number};

/// The maximum number of listed lines per growth.
const GROWTH_SITES: usize = 5;

pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let lifetimes = lifetimes(profile);
    let peak = peak(profile, &lifetimes);
    let nesting = Nesting::of(profile);
    let (entries, numbers) = entries(profile, &nesting);
    let entry_of = |own: &AllocationLifetime| {
        nesting
            .entry_of(profile, own)
            .and_then(|slice| numbers[slice])
    };
    let sites = by_number(profile, &lifetimes, peak, &nesting);
    write!(out, "{{\"device\":{}", string(&profile.device))?;
    let began_unix_ms = profile.began_unix_ns / 1_000_000;
    write!(out, ",\n\"beganUnixMs\":{began_unix_ms}")?;
    write!(out, ",\n\"durationNs\":{}", profile.duration_ns)?;
    write!(out, ",\n\"lostEvents\":{}", profile.lost_events)?;
    write!(out, ",\n\"completeFromNs\":{}", profile.complete_from_ns)?;
    let unknown_bytes = unknown_live_bytes(profile, &lifetimes);
    write!(out, ",\n\"unknownBytes\":{unknown_bytes}")?;
    let reserved_bytes = profile.reserved_bytes.filter(|_| profile.lost_events > 0);
    let reserved = reserved_bytes.map_or("null".into(), |bytes| bytes.to_string());
    write!(out, ",\n\"reservedAtEnd\":{reserved}")?;
    let peak_bytes = peak.bytes.saturating_add(unknown_bytes);
    let peak_moment = moment(peak.event);
    write!(
        out,
        ",\n\"peak\":{{\"bytes\":{peak_bytes},\"moment\":{peak_moment}}}"
    )?;
    let others = (profile.others.iter())
        .map(|other| format!("[{},{}]", string(&other.device), string(&other.file)));
    write!(out, ",\n\"others\":{}", list(others))?;
    let names = profile.scopes.iter().map(|name| string(name));
    write!(out, ",\n\"scopes\":{}", list(names))?;
    write_places(profile, out)?;
    write_reserved(&changes(profile), out)?;
    write_events(profile, out)?;
    write_lifetimes(profile, &lifetimes, entry_of, out)?;
    write_entries(profile, &entries, out)?;
    write_rows(profile, &sites, out)?;
    write_growth(profile, out)?;
    out.write_all(b"}")
}

/// Writes the growth of each scope, and of its lines with the largest growth.
fn write_growth(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let sites = profile.call_sites.len();
    let growths = growth(profile).into_iter().map(|own| {
        let lines = own.sites.iter().take(GROWTH_SITES).map(|site| {
            let number = known(site.call_site, sites);
            format!("[{number},{}]", site.left_bytes_per_entry.min(LARGEST))
        });
        let (scope, left) = (
            known(own.scope, profile.scopes.len()),
            own.left_bytes_per_entry.min(LARGEST),
        );
        format!("[{scope},{},{left},{}]", own.thread, list(lines))
    });
    write!(out, ",\n\"growth\":{}", list(growths))
}

/// Writes the lines and the backtraces. Each distinct frame is written once.
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

fn write_reserved(changes: &[ReservedChange], out: &mut dyn Write) -> Result<()> {
    let spans = neighbourhoods(changes);
    write!(out, ",\n\"neighbourhoods\":{{\"count\":{}", spans.len())?;
    write_column("from", spans.iter().map(|span| span.0), out)?;
    write_column("to", spans.iter().map(|span| span.1), out)?;
    write!(out, "}},\n\"changes\":{{\"count\":{}", changes.len())?;
    let column = |value: fn(&ReservedChange) -> u64| changes.iter().map(value);
    write_column("moment", column(|own| own.moment), out)?;
    write_column("from", column(|own| own.from), out)?;
    write_column("to", column(|own| own.to), out)?;
    write_column("isReserve", column(|own| own.is_reserve.into()), out)?;
    out.write_all(b"}")
}

fn write_events(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let events = &profile.events;
    // Apart from time and address, events have few distinct combinations of field values.
    let shape = |event: &Event| Event {
        time_ns: 0,
        address: 0,
        ..*event
    };
    let (shapes, shape_of) = distinct(events.iter().map(shape));
    let (addresses, address_of) = distinct(events.iter().map(|event| event.address));
    let (kinds, kind_of) = distinct(shapes.iter().map(|shape| shape.kind));
    let names = kinds.iter().map(|kind| string(&format!("{kind:?}")));
    write!(out, ",\n\"kinds\":{}", list(names))?;
    write!(out, ",\n\"events\":{{\"count\":{}", events.len())?;
    write_column("time", events.iter().map(|event| event.time_ns), out)?;
    write_column("shape", shape_of, out)?;
    write_column("address", address_of, out)?;
    write!(out, "}},\n\"addresses\":{{\"count\":{}", addresses.len())?;
    write_column("address", addresses, out)?;
    write!(out, "}},\n\"shapes\":{{\"count\":{}", shapes.len())?;
    let column = |value: fn(&Event) -> u64| shapes.iter().map(value);
    let index = |index: fn(&Event) -> Option<u32>, length: usize| {
        shapes.iter().map(move |shape| known(index(shape), length))
    };
    write_column("kind", kind_of, out)?;
    write_column("thread", column(|own| own.thread.into()), out)?;
    write_column("stream", column(|own| own.stream.into()), out)?;
    write_column("scope", index(|own| own.scope, profile.scopes.len()), out)?;
    write_column(
        "site",
        index(|own| own.call_site, profile.call_sites.len()),
        out,
    )?;
    write_column("stack", index(|own| own.stack, profile.stacks.len()), out)?;
    write_column("bytes", column(|own| own.bytes), out)?;
    write_column("block", column(|own| own.block_bytes), out)?;
    out.write_all(b"}")
}

fn write_lifetimes(
    profile: &Profile,
    lifetimes: &[AllocationLifetime],
    entry_of: impl Fn(&AllocationLifetime) -> Option<usize>,
    out: &mut dyn Write,
) -> Result<()> {
    let count = lifetimes.len();
    let never = profile.events.len();
    let died = |own: &AllocationLifetime| moment(own.freed.or(Some(never)));
    let copied = |own: &AllocationLifetime| own.is_copy_on_write.into();
    let entry = |own: &AllocationLifetime| moment(entry_of(own));
    write!(out, ",\n\"lifetimes\":{{\"count\":{count}")?;
    write_column(
        "born",
        lifetimes.iter().map(|own| moment(own.allocated)),
        out,
    )?;
    write_column("died", lifetimes.iter().map(died), out)?;
    write_column("copied", lifetimes.iter().map(copied), out)?;
    write_column("entry", lifetimes.iter().map(entry), out)?;
    write_column("pendingUntil", pending_until(profile, lifetimes), out)?;
    out.write_all(b"}")
}

fn write_entries(profile: &Profile, entries: &[Entry], out: &mut dyn Write) -> Result<()> {
    let scopes = profile.scopes.len();
    let column = |value: fn(&Entry) -> u64| entries.iter().map(value);
    write!(out, ",\n\"entries\":{{\"count\":{}", entries.len())?;
    let scope = entries.iter().map(|own| known(own.scope, scopes));
    write_column("scope", scope, out)?;
    write_column("thread", column(|own| own.thread.into()), out)?;
    write_column("from", column(|own| own.from), out)?;
    write_column("to", column(|own| own.to), out)?;
    write_column("depth", column(|own| own.depth), out)?;
    write_column("isOutermost", column(|own| own.is_outermost.into()), out)?;
    out.write_all(b"}")
}

fn write_rows(
    profile: &Profile,
    rows: &BTreeMap<Key, SiteSummary>,
    out: &mut dyn Write,
) -> Result<()> {
    let scopes = profile.scopes.len();
    let sites = profile.call_sites.len();
    let column = |value: fn(&SiteSummary) -> u64| rows.values().map(value);
    write!(out, ",\n\"rows\":{{\"count\":{}", rows.len())?;
    write_column("site", rows.keys().map(|key| known(key.0, sites)), out)?;
    write_column("scope", rows.keys().map(|key| known(key.1, scopes)), out)?;
    write_column("atEnd", column(|own| own.live_bytes), out)?;
    write_column("peak", column(|own| own.peak_bytes), out)?;
    write_column("atPeak", column(|own| own.device_peak_bytes), out)?;
    write_column("allocations", column(|own| own.allocations), out)?;
    write_column("hits", column(|own| own.hits), out)?;
    write_column("misses", column(|own| own.misses), out)?;
    write_column("escaped", column(|own| own.escaped), out)?;
    write_column("copies", column(|own| own.copies_on_write), out)?;
    write_column("kernelNs", column(|own| own.kernel_ns), out)?;
    out.write_all(b"}")
}

/// Returns the moment of an event: n + 1 for event n, or 0 for the start of the recording.
pub(super) fn moment(event: Option<usize>) -> u64 {
    event.map_or(0, |event| event as u64 + 1)
}

/// Returns a one-based index of a table with `length` rows. Returns 0 if there is no index, or if
/// the index exceeds the table.
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

/// Returns a JSON string for a `script` element. Escapes characters that HTML forbids, and `<`,
/// which could end the element or begin a comment.
fn string(text: &str) -> String {
    let quoted = Quoted(text).to_string();
    if !quoted.contains(is_escaped) {
        return quoted;
    }
    let mut escaped = String::with_capacity(quoted.len());
    for character in quoted.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns whether a character is `<`, a control character or a noncharacter.
fn is_escaped(character: char) -> bool {
    let is_noncharacter =
        u32::from(character) & 0xfffe == 0xfffe || matches!(character, '\u{fdd0}'..='\u{fdef}');
    character == '<' || character.is_control() || is_noncharacter
}
