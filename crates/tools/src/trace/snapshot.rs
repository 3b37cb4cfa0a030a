//! A reader of PyTorch's memory snapshots, the pickles that `torch.cuda.memory._dump_snapshot`
//! writes. A snapshot contains the allocations and frees of each device. The reader converts them
//! to lifetimes. A snapshot also contains the segments that PyTorch's allocator reserved. A pickle
//! of the segment list that `torch.cuda.memory_snapshot` returns is a snapshot without events.
//!
//! An allocation lives until its `free_completed`, because its memory cannot be reused earlier. If
//! an allocation precedes the recording, it is known from its free, or from the active blocks at
//! the end. The reader places such an allocation before the first entry. The steps of a lifetime
//! are entry indices in file order. The recorded times and streams are not used, because PyTorch's
//! threads use different clocks.
//!
//! Sources: `torch/csrc/cuda/memory_snapshot.cpp` and `torch/cuda/_memory_viz.py` of
//! pytorch/pytorch.

use std::fmt::Display;
use std::io::Read;

use super::Parsed;
use super::budget::ReadBudget;
use super::entries::{DeviceEntries, Entry, read_devices};
use super::lifetimes::Lifetime;
use super::live_blocks::LiveBlocks;
use super::pickle::Pickle;
use crate::error::Result;

/// An upper bound on the memory of a lifetime, in bytes. While the vector grows, the lifetime and
/// its id use 192 bytes. The map entries of its addresses use 112 bytes. In the sort for the peak,
/// its two ends use 48 bytes.
const LIFETIME_BYTES: u64 = 384;

/// A recorded program of PyTorch.
///
/// # Examples
///
/// ```no_run
/// # extern crate cachescope_tools as cachescope;
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
    /// The devices that have memory or events, in order of the ordinals.
    pub devices: Vec<DeviceTrace>,
}

/// The content of a snapshot for one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceTrace {
    /// The ordinal of the device.
    pub ordinal: usize,
    /// All allocations, with their requested sizes. A time is a step of the recording. The entries
    /// are the steps from 1 on. Step 0 precedes the recording.
    pub lifetimes: Vec<Lifetime>,
    /// The peak of the requested live bytes. An allocation whose free waits for a stream is live.
    pub peak_live_bytes: u64,
    /// The peak of the bytes that PyTorch reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of requests that failed because the device was out of memory.
    pub out_of_memory: u64,
}

impl Snapshot {
    /// Returns whether a file with these first bytes is a pickle. All snapshots are pickles, and no
    /// table is a pickle.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Snapshot;
    ///
    /// assert!(Snapshot::begins_like(b"\x80\x04"));
    /// assert!(!Snapshot::begins_like(b"id,lower,upper,size"));
    /// ```
    pub fn begins_like(start: &[u8]) -> bool {
        start.first() == Some(&0x80)
    }

    /// Reads a snapshot from `input`. Errors refer to the input as `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Snapshot;
    ///
    /// let error = Snapshot::read("run.pickle", &b"no pickle"[..]).unwrap_err();
    /// assert!(error.to_string().starts_with("run.pickle: "));
    /// assert_eq!(error.code(), "CS0801");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Io`](crate::ErrorKind::Io) in these cases:
    /// - `input` cannot be read, is not a snapshot, or is not a pickle of plain data (protocols 2
    ///   to 5);
    /// - an entry lacks a value that its action needs;
    /// - an address is allocated while it is live, freed twice, or freed inside of a live block;
    /// - segments or blocks overlap, a block ends beyond its segment, or a block has an unknown
    ///   state;
    /// - the file has 4 GiB or more;
    /// - shared values would use more memory than 1 MiB plus 64 bytes per byte of the file.
    pub fn read(name: impl Display, input: impl Read) -> Result<Self> {
        let devices = read_devices(name, input, DeviceTrace::of)?;
        Ok(Self { devices })
    }
}

/// The state of a device while its entries are read.
struct SnapshotReader {
    lifetimes: Vec<Lifetime>,
    /// The live blocks, with the index of each block's lifetime.
    live: LiveBlocks<usize>,
    /// The sum of the sizes of all lifetimes.
    total_bytes: u64,
    /// The reserved bytes, relative to the start of the recording.
    reserved: i64,
    /// The maximum of `reserved`.
    most_reserved: i64,
    out_of_memory: u64,
}

