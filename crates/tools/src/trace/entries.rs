//! The entries, segments and blocks of a PyTorch snapshot, in the form of the file.

use std::fmt::{self, Display};
use std::io::Read;

use super::budget::ReadBudget;
use super::pickle::{Pickle, Refusal, Value};
use super::{Parsed, io_error};
use crate::error::{Error, ErrorCode, Result};

/// The memory charged for a [`SnapshotSegment`], its per-device copy, and its reserved ranges.
const SEGMENT_BYTES: u64 = 256;

/// The memory charged for the results of a device, without its entries.
const DEVICE_BYTES: u64 = 1024;

/// The memory charged for a visit to a block. The charge bounds the time of all visits.
const BLOCK_BYTES: u64 = 32;

/// The content of a snapshot for one device.
pub(super) struct DeviceEntries<'a> {
    pub(super) ordinal: usize,
    pub(super) trace: &'a [Value],
    pub(super) segments: Vec<SnapshotSegment<'a>>,
}

impl<'a> DeviceEntries<'a> {
    /// Returns the events in file order. The budget is charged `entry_bytes` for each event.
    pub(super) fn entries(
        &self,
        pickle: &'a Pickle<'a>,
        budget: &ReadBudget,
        entry_bytes: u64,
    ) -> Parsed<impl Iterator<Item = Parsed<Entry<'a>>> + use<'a>> {
        let ordinal = self.ordinal;
        let all = format_args!("device_traces[{ordinal}]");
        budget.charge(all, self.trace.len(), entry_bytes)?;
        let entries = self.trace.iter().enumerate();
        Ok(entries.map(move |(number, &value)| {
            let place = EntryPath::Entry { ordinal, number };
            if !pickle.is_dict(value) {
                return Err(format!("{place} is not a dictionary"));
            }
            Ok(Entry {
                pickle,
                value,
                place,
            })
        }))
    }
}

/// Reads a snapshot. Returns the result of `read` for each device that has entries or segments, in
/// order of the ordinals. Errors refer to the input as `name`.
pub(super) fn read_devices<T>(
    name: impl Display,
    mut input: impl Read,
    read: impl for<'a> Fn(&'a Pickle<'a>, &'a ReadBudget, &DeviceEntries<'a>) -> Parsed<T>,
) -> Result<Vec<T>> {
    let fail = |reason: String| Error::new(ErrorCode::Content, format!("{name}: {reason}"));
    let mut bytes = Vec::new();
    (input.read_to_end(&mut bytes)).map_err(|error| io_error(&name, error))?;
    let pickle = Pickle::read(&bytes)
        .map_err(|Refusal { offset, reason }| fail(format!("at byte {offset}: {reason}")))?;
    let budget = ReadBudget::new(&pickle);
    let devices = devices(&pickle, &budget).map_err(fail)?;
    let devices = devices.iter().map(|device| read(&pickle, &budget, device));
    devices.collect::<Parsed<_>>().map_err(fail)
}

fn devices<'a>(pickle: &'a Pickle<'a>, budget: &ReadBudget) -> Parsed<Vec<DeviceEntries<'a>>> {
    let list = |key| {
        let value = pickle.get(pickle.root(), key);
        let list = value.and_then(|value| pickle.list(value));
        list.ok_or_else(|| format!("not a snapshot: it has no list `{key}`"))
    };
    // Without a recording, `torch.cuda.memory_snapshot` returns only the list of segments.
    let (segments, traces) = match pickle.list(pickle.root()) {
        Some(segments) => (segments, &[][..]),
        None => (list("segments")?, list("device_traces")?),
    };
    let segments = sorted_segments(pickle, budget, segments)?;
    let mut rest = &segments[..];
    let ordinals = rest.last().map_or(0, |last| last.device + 1);
    let mut devices = Vec::new();
    for ordinal in 0..traces.len().max(ordinals) {
        let trace = traces
            .get(ordinal)
            .map_or(Some(&[][..]), |&trace| pickle.list(trace));
        let trace = trace.ok_or_else(|| format!("device_traces[{ordinal}] is not a list"))?;
        let own = rest.iter().take_while(|segment| segment.device == ordinal);
        let (own, others) = rest.split_at(own.count());
        rest = others;
        if trace.is_empty() && own.is_empty() {
            continue;
        }
        budget.charge(format_args!("device_traces[{ordinal}]"), 1, DEVICE_BYTES)?;
        devices.push(DeviceEntries {
            ordinal,
            trace,
            segments: own.to_vec(),
        });
    }
    Ok(devices)
}

/// Returns the segments sorted by device. Segments of one device stay in file order.
fn sorted_segments<'a>(
    pickle: &'a Pickle<'a>,
    budget: &ReadBudget,
    values: &[Value],
) -> Parsed<Vec<SnapshotSegment<'a>>> {
    budget.charge("segments", values.len(), SEGMENT_BYTES)?;
    let mut segments = Vec::with_capacity(values.len());
    for (number, &value) in values.iter().enumerate() {
        segments.push(SnapshotSegment::of(pickle, number, value)?);
    }
    segments.sort_by_key(|segment| segment.device);
    check_disjoint(&segments)?;
    Ok(segments)
}

