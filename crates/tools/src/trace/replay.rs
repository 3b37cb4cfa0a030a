//! A measured replay of a trace through one pool.

use std::time::Duration;

use super::engine::ReplayEngine;
use super::event::TraceEvent;
use super::simulator::Simulator;
use crate::PoolKind;
use crate::error::Result;

/// The minimum total time of the repeats of a one-batch trace.
const REPEAT: Duration = Duration::from_millis(5);
/// The maximum number of repeats of a one-batch trace.
const MAX_REPEATS: usize = 99;

/// The options of a simulated pool.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::trace::ReplayOptions;
///
/// let options = ReplayOptions { limit_bytes: Some(1 << 30), ..Default::default() };
/// assert_eq!(options.unit_bytes, 512);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// The kind of pool.
    pub pool: PoolKind,
    /// The alignment of blocks.
    pub unit_bytes: u64,
    /// The size of the address range. By default, there is no limit.
    pub limit_bytes: Option<u64>,
}

impl Default for ReplayOptions {
    /// Returns the options of the default pool, with a unit of 512 bytes and without a limit.
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            unit_bytes: 512,
            limit_bytes: None,
        }
    }
}

/// A pool to which a trace is applied in batches.
///
/// The measured time contains only the calls of the pool and an array look-up. Counters are updated
/// after each batch.
#[derive(Debug)]
pub struct Replay {
    settings: ReplayOptions,
    engine: ReplayEngine<Simulator>,
    elapsed: Duration,
}

/// The results of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayOutcome {
    /// The kind of pool.
    pub pool: PoolKind,
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The mean time of an event in nanoseconds; 0 without events.
    pub ns_per_event: f64,
    /// The peak of the requested live bytes, without failed allocations.
    pub peak_live_bytes: u64,
    /// The highest end of a block.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that did not fit below the limit.
    pub failures: u64,
}

impl ReplayOutcome {
    /// Returns the ratio of peak reserved bytes to peak live bytes; 1 if no bytes were live.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::TraceEvent::Allocate;
    /// use cachescope::trace::{Replay, ReplayOptions};
    ///
    /// let mut replay = Replay::new(ReplayOptions::default())?;
    /// replay.apply(&[Allocate { slot: 0, bytes: 256 }]);
    /// assert_eq!(replay.outcome().ratio(), 2.0); // Blocks are multiples of 512 bytes.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn ratio(&self) -> f64 {
        match self.peak_live_bytes {
            0 => 1.0,
            peak_live_bytes => self.peak_reserved_bytes as f64 / peak_live_bytes as f64,
        }
    }
}

impl Replay {
    /// Creates a pool before the first event.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::trace::{Replay, ReplayOptions};
    ///
    /// assert_eq!(Replay::new(ReplayOptions::default())?.outcome().events, 0);
    /// let options = ReplayOptions { pool: PoolKind::StreamOrdered, ..Default::default() };
    /// assert!(Replay::new(options).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Simulator::new`].
    pub fn new(settings: ReplayOptions) -> Result<Self> {
        Ok(Self {
            settings,
            engine: engine(settings)?,
            elapsed: Duration::ZERO,
        })
    }

    /// Applies the next events. Returns the offset of each allocation, or `None` for a failed
    /// allocation. An allocation first frees the previous block of its slot.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::TraceEvent::Allocate;
    /// use cachescope::trace::{Replay, ReplayOptions};
    ///
    /// let options = ReplayOptions { limit_bytes: Some(1024), ..Default::default() };
    /// let mut replay = Replay::new(options)?;
    /// let (first, second) = (Allocate { slot: 0, bytes: 1024 }, Allocate { slot: 1, bytes: 1 });
    /// assert_eq!(replay.apply(&[first, second]), [Some(0), None]); // The limit leaves no room.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn apply(&mut self, batch: &[TraceEvent]) -> &[Option<u64>] {
        self.elapsed += self.engine.apply(batch);
        &self.engine.addresses
    }

    /// Repeats a one-batch trace on new pools, and records the median time. The median reduces
    /// noise: a single short measurement depends on the state of the processor.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::TraceEvent::{Allocate, Free};
    /// use cachescope::trace::{Replay, ReplayOptions};
    ///
    /// let mut replay = Replay::new(ReplayOptions::default())?;
    /// let events = [Allocate { slot: 0, bytes: 512 }, Free { slot: 0 }];
    /// replay.apply(&events);
    /// replay.time_again(&events)?;
    /// assert_eq!(replay.outcome().events, 2); // Repeats count once.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Simulator::new`].
    pub fn time_again(&mut self, batch: &[TraceEvent]) -> Result<()> {
        let mut times = vec![self.elapsed];
        while times.len() < MAX_REPEATS && times.iter().sum::<Duration>() < REPEAT {
            times.push(engine(self.settings)?.apply(batch));
        }
        times.sort_unstable();
        self.elapsed = times[times.len() / 2];
        Ok(())
    }

    /// Returns the results up to the last applied event.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::TraceEvent::{Allocate, Free};
    /// use cachescope::trace::{Replay, ReplayOptions};
    ///
    /// let mut replay = Replay::new(ReplayOptions::default())?;
    /// replay.apply(&[Allocate { slot: 0, bytes: 512 }, Allocate { slot: 1, bytes: 512 }, Free { slot: 0 }]);
    /// let outcome = replay.outcome();
    /// assert_eq!((outcome.events, outcome.peak_live_bytes, outcome.failures), (3, 1024, 0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn outcome(&self) -> ReplayOutcome {
        let ns_per_event = match self.engine.events {
            0 => 0.0,
            events => self.elapsed.as_nanos() as f64 / events as f64,
        };
        ReplayOutcome {
            pool: self.settings.pool,
            events: self.engine.events,
            ns_per_event,
            peak_live_bytes: self.engine.peak_live_bytes,
            peak_reserved_bytes: self.engine.allocator.peak_reserved_bytes(),
            failures: self.engine.failures,
        }
    }
}

fn engine(settings: ReplayOptions) -> Result<ReplayEngine<Simulator>> {
    let ReplayOptions {
        pool,
        unit_bytes,
        limit_bytes,
    } = settings;
    Simulator::new(pool, unit_bytes, limit_bytes).map(ReplayEngine::new)
}
