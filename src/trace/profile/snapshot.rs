//! Profiles of PyTorch's snapshots.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::ops::Range;

use cachescope_reports::{CallSite, EventKind, Frame, Profile, Segment};

use super::builder::{ProfileBuilder, event};
use super::spans::Spans;
use crate::error::{Error, ErrorKind, Result};
use crate::trace::pickle::{Pickle, Refusal, Value};
use crate::trace::snapshot::{self, Entry};

/// Categories that are no scope: PyTorch's, and that of our own snapshots.
const NO_SCOPES: [&str; 2] = ["unknown", "<uncached>"];

type Parsed<T> = std::result::Result<T, String>;

/// One of each device of which the snapshot has anything.
pub(super) fn profiles(name: impl Display, bytes: &[u8]) -> Result<Vec<Profile>> {
    let fail = |reason: String| Error::new(ErrorKind::Io, format!("{name}: {reason}"));
    let pickle = Pickle::read(bytes)
        .map_err(|Refusal { offset, reason }| fail(format!("at byte {offset}: {reason}")))?;
    let devices = snapshot::devices(&pickle).map_err(fail)?;
    let profiles = devices.iter().map(|device| {
        let mut reading = Reading::new(&pickle, device.ordinal);
        for entry in device.entries(&pickle) {
            reading.apply(&entry?)?;
        }
        reading.add_segments(&device.segments)?;
        Ok(reading.finish())
    });
    profiles.collect::<Parsed<_>>().map_err(fail)
}

/// A device's profile on the way.
struct Reading<'a> {
    pickle: &'a Pickle,
    builder: ProfileBuilder,
    /// Lists of frames that are known, most of which stand in the file once.
    frames: HashMap<u32, Lines>,
    /// The addresses that an entry told of.
    known: HashSet<u64>,
    /// By address: the allocation that lives there, as far as an entry told of it.
    live: HashMap<u64, Lines>,
    /// A free that was asked for, and is not done.
    requested: Option<(u64, usize)>,
    /// What entries told to be reserved, and not released since.
    reserved: Spans,
    steps: u64,
}

/// Where something was allocated.
#[derive(Clone, Copy, Default)]
struct Lines {
    call_site: Option<u32>,
    stack: Option<u32>,
    scope: Option<u32>,
}

