//! Profiles of PyTorch's snapshots.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;

use cachescope_reports::internal::{AddressSpan, Reserved};
use cachescope_reports::{self as reports, CallSite, Event, EventKind, Frame, Profile};

use super::ProfileOptions;
use super::builder::{ProfileBuilder, event_of};
use super::call_site::call_site_of;
use crate::error::Result;
use crate::trace::Parsed;
use crate::trace::budget::ReadBudget;
use crate::trace::entries::{DeviceEntries, Entry, EntryPath, SnapshotSegment, read_devices};
use crate::trace::live_blocks::LiveBlocks;
use crate::trace::pickle::{Pickle, Value};

/// The categories that do not become scopes: PyTorch's default, and the category of uncached memory
/// in this library's snapshots.
const NO_SCOPES: [&str; 2] = ["unknown", "<uncached>"];

/// The file name of frames whose function alone is known.
const NO_FILE: &str = "??";

/// The memory that is charged per event, in bytes. The event and its copies use 216 bytes. The map
/// entries of its addresses use about 150 bytes. The map entries of its lists and categories use
/// about 150 bytes.
const EVENT_BYTES: u64 = 512;

/// The memory that is charged per list of frames, without its frames: a line (96 bytes) and table
/// entries.
const STACK_BYTES: u64 = 256;

/// Returns a profile for each device that has entries or segments.
pub(super) fn profiles(
    name: impl Display,
    input: impl Read,
    options: &ProfileOptions,
) -> Result<Vec<Profile>> {
    read_devices(name, input, |pickle, budget, device| {
        ProfileReader::new(pickle, budget, options, device.ordinal).read(device)
    })
}

/// A device's profile while its entries are read.
struct ProfileReader<'a> {
    pickle: &'a Pickle<'a>,
    budget: &'a ReadBudget,
    options: &'a ProfileOptions,
    builder: ProfileBuilder,
    /// The `Lines` of each list of frames that was read. Most lists are stored once in a file, and
    /// referenced repeatedly.
    frames: HashMap<Value, Lines>,
    /// The marked line of a free, by the index of the unmarked line.
    freed: HashMap<u32, u32>,
    categories: HashMap<Value, Option<u32>>,
    /// The live blocks, with the lines of their allocations.
    live: LiveBlocks<Lines>,
    /// The address and the index of the last event, if it is a free that the next entry may
    /// complete.
    requested: Option<(u64, usize)>,
    /// The address ranges whose initial state is known.
    decided: Reserved,
    steps: u64,
}

/// The origin of an allocation: its call site, its backtrace and its scope, by index.
#[derive(Clone, Copy, Default)]
struct Lines {
    call_site: Option<u32>,
    stack: Option<u32>,
    scope: Option<u32>,
}

impl<'a> ProfileReader<'a> {
    fn new(
        pickle: &'a Pickle<'a>,
        budget: &'a ReadBudget,
        options: &'a ProfileOptions,
        ordinal: usize,
    ) -> Self {
        Self {
            pickle,
            budget,
            options,
            builder: ProfileBuilder::new(format!("cuda:{ordinal}")),
            frames: HashMap::new(),
            freed: HashMap::new(),
            categories: HashMap::new(),
            live: LiveBlocks::new(),
            requested: None,
            decided: Reserved::default(),
            steps: 0,
        }
    }

