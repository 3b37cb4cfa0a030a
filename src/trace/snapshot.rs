//! Reads memory snapshots of PyTorch, the pickles that `torch.cuda.memory._dump_snapshot` writes: the allocations and frees
//! of each device as lifetimes, and what PyTorch's own allocator reserved for them.
//!
//! An allocation lives until its `free_completed`, since its memory is of no use before. What was allocated before the
//! recording began is known from its free, or from the blocks that are active at the end; it is allocated first here. Events
//! count in the order of the file; their times and streams are not used, as PyTorch's clock is not the same on every thread.
//!
//! Source: `torch/csrc/cuda/memory_snapshot.cpp` and `torch/cuda/_memory_viz.py` of pytorch/pytorch.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io::Read;

use super::lifetimes::Lifetime;
use super::pickle::{Pickle, Refusal, Value};
use crate::error::{Error, ErrorKind, Result};

/// A recorded program of PyTorch.
///
/// # Examples
///
/// ```no_run
/// use std::fs::File;
///
/// use cachescope::trace::Snapshot;
///
/// let snapshot = Snapshot::read("run.pickle", File::open("run.pickle").unwrap())?;
/// for device in &snapshot.devices {
///     println!("cuda:{} reserved {} bytes", device.ordinal, device.peak_reserved_bytes);
/// }
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The devices with memory or events, in the order of their ordinals.
    pub devices: Vec<DeviceTrace>,
}

/// What a snapshot has of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceTrace {
    /// The number of the device.
    pub ordinal: usize,
    /// Each allocation, as requested, in steps of the recording: its entries count from 1, and 0 is before them.
    pub lifetimes: Vec<Lifetime>,
    /// The highest sum of the sizes that were alive, those included whose free awaited a stream.
    pub peak_live_bytes: u64,
    /// The most that PyTorch had reserved from the device.
    pub peak_reserved_bytes: u64,
    /// Requests that PyTorch had no memory for.
    pub out_of_memory: u64,
}

impl Snapshot {
    /// Whether a file that begins like this is a pickle, which all snapshots are, and no table is.
    pub fn begins_like(start: &[u8]) -> bool {
        start.first() == Some(&0x80)
    }

    /// Reads all of `input`. Errors refer to it as `name`.
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io) where it cannot be read, is no pickle of plain data of the protocols 2 to 5, or no snapshot;
    /// where an entry lacks what its action needs, and where an address is allocated while it is alive.
    pub fn read(name: impl Display, mut input: impl Read) -> Result<Self> {
        let fail = |reason: String| Error::new(ErrorKind::Io, format!("{name}: {reason}"));
        let mut bytes = Vec::new();
        input
            .read_to_end(&mut bytes)
            .map_err(|error| fail(error.to_string()))?;
        let pickle = Pickle::read(&bytes)
            .map_err(|Refusal { offset, reason }| fail(format!("at byte {offset}: {reason}")))?;
        Self::of(&pickle).map_err(fail)
    }

    fn of(pickle: &Pickle) -> std::result::Result<Self, String> {
        let devices = devices(pickle)?;
        let devices = devices.iter().map(|device| DeviceTrace::of(pickle, device));
        Ok(Self {
            devices: devices.collect::<std::result::Result<_, _>>()?,
        })
    }
}

/// What a snapshot has of a device, as it stands in the file.
pub(super) struct DeviceEntries<'a> {
    pub(super) ordinal: usize,
    trace: &'a [Value],
    pub(super) segments: Vec<Segment<'a>>,
}

impl<'a> DeviceEntries<'a> {
    /// What happened, in the order of the file.
    pub(super) fn entries(
        &self,
        pickle: &'a Pickle,
    ) -> impl Iterator<Item = std::result::Result<Entry<'a>, String>> {
        let ordinal = self.ordinal;
        let entries = self.trace.iter().enumerate();
        entries.map(move |(number, &value)| {
            let place = format!("device_traces[{ordinal}][{number}]");
            if !pickle.is_dict(value) {
                return Err(format!("{place} is no dictionary"));
            }
            Ok(Entry {
                pickle,
                value,
                place,
            })
        })
    }
}

/// The devices that a snapshot has something of, in the order of their ordinals.
pub(super) fn devices(pickle: &Pickle) -> std::result::Result<Vec<DeviceEntries<'_>>, String> {
    let (root, no_list) = (pickle.root(), |key| {
        format!("no snapshot: it has no list `{key}`")
    });
    let list = |key| {
        let value = pickle.get(root, key);
        value
            .and_then(|value| pickle.list(value))
            .ok_or_else(|| no_list(key))
    };
    let (segments, traces) = (list("segments")?, list("device_traces")?);
    let segments: Vec<Segment<'_>> = (segments.iter().enumerate())
        .map(|(number, &value)| Segment::of(pickle, number, value))
        .collect::<std::result::Result<_, _>>()?;
    let ordinals = segments.iter().map(|segment| segment.device + 1).max();
    let count = traces.len().max(ordinals.unwrap_or(0));
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let trace = traces
            .get(ordinal)
            .map_or(Some(&[][..]), |&trace| pickle.list(trace));
        let trace = trace.ok_or_else(|| format!("device_traces[{ordinal}] is no list"))?;
        let own = segments.iter().filter(|segment| segment.device == ordinal);
        let segments: Vec<Segment<'_>> = own.copied().collect();
        if trace.is_empty() && segments.is_empty() {
            continue;
        }
        devices.push(DeviceEntries {
            ordinal,
            trace,
            segments,
        });
    }
    Ok(devices)
}