impl<'a> Reading<'a> {
    fn new(pickle: &'a Pickle, ordinal: usize) -> Self {
        Self {
            pickle,
            builder: ProfileBuilder::new(format!("cuda:{ordinal}")),
            frames: HashMap::new(),
            known: HashSet::new(),
            live: HashMap::new(),
            requested: None,
            reserved: Spans::default(),
            steps: 0,
        }
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        self.steps += 1;
        match entry.text("action")? {
            "alloc" => self.allocate(entry),
            "free_requested" | "free" => self.free(entry),
            "free_completed" => self.complete(entry),
            "segment_alloc" | "segment_map" => self.reserve(entry, EventKind::Reserve),
            "segment_free" | "segment_unmap" => self.reserve(entry, EventKind::Release),
            "oom" => {
                let kind = EventKind::OutOfMemory;
                let mut event = event(kind, self.time_ns(entry));
                event.bytes = entry.number("size").unwrap_or(0);
                self.builder.push(event);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Versions without times count entries.
    fn time_ns(&self, entry: &Entry<'_>) -> u64 {
        let time_us = entry.number("time_us").unwrap_or(self.steps);
        time_us.saturating_mul(1000)
    }

    fn allocate(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        let lines = self.lines(entry);
        self.known.insert(address);
        self.live.insert(address, lines);
        self.push_block(entry, EventKind::Allocate, address, bytes, lines);
        Ok(())
    }

    fn free(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        self.known.insert(address);
        let lines = self.live.remove(&address).unwrap_or_default();
        let kind = match entry.text("action")? {
            "free" => EventKind::Free,
            _ => EventKind::FreePending,
        };
        self.push_block(entry, kind, address, bytes, lines);
        self.requested = Some((address, self.builder.profile().events.len() - 1));
        Ok(())
    }

    /// A free that is completed by the next entry waited for no stream.
    fn complete(&mut self, entry: &Entry<'_>) -> Parsed<()> {
        let address = entry.number("addr")?;
        match self.requested.take() {
            Some((requested, index)) if requested == address => {
                self.builder.profile().events[index].kind = EventKind::Free;
                Ok(())
            }
            // It was asked for earlier, or before the recording.
            _ if self.known.contains(&address) => Ok(()),
            _ => self.free_before(entry, address),
        }
    }

    fn free_before(&mut self, entry: &Entry<'_>, address: u64) -> Parsed<()> {
        self.known.insert(address);
        let bytes = entry.number("size")?;
        self.push_block(entry, EventKind::Free, address, bytes, Lines::default());
        Ok(())
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
        let mut event = event(kind, self.time_ns(entry));
        event.stream = entry.number("stream").unwrap_or(0) as u32;
        event.address = address;
        event.bytes = bytes;
        event.block_bytes = bytes;
        event.call_site = lines.call_site;
        event.stack = lines.stack;
        event.scope = lines.scope;
        self.builder.push(event);
    }

    fn reserve(&mut self, entry: &Entry<'_>, kind: EventKind) -> Parsed<()> {
        let (address, bytes) = (entry.number("addr")?, entry.number("size")?);
        let range = address..address.saturating_add(bytes);
        if kind == EventKind::Reserve {
            self.reserved.insert(range);
        } else {
            self.was_reserved(range.clone());
            self.reserved.remove(range);
        }
        let mut event = event(kind, self.time_ns(entry));
        event.address = address;
        event.bytes = bytes;
        event.block_bytes = bytes;
        event.stream = entry.number("stream").unwrap_or(0) as u32;
        self.builder.push(event);
        Ok(())
    }

    /// What of a range no entry told to be reserved was so at the beginning.
    fn was_reserved(&mut self, range: Range<u64>) {
        let before = self.reserved.missing(range).into_iter();
        let before = before.map(|part| Segment {
            address: part.start,
            bytes: part.end - part.start,
        });
        self.builder.profile().segments.extend(before);
    }

    /// What there is at the end and no entry told of was there at the beginning.
    fn add_segments(&mut self, segments: &[snapshot::Segment<'_>]) -> Parsed<()> {
        for segment in segments {
            let end = segment.address.saturating_add(segment.total_bytes);
            self.was_reserved(segment.address..end);
            for (address, bytes) in segment.live(self.pickle)? {
                if self.known.insert(address) {
                    self.lived_throughout(address, bytes);
                }
            }
        }
        Ok(())
    }

    fn lived_throughout(&mut self, address: u64, bytes: u64) {
        let mut event = event(EventKind::Allocate, 0);
        event.address = address;
        event.bytes = bytes;
        event.block_bytes = bytes;
        self.builder.push_before(event);
    }

    fn lines(&mut self, entry: &Entry<'_>) -> Lines {
        let mut lines = self.frames(entry);
        let category = entry.text("category").ok();
        let category = category.filter(|category| !NO_SCOPES.contains(category));
        lines.scope = category.map(|name| self.builder.scope(name));
        lines
    }

    fn frames(&mut self, entry: &Entry<'_>) -> Lines {
        let Some(list) = entry.get("frames") else {
            return Lines::default();
        };
        let Value::Node(node) = list else {
            return Lines::default();
        };
        if let Some(&known) = self.frames.get(&node) {
            return known;
        }
        let frames: Vec<Frame> = self
            .pickle
            .list(list)
            .unwrap_or_default()
            .iter()
            .filter_map(|&frame| self.frame(frame))
            .collect();
        let innermost = frames.first().map(|frame| CallSite {
            file: frame.file.clone(),
            line: frame.line,
            column: 0,
        });
        let lines = Lines {
            call_site: innermost.map(|site| self.builder.call_site(site)),
            stack: (frames.len() > 1).then(|| self.builder.stack(frames)),
            scope: None,
        };
        self.frames.insert(node, lines);
        lines
    }

    fn frame(&self, value: Value) -> Option<Frame> {
        let text = |key| {
            let text = self.pickle.get(value, key)?;
            self.pickle.text(text).map(str::to_owned)
        };
        let line = match self.pickle.get(value, "line") {
            Some(Value::Int(line)) => u32::try_from(line).unwrap_or(0),
            _ => 0,
        };
        Some(Frame {
            function: text("name").unwrap_or_default(),
            file: text("filename")?,
            line,
        })
    }

    fn finish(self) -> Profile {
        self.builder.finish()
    }
}