    fn read(mut self, device: &DeviceEntries<'a>) -> Parsed<Profile> {
        let entries = device.entries(self.pickle, self.budget, EVENT_BYTES)?;
        let events = &mut self.builder.profile.events;
        events.reserve_exact(device.trace.len());
        for entry in entries {
            self.apply(&entry?)?;
        }
        self.add_segments(&device.segments)?;
        Ok(self.builder.finish())
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        self.steps += 1;
        match entry.text("action")? {
            b"alloc" => self.allocate(entry),
            b"free_requested" | b"free" => self.free(entry),
            b"free_completed" => self.complete(entry),
            b"segment_alloc" | b"segment_map" => self.reserve(entry, EventKind::Reserve),
            b"segment_free" | b"segment_unmap" => self.reserve(entry, EventKind::Release),
            b"oom" => {
                let kind = EventKind::OutOfMemory;
                let mut event = Event::new(kind, self.time_ns(entry));
                event.bytes = entry.number("size").unwrap_or(0);
                self.builder.push(event);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the time of an entry. In versions without times, the n-th entry is at n
    /// microseconds.
    fn time_ns(&self, entry: &Entry<'_>) -> u64 {
        let time_us = entry.number("time_us").unwrap_or(self.steps);
        time_us.saturating_mul(1000)
    }

    fn allocate(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        let lines = self.lines(entry)?;
        (self.live)
            .insert(address, bytes, self.steps, lines, |_, _| {})
            .map_err(|why| format!("{}: {why}", entry.place))?;
        self.push_block(entry, EventKind::Allocate, address, bytes, lines);
        Ok(())
    }

    fn free(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        let kind = match entry.text("action")? {
            b"free" => EventKind::Free,
            _ => EventKind::FreePending,
        };
        self.ensure_known(entry, address, bytes)?;
        let lines = (self.live)
            .request_free(entry.place, address, self.steps)?
            .value;
        if kind == EventKind::Free {
            self.live.remove(address);
        }
        self.push_block(entry, kind, address, bytes, lines);
        self.requested = Some((address, self.builder.profile.events.len() - 1));
        Ok(())
    }

    /// Completes a free. If the previous entry requested the same free, the free did not wait for a
    /// stream.
    fn complete(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        self.ensure_known(entry, address, bytes)?;
        let live = self.live.freed(entry.place, address)?;
        let (lines, was_requested) = (live.value, live.freed_at.is_some());
        self.live.remove(address);
        match self.requested.take() {
            Some((requested, index)) if requested == address => {
                self.builder.profile.events[index].kind = EventKind::Free;
            }
            _ if was_requested => {}
            _ => self.push_block(entry, EventKind::Free, address, bytes, lines),
        }
        Ok(())
    }

    /// Adds the block that `entry` frees, if the block precedes the recording.
    fn ensure_known(&mut self, entry: &Entry<'_>, address: u64, bytes: u64) -> Parsed<()> {
        if self.live.is_known(address) {
            return Ok(());
        }
        let lines = self.freed_lines(entry)?;
        (self.live)
            .insert(address, bytes, 0, lines, |_, _| {})
            .map_err(|why| format!("{}: no block begins there: {why}", entry.place))
    }

    fn push_block(
        &mut self,
        entry: &Entry<'_>,
        kind: EventKind,
        address: u64,
        bytes: u64,
        lines: Lines,
    ) {
        self.requested = None;
        let mut event = event_of(kind, self.time_ns(entry), address, bytes);
        event.stream = entry.number("stream").unwrap_or(0) as u32;
        event.call_site = lines.call_site;
        event.stack = lines.stack;
        event.scope = lines.scope;
        self.builder.push(event);
    }

    fn reserve(&mut self, entry: &Entry<'_>, kind: EventKind) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        let span = AddressSpan::new(address, bytes);
        if kind == EventKind::Reserve {
            self.decided.fill(span, 0);
        } else {
            self.was_reserved(span);
        }
        let mut event = event_of(kind, self.time_ns(entry), address, bytes);
        event.stream = entry.number("stream").unwrap_or(0) as u32;
        self.builder.push(event);
        Ok(())
    }

    /// Adds the parts of a reserved range that no earlier entry contains. These parts were reserved
    /// before the recording.
    fn was_reserved(&mut self, span: AddressSpan) {
        let before = self.decided.fill(span, 0).into_iter();
        let before = before.map(|part| reports::Segment {
            address: part.start,
            bytes: part.bytes(),
        });
        self.builder.profile.segments.extend(before);
    }

    /// Adds the segments and blocks that exist at the end but have no entry, because they existed
    /// before the recording.
    fn add_segments(&mut self, segments: &[SnapshotSegment<'_>]) -> Parsed<()> {
        let (pickle, budget) = (self.pickle, self.budget);
        for segment in segments {
            self.was_reserved(AddressSpan::new(segment.address, segment.total_bytes));
            segment.for_each_live(pickle, budget, EVENT_BYTES, |block, address, bytes| {
                if self.live.note(address) {
                    let lines = self.frames(block)?;
                    self.lived_throughout(address, bytes, lines);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn lived_throughout(&mut self, address: u64, bytes: u64, lines: Lines) {
        let mut event = event_of(EventKind::Allocate, 0, address, bytes);
        event.call_site = lines.call_site;
        event.stack = lines.stack;
        self.builder.push_before(event);
    }

    fn lines(&mut self, entry: &Entry<'_>) -> Parsed<Lines> {
        let mut lines = self.frames(entry)?;
        lines.scope = self.scope(entry)?;
        Ok(lines)
    }

    /// Returns the lines of an allocation of which only the free is recorded. The frames may belong
    /// to the free, so the line is marked.
    fn freed_lines(&mut self, entry: &Entry<'_>) -> Parsed<Lines> {
        let mut lines = self.lines(entry)?;
        let Some(number) = lines.call_site else {
            return Ok(lines);
        };
        lines.call_site = Some(match self.freed.get(&number) {
            Some(&known) => known,
            None => {
                let site = &self.builder.profile.call_sites[number as usize];
                let site = CallSite {
                    file: format!("freed at {}", site.file),
                    ..*site
                };
                self.budget.charge(entry.place, 1, site.file.len() as u64)?;
                let freed = self.builder.call_site(site);
                self.freed.insert(number, freed);
                freed
            }
        });
        Ok(lines)
    }

    fn scope(&mut self, entry: &Entry<'_>) -> Parsed<Option<u32>> {
        let Some(category) = entry.get("category") else {
            return Ok(None);
        };
        if let Some(&known) = self.categories.get(&category) {
            return Ok(known);
        }
        let name = self.pickle.string(category);
        let name = name.filter(|name| !NO_SCOPES.contains(&&**name));
        if let Some(name) = &name {
            self.budget.charge(entry.place, 1, name.len() as u64)?;
        }
        let scope = name.map(|name| self.builder.scope(name.into_owned()));
        self.categories.insert(category, scope);
        Ok(scope)
    }

    fn frames(&mut self, entry: &Entry<'_>) -> Parsed<Lines> {
        let list = entry.frames();
        let Some((list, values)) = list.and_then(|list| Some((list, self.pickle.list(list)?)))
        else {
            return Ok(Lines::default());
        };
        if let Some(&known) = self.frames.get(&list) {
            return Ok(known);
        }
        let frames = self.read_frames(entry.place, values)?;
        let mut lines = Lines::default();
        if let Some(call_site) = call_site_of(&frames, self.options.own_code.as_deref()) {
            let bytes = call_site.file.len() as u64;
            self.budget.charge(entry.place, 1, bytes)?;
            lines.call_site = Some(self.builder.call_site(call_site));
        }
        if frames.len() > 1 {
            lines.stack = Some(self.builder.stack(frames));
        }
        self.frames.insert(list, lines);
        Ok(lines)
    }

    fn read_frames(&self, place: EntryPath, values: &[Value]) -> Parsed<Vec<Frame>> {
        let place = format!("{place}: frames");
        self.budget.charge(&place, 1, STACK_BYTES)?;
        self.budget
            .charge(&place, values.len(), size_of::<Frame>() as u64)?;
        let mut frames = Vec::with_capacity(values.len());
        for &value in values {
            frames.extend(self.frame(&place, value)?);
        }
        Ok(frames)
    }

    /// Parses a frame from a dictionary. Returns `None` if the frame has neither a name nor a file.
    fn frame(&self, place: &str, value: Value) -> Parsed<Option<Frame>> {
        let text = |key| {
            let value = self.pickle.get(value, key);
            let text = value.and_then(|value| self.pickle.string(value));
            let text = text.unwrap_or_default();
            self.budget.charge(place, 1, text.len() as u64)?;
            Ok::<_, String>(text.into_owned())
        };
        let (function, mut file) = (text("name")?, text("filename")?);
        if file == NO_FILE {
            file.clear();
        }
        if function.is_empty() && file.is_empty() {
            return Ok(None);
        }
        let line = self.pickle.get(value, "line");
        let line = line.and_then(|line| self.pickle.number(line));
        let line = line.and_then(|line| line.try_into().ok()).unwrap_or(0);
        Ok(Some(Frame {
            function,
            file,
            line,
        }))
    }
}