/// A segment at the end of the recording.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    device: usize,
    pub(super) address: u64,
    pub(super) total_bytes: u64,
    blocks: &'a [Value],
    number: usize,
}

impl<'a> Segment<'a> {
    fn of(pickle: &'a Pickle, number: usize, value: Value) -> std::result::Result<Self, String> {
        let entry = Entry {
            pickle,
            value,
            place: format!("segments[{number}]"),
        };
        let blocks = pickle
            .get(value, "blocks")
            .and_then(|blocks| pickle.list(blocks));
        let device = entry.number("device")?;
        // A hostile one must not make as many devices.
        let most = u64::from(u16::MAX);
        if device > most {
            return Err(format!(
                "segments[{number}]: device {device}, and there are at most {most}"
            ));
        }
        Ok(Self {
            device: device as usize,
            address: entry.number("address")?,
            total_bytes: entry.number("total_size")?,
            blocks: blocks.ok_or_else(|| format!("segments[{number}] has no list `blocks`"))?,
            number,
        })
    }

    /// The blocks that are in use, or freed and not yet of use: their addresses and requested sizes. Blocks tile their
    /// segment, so each begins where the one before ends.
    pub(super) fn live(&self, pickle: &Pickle) -> std::result::Result<Vec<(u64, u64)>, String> {
        let mut address = self.address;
        let mut live = Vec::new();
        for (number, &value) in self.blocks.iter().enumerate() {
            let place = format!("segments[{}].blocks[{number}]", self.number);
            let block = Entry {
                pickle,
                value,
                place,
            };
            let size = block.number("size")?;
            if block.text("state")?.starts_with("active") {
                live.push((address, block.number("requested_size").unwrap_or(size)));
            }
            address = address.saturating_add(size);
        }
        Ok(live)
    }
}

/// A dictionary, and what messages call it.
pub(super) struct Entry<'a> {
    pickle: &'a Pickle,
    value: Value,
    place: String,
}

impl<'a> Entry<'a> {
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.pickle.get(self.value, key)
    }

    pub(super) fn text(&self, key: &str) -> std::result::Result<&'a str, String> {
        let value = self.pickle.get(self.value, key);
        let text = value.and_then(|value| self.pickle.text(value));
        text.ok_or_else(|| format!("{} has no text `{key}`", self.place))
    }

    pub(super) fn number(&self, key: &str) -> std::result::Result<u64, String> {
        match self.pickle.get(self.value, key) {
            Some(Value::Int(number)) if number >= 0 => Ok(number as u64),
            Some(Value::Int(number)) => Err(format!("{}: `{key}` is {number}", self.place)),
            _ => Err(format!("{} has no whole number `{key}`", self.place)),
        }
    }
}

/// An allocation that is alive.
struct Live {
    /// Its index among the lifetimes.
    lifetime: usize,
    bytes: u64,
    /// The step at which its free was asked for.
    freed_at: Option<u64>,
}

/// A device's memory while its entries are read.
#[derive(Default)]
struct Reading {
    lifetimes: Vec<Lifetime>,
    /// By address.
    live: BTreeMap<u64, Live>,
    /// Every address that was alive.
    known: HashSet<u64>,
    /// The sum of all sizes.
    total_bytes: u64,
    /// How far more was reserved than at the beginning, and the most of that.
    reserved: i64,
    most_reserved: i64,
    out_of_memory: u64,
}

impl DeviceTrace {
    fn of(pickle: &Pickle, device: &DeviceEntries<'_>) -> std::result::Result<Self, String> {
        let mut reading = Reading::default();
        for (step, entry) in (1..).zip(device.entries(pickle)) {
            reading.apply(&entry?, step)?;
        }
        let segments = &device.segments;
        for segment in segments {
            for (address, bytes) in segment.live(pickle)? {
                reading.lived_throughout(address, bytes)?;
            }
        }
        let reserved: u64 = segments
            .iter()
            .map(|segment| segment.total_bytes)
            .fold(0, u64::saturating_add);
        Ok(reading.finish(device.ordinal, device.trace.len() as u64, reserved))
    }
}