/// Checks that no two segments of a device overlap.
fn check_disjoint(segments: &[SnapshotSegment<'_>]) -> Parsed<()> {
    let filled = segments.iter().filter(|segment| segment.total_bytes > 0);
    let mut ranges: Vec<_> = filled
        .map(|segment| {
            (
                segment.device,
                segment.address,
                segment.end(),
                segment.number,
            )
        })
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(device, _, end, lower), (other, address, _, upper)] = [pair[0], pair[1]];
        if device == other && address < end {
            let (first, second) = (lower.min(upper), lower.max(upper));
            let place = EntryPath::Segment { number: second };
            return Err(format!(
                "{place} overlaps segments[{first}] at {address:#x}"
            ));
        }
    }
    Ok(())
}

/// A segment as it was at the end of the recording.
#[derive(Clone, Copy)]
pub(super) struct SnapshotSegment<'a> {
    device: usize,
    pub(super) address: u64,
    pub(super) total_bytes: u64,
    blocks: &'a [Value],
    number: usize,
}

impl<'a> SnapshotSegment<'a> {
    fn of(pickle: &'a Pickle<'a>, number: usize, value: Value) -> Parsed<Self> {
        let place = EntryPath::Segment { number };
        let entry = Entry {
            pickle,
            value,
            place,
        };
        let blocks = entry.get("blocks").and_then(|blocks| pickle.list(blocks));
        let device = entry.number("device")?;
        // The ordinal is bounded, because each ordinal below the highest costs time.
        let most = u64::from(u16::MAX);
        if device > most {
            return Err(format!("{place}: device {device}, expected at most {most}"));
        }
        Ok(Self {
            device: device as usize,
            address: entry.number("address")?,
            total_bytes: entry.number("total_size")?,
            blocks: blocks.ok_or_else(|| format!("{place} has no list `blocks`"))?,
            number,
        })
    }

    /// Returns the address after the segment's last byte.
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.total_bytes)
    }

    /// Calls `f` with each block that is in use or pending, its address, and its requested size.
    /// The budget is charged `live_bytes` for each block.
    ///
    /// Blocks tile their segment. If a block has no address, it begins at the end of its
    /// predecessor.
    pub(super) fn for_each_live(
        &self,
        pickle: &Pickle<'_>,
        budget: &ReadBudget,
        live_bytes: u64,
        mut f: impl FnMut(&Entry<'_>, u64, u64) -> Parsed<()>,
    ) -> Parsed<()> {
        let segment = self.number;
        let all = format_args!("segments[{segment}].blocks");
        budget.charge(all, self.blocks.len(), BLOCK_BYTES)?;
        let mut end = self.address;
        for (number, &value) in self.blocks.iter().enumerate() {
            let place = EntryPath::Block { segment, number };
            let block = Entry {
                pickle,
                value,
                place,
            };
            let (is_live, size) = (block.is_live()?, block.number("size")?);
            let address = match block.get("address") {
                Some(_) => block.number("address")?,
                None => end,
            };
            if address < end {
                return Err(format!(
                    "{place}: its address {address:#x} is below {end:#x}, the end of its predecessor"
                ));
            }
            end = address.saturating_add(size);
            if end > self.end() {
                let segment_end = self.end();
                return Err(format!(
                    "{place} ends at {end:#x}, its segment ends at {segment_end:#x}"
                ));
            }
            if is_live {
                budget.charge(place, 1, live_bytes)?;
                let bytes = block.number("requested_size").unwrap_or(size);
                f(&block, address, bytes)?;
            }
        }
        Ok(())
    }
}

/// The location of a dictionary in a snapshot, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryPath {
    Entry { ordinal: usize, number: usize },
    Segment { number: usize },
    Block { segment: usize, number: usize },
}

impl fmt::Display for EntryPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { ordinal, number } => write!(out, "device_traces[{ordinal}][{number}]"),
            Self::Segment { number } => write!(out, "segments[{number}]"),
            Self::Block { segment, number } => write!(out, "segments[{segment}].blocks[{number}]"),
        }
    }
}

/// Returns the first characters of a text, for a message.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A dictionary with its location.
pub(super) struct Entry<'a> {
    pickle: &'a Pickle<'a>,
    value: Value,
    pub(super) place: EntryPath,
}

impl<'a> Entry<'a> {
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.pickle.get(self.value, key)
    }

    pub(super) fn text(&self, key: &str) -> Parsed<&'a [u8]> {
        let text = self.get(key).and_then(|value| self.pickle.text(value));
        text.ok_or_else(|| format!("{} has no text `{key}`", self.place))
    }

    /// Returns whether a block is in use or pending.
    fn is_live(&self) -> Parsed<bool> {
        match self.text("state")? {
            b"active_allocated" | b"active_pending_free" | b"active_awaiting_free" => Ok(true),
            b"inactive" => Ok(false),
            state => {
                let (place, state) = (self.place, String::from_utf8_lossy(state));
                Err(format!("{place}: unknown state {:?}", cut(&state)))
            }
        }
    }

    /// Returns the list of frames of an event or a block. A block of PyTorch 2.0 stores the frames
    /// in its history.
    pub(super) fn frames(&self) -> Option<Value> {
        self.get("frames").or_else(|| {
            let history = self.pickle.list(self.get("history")?)?;
            self.pickle.get(*history.first()?, "frames")
        })
    }

    /// Returns the value of `key`, a whole number below 2⁶³.
    pub(super) fn number(&self, key: &str) -> Parsed<u64> {
        match self.get(key).and_then(|value| self.pickle.number(value)) {
            Some(number) if (0..1 << 63).contains(&number) => Ok(number as u64),
            Some(number) => Err(format!("{}: `{key}` is {number}", self.place)),
            None => Err(format!("{} has no whole number `{key}`", self.place)),
        }
    }
}