impl DeviceTrace {
    fn of<'a>(
        pickle: &'a Pickle<'a>,
        budget: &ReadBudget,
        device: &DeviceEntries<'a>,
    ) -> Parsed<Self> {
        let mut reading = SnapshotReader::new();
        let entries = device.entries(pickle, budget, LIFETIME_BYTES)?;
        for (step, entry) in (1..).zip(entries) {
            reading.apply(&entry?, step)?;
        }
        let segments = &device.segments;
        for segment in segments {
            segment.for_each_live(pickle, budget, LIFETIME_BYTES, |_, address, bytes| {
                reading.lived_throughout(address, bytes)
            })?;
        }
        let reserved: u64 = segments
            .iter()
            .map(|segment| segment.total_bytes)
            .fold(0, u64::saturating_add);
        Ok(reading.finish(device.ordinal, device.trace.len() as u64, reserved))
    }
}

impl SnapshotReader {
    fn new() -> Self {
        Self {
            lifetimes: Vec::new(),
            live: LiveBlocks::new(),
            total_bytes: 0,
            reserved: 0,
            most_reserved: 0,
            out_of_memory: 0,
        }
    }

    fn apply(&mut self, entry: &Entry<'_>, step: u64) -> Parsed<()> {
        let place = || -> Parsed<(u64, u64)> { Ok((entry.number("addr")?, entry.number("size")?)) };
        match entry.text("action")? {
            b"alloc" => {
                let (address, bytes) = place()?;
                self.begin(address, bytes, step)
                    .map_err(|why| format!("{}: {why}", entry.place))
            }
            b"free_requested" => {
                let (address, bytes) = place()?;
                self.ensure_known(entry, address, bytes)?;
                self.live.request_free(entry.place, address, step).map(drop)
            }
            b"free" => {
                let (address, bytes) = place()?;
                self.ensure_known(entry, address, bytes)?;
                self.live.request_free(entry.place, address, step)?;
                self.complete(entry, address, step)
            }
            b"free_completed" => {
                let (address, bytes) = place()?;
                self.ensure_known(entry, address, bytes)?;
                self.complete(entry, address, step)
            }
            b"segment_alloc" | b"segment_map" => {
                self.reserve(place()?.1 as i64);
                Ok(())
            }
            b"segment_free" | b"segment_unmap" => {
                self.reserve(-(place()?.1 as i64));
                Ok(())
            }
            b"oom" => {
                self.out_of_memory += 1;
                Ok(())
            }
            // Other actions are ignored: user marks, snapshot marks, and actions of later versions.
            _ => Ok(()),
        }
    }

    /// Adds the allocation that `entry` frees, if the allocation precedes the recording.
    fn ensure_known(&mut self, entry: &Entry<'_>, address: u64, bytes: u64) -> Parsed<()> {
        if self.live.is_known(address) {
            return Ok(());
        }
        self.begin(address, bytes, 0)
            .map_err(|why| format!("{}: no block begins there: {why}", entry.place))
    }

    fn complete(&mut self, entry: &Entry<'_>, address: u64, step: u64) -> Parsed<()> {
        let lifetime = self.live.freed(entry.place, address)?.value;
        self.live.remove(address);
        self.lifetimes[lifetime].upper = step;
        Ok(())
    }

    /// Adds a block that is live at the end. If no entry contains its address, the block precedes
    /// the recording.
    fn lived_throughout(&mut self, address: u64, bytes: u64) -> Parsed<()> {
        if self.live.note(address) {
            self.add_lifetime(address, bytes, 0)?;
        }
        Ok(())
    }

    fn begin(&mut self, address: u64, bytes: u64, step: u64) -> Parsed<()> {
        let lifetimes = &mut self.lifetimes;
        let number = lifetimes.len();
        self.live
            .insert(address, bytes, step, number, |ended, freed_at| {
                lifetimes[ended].upper = freed_at;
            })?;
        self.add_lifetime(address, bytes, step)
    }

    fn add_lifetime(&mut self, address: u64, bytes: u64, step: u64) -> Parsed<()> {
        let total = self
            .total_bytes
            .checked_add(bytes)
            .filter(|&sum| sum <= i64::MAX as u64);
        self.total_bytes = total.ok_or("the sizes sum to 2^63 or more")?;
        self.lifetimes.push(Lifetime {
            id: format!("{address:#x}@{step}"),
            lower: step,
            upper: u64::MAX,
            size_bytes: bytes,
        });
        Ok(())
    }

    fn reserve(&mut self, bytes: i64) {
        self.reserved = self.reserved.saturating_add(bytes);
        self.most_reserved = self.most_reserved.max(self.reserved);
    }

    /// Returns the result after the last entry. `reserved_bytes` is the reserved size at the end of
    /// the recording.
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

/// Returns the peak of the live bytes of lifetimes.
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
        // In the order of `changes`, the end of an empty lifetime precedes its start.
        live = if begins == 1 {
            live + bytes
        } else {
            live.saturating_sub(bytes)
        };
        peak = peak.max(live);
    }
    peak
}