impl Reading {
    fn apply(&mut self, entry: &Entry<'_>, step: u64) -> std::result::Result<(), String> {
        let place = || -> std::result::Result<(u64, u64), String> {
            Ok((entry.number("addr")?, entry.number("size")?))
        };
        match entry.text("action")? {
            "alloc" => {
                let (address, bytes) = place()?;
                self.allocate(address, bytes, step)
                    .map_err(|why| format!("{}: {why}", entry.place))
            }
            "free_requested" => {
                let (address, bytes) = place()?;
                self.freed(entry, address, bytes)?.freed_at = Some(step);
                Ok(())
            }
            "free_completed" | "free" => {
                let (address, bytes) = place()?;
                let lifetime = self.freed(entry, address, bytes)?.lifetime;
                self.live.remove(&address);
                self.lifetimes[lifetime].upper = step;
                Ok(())
            }
            "segment_alloc" | "segment_map" => {
                self.reserve(place()?.1 as i64);
                Ok(())
            }
            "segment_free" | "segment_unmap" => {
                self.reserve(-(place()?.1 as i64));
                Ok(())
            }
            "oom" => {
                self.out_of_memory += 1;
                Ok(())
            }
            // Marks of users and of snapshots, and what later versions add.
            _ => Ok(()),
        }
    }

    fn allocate(&mut self, address: u64, bytes: u64, step: u64) -> std::result::Result<(), String> {
        let end = address.saturating_add(bytes.max(1));
        // The last that begins before the end of the new one is the only one that may reach into it.
        if let Some((&other, live)) = self.live.range(..end).next_back()
            && other.saturating_add(live.bytes.max(1)) > address
        {
            let since = self.lifetimes[live.lifetime].lower;
            let Some(freed_at) = live.freed_at else {
                return Err(format!(
                    "{address:#x} is alive since entry {since}, at {other:#x}"
                ));
            };
            // Versions that do not tell when a free was completed.
            let lifetime = live.lifetime;
            self.live.remove(&other);
            self.lifetimes[lifetime].upper = freed_at;
            return self.allocate(address, bytes, step);
        }
        self.begin(address, bytes, step)
    }

    /// What `entry` frees at `address`; where nothing was known of that, something of `bytes` from before the recording.
    fn freed(
        &mut self,
        entry: &Entry<'_>,
        address: u64,
        bytes: u64,
    ) -> std::result::Result<&mut Live, String> {
        if !self.known.contains(&address) {
            self.begin(address, bytes, 0)?;
        }
        let live = self.live.get_mut(&address);
        live.ok_or_else(|| format!("{}: {address:#x} was freed already", entry.place))
    }

    /// A block that is alive at the end, and was before the beginning where no entry tells of it.
    fn lived_throughout(&mut self, address: u64, bytes: u64) -> std::result::Result<(), String> {
        if self.known.contains(&address) {
            return Ok(());
        }
        self.begin(address, bytes, 0)
    }

    fn begin(&mut self, address: u64, bytes: u64, step: u64) -> std::result::Result<(), String> {
        let total = self
            .total_bytes
            .checked_add(bytes)
            .filter(|&sum| sum <= i64::MAX as u64);
        self.total_bytes = total.ok_or("the sizes sum to 2^63 or more")?;
        self.known.insert(address);
        let lifetime = self.lifetimes.len();
        self.lifetimes.push(Lifetime {
            id: format!("{address:#x}@{step}"),
            lower: step,
            upper: u64::MAX,
            size_bytes: bytes,
        });
        self.live.insert(
            address,
            Live {
                lifetime,
                bytes,
                freed_at: None,
            },
        );
        Ok(())
    }

    fn reserve(&mut self, bytes: i64) {
        self.reserved = self.reserved.saturating_add(bytes);
        self.most_reserved = self.most_reserved.max(self.reserved);
    }

    /// What is known after the last of `entries`, at whose end `reserved_bytes` are reserved.
    fn finish(mut self, ordinal: usize, entries: u64, reserved_bytes: u64) -> DeviceTrace {
        for lifetime in &mut self.lifetimes {
            lifetime.upper = lifetime.upper.min(entries + 1);
        }
        let at_first = (reserved_bytes as i64).saturating_sub(self.reserved).max(0);
        let peak_reserved_bytes = at_first.saturating_add(self.most_reserved) as u64;
        DeviceTrace {
            ordinal,
            peak_live_bytes: peak_live_bytes(&self.lifetimes),
            lifetimes: self.lifetimes,
            peak_reserved_bytes: peak_reserved_bytes.max(reserved_bytes),
            out_of_memory: self.out_of_memory,
        }
    }
}

/// The highest sum of the sizes of lifetimes that overlap.
fn peak_live_bytes(lifetimes: &[Lifetime]) -> u64 {
    let starts = lifetimes
        .iter()
        .map(|lifetime| (lifetime.lower, 1, lifetime.size_bytes));
    let ends = lifetimes
        .iter()
        .map(|lifetime| (lifetime.upper, 0, lifetime.size_bytes));
    let mut changes: Vec<(u64, u8, u64)> = starts.chain(ends).collect();
    changes.sort_unstable();
    let (mut live, mut peak) = (0u64, 0);
    for (_, begins, bytes) in changes {
        // A lifetime that is empty ends before it begins.
        live = if begins == 1 {
            live + bytes
        } else {
            live.saturating_sub(bytes)
        };
        peak = peak.max(live);
    }
    peak
}
