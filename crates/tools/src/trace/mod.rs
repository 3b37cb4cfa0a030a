//! Recorded programs: how to read, write and replay them.
//!
//! A [`Trace`] reads the allocations and frees of a program, event by event. Its input is a log of
//! RMM's `logging_resource_adaptor`, or lifetimes in MiniMalloc's format. [`Lifetime`] reads
//! lifetimes without a trace. A [`Snapshot`] is a recording of PyTorch's allocator. [`Trace::of`]
//! converts its lifetimes to a trace. A [`Replay`] runs a pool's algorithm over the events, on
//! simulated addresses. The replay measures the memory that the pool would reserve. A [`Simulator`]
//! is one simulated pool. [`Placements`] writes the offset of each allocation.
//!
//! # Examples
//!
//! ```
//! # extern crate cachescope_tools as cachescope;
//! use cachescope::PoolKind;
//! use cachescope::trace::{Replay, ReplayOptions, Trace};
//!
//! let log = "Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x10,1000,0\n1,1,free,0x10,1000,0\n";
//! let mut trace = Trace::new("a log", log.as_bytes())?;
//! let options = ReplayOptions { pool: PoolKind::BestFit, unit_bytes: 512, limit_bytes: None };
//! let (mut replay, mut events) = (Replay::new(options)?, Vec::new());
//! loop {
//!     let is_last = trace.read(&mut events)?;
//!     replay.apply(&events);
//!     if is_last {
//!         break;
//!     }
//! }
//! let outcome = replay.outcome();
//! assert_eq!((outcome.events, outcome.peak_live_bytes, outcome.peak_reserved_bytes), (2, 1000, 1024));
//! # Ok::<(), cachescope::Error>(())
//! ```

mod budget;
mod constraints;
mod csv_table;
pub(crate) mod engine;
mod entries;
mod event;
mod lifetimes;
mod live_blocks;
mod pickle;
mod placements;
mod profile;
mod reader;
mod replay;
mod rmm_log;
mod simulator;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io;

use crate::error::{Error, ErrorKind};

pub use event::TraceEvent;
pub use lifetimes::{Lifetime, LifetimeWriter};
pub use placements::Placements;
pub use profile::{ProfileOptions, profiles, profiles_with};
pub use reader::Trace;
pub use replay::{Replay, ReplayOptions, ReplayOutcome};
pub use simulator::{Allocation, Simulator};
pub use snapshot::{DeviceTrace, Snapshot};

/// The parsed value, or the reason why it cannot be parsed.
type Parsed<T> = std::result::Result<T, String>;

/// Returns the error for an input that cannot be read.
fn io_error(name: impl Display, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{name}: {error}")).caused_by(error)
}
