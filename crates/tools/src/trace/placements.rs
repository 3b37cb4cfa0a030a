//! A writer of the placements of a replay, as a plan in MiniMalloc's format.

use std::io::{self, Write};

use super::event::TraceEvent;
use super::lifetimes::{Lifetime, LifetimeWriter};
use super::reader::Trace;

/// A writer of the allocations of a trace with their offsets.
///
/// Lifetimes are written in the order of their file. The allocations and the events of a log are
/// numbered from 0 in log order. An allocation lives from its event to the event of its free, and
/// is written at its free. So memory use grows with the live allocations, not with the log.
#[derive(Debug)]
pub struct Placements<W> {
    out: LifetimeWriter<W>,
    table: PlacementTable,
}

#[derive(Debug)]
enum PlacementTable {
    /// The offset of each buffer, by slot.
    Lifetimes(Vec<Option<u64>>),
    Log {
        events: u64,
        allocations: u64,
        /// The live allocations, by slot.
        live: Vec<Option<LiveAllocation>>,
    },
}

#[derive(Debug)]
struct LiveAllocation {
    /// The lifetime. Its `upper` is set when the allocation ends.
    lifetime: Lifetime,
    offset: Option<u64>,
}

impl<W: Write> Placements<W> {
    /// Creates a writer for `trace`, and writes the header.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::{Lifetime, Placements, Trace};
    ///
    /// let trace = Trace::<&[u8]>::of(Vec::<Lifetime>::new());
    /// let mut file = Vec::new();
    /// Placements::new(&mut file, &trace)?.finish(&trace)?;
    /// assert_eq!(file, b"id,lower,upper,size,offset\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns any error of `out`.
    pub fn new<R: io::BufRead>(out: W, trace: &Trace<R>) -> io::Result<Self> {
        let table = match trace.lifetimes() {
            Some(lifetimes) => PlacementTable::Lifetimes(vec![None; lifetimes.len()]),
            None => PlacementTable::Log {
                events: 0,
                allocations: 0,
                live: Vec::new(),
            },
        };
        Ok(Self {
            out: LifetimeWriter::new(out)?,
            table,
        })
    }

    /// Adds the next events. `offsets` contains an offset for each of their allocations.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::{Placements, Trace};
    ///
    /// let log = "Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x10,512,0\n1,1,free,0x10,512,0\n";
    /// let mut trace = Trace::new("a log", log.as_bytes())?;
    /// let (mut file, mut events) = (Vec::new(), Vec::new());
    /// trace.read(&mut events)?;
    /// let mut placements = Placements::new(&mut file, &trace)?;
    /// placements.add(&events, &[Some(1024)])?;
    /// placements.finish(&trace)?;
    /// assert!(file.ends_with(b"\n0,0,1,512,1024\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn add(&mut self, batch: &[TraceEvent], offsets: &[Option<u64>]) -> io::Result<()> {
        let mut offsets = offsets.iter().copied();
        for &event in batch {
            match event {
                TraceEvent::Allocate { slot, bytes } => {
                    let offset = offsets.next().flatten();
                    self.table.allocate(slot as usize, bytes, offset);
                }
                TraceEvent::Free { slot } => {
                    if let Some(ended) = self.table.free(slot as usize) {
                        self.out.write(&ended.lifetime, ended.offset)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the remaining allocations, or all lifetimes, and flushes the output.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::{Lifetime, Placements, Trace};
    ///
    /// let lifetimes = Lifetime::read("a file", &b"id,lower,upper,size\na,0,2,512\n"[..])?;
    /// let mut trace = Trace::<&[u8]>::of(lifetimes);
    /// let (mut file, mut events) = (Vec::new(), Vec::new());
    /// trace.read(&mut events)?;
    /// let mut placements = Placements::new(&mut file, &trace)?;
    /// placements.add(&events, &[Some(0)])?;
    /// placements.finish(&trace)?;
    /// assert!(file.ends_with(b"\na,0,2,512,0\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn finish<R: io::BufRead>(mut self, trace: &Trace<R>) -> io::Result<()> {
        match self.table {
            PlacementTable::Lifetimes(offsets) => {
                for (lifetime, offset) in trace.lifetimes().into_iter().flatten().zip(offsets) {
                    self.out.write(lifetime, offset)?;
                }
            }
            PlacementTable::Log { events, live, .. } => {
                let mut rest: Vec<_> = live.into_iter().flatten().collect();
                rest.sort_unstable_by_key(|live_allocation| live_allocation.lifetime.lower);
                for live_allocation in rest {
                    let ended = live_allocation.end(events);
                    self.out.write(&ended.lifetime, ended.offset)?;
                }
            }
        }
        self.out.finish()
    }
}

impl PlacementTable {
    fn allocate(&mut self, slot: usize, bytes: u64, offset: Option<u64>) {
        match self {
            Self::Lifetimes(offsets) => offsets[slot] = offset,
            Self::Log {
                events,
                allocations,
                live,
            } => {
                if slot >= live.len() {
                    live.resize_with(slot + 1, || None);
                }
                let lifetime = Lifetime {
                    id: allocations.to_string(),
                    lower: *events,
                    upper: *events,
                    size_bytes: bytes,
                };
                live[slot] = Some(LiveAllocation { lifetime, offset });
                *allocations += 1;
                *events += 1;
            }
        }
    }

    /// Frees a slot. Returns the allocation if it must be written now.
    fn free(&mut self, slot: usize) -> Option<LiveAllocation> {
        match self {
            Self::Lifetimes(_) => None,
            Self::Log { events, live, .. } => {
                let live_allocation = live[slot].take();
                let ended = live_allocation.map(|live_allocation| live_allocation.end(*events));
                *events += 1;
                ended
            }
        }
    }
}

impl LiveAllocation {
    fn end(mut self, event: u64) -> Self {
        self.lifetime.upper = event;
        self
    }
}
