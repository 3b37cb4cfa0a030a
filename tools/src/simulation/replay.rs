//! The replay of a trace through a device's memory over a simulated driver.

use cachescope_memory::internal::simulation::SimulatedMemory;

use super::{DriverCall, DriverCosts, DriverLedger};
use crate::PoolKind;
use crate::error::Result;
use crate::trace::TraceEvent;

/// A device's memory that runs a trace batch by batch: the complete memory, with source, pool,
/// growth and reclaim ladder.
#[derive(Debug)]
pub struct DeviceReplay {
    memory: SimulatedMemory,
    events: u64,
    live_bytes: u64,
    peak_live_bytes: u64,
    failures: u64,
}

/// The results of a replay. The times of the driver are simulated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceOutcome {
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The peak of the live bytes, as requested, without failed allocations.
    pub peak_live_bytes: u64,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that failed.
    pub failures: u64,
    /// The number of calls of the driver.
    pub calls: u64,
    /// The ledger of the driver's calls.
    pub ledger: DriverLedger,
}

impl DeviceOutcome {
    /// Returns the number of calls of one kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::simulation::{DeviceReplay, DriverCall, DriverCosts};
    /// use cachescope::trace::TraceEvent::{Allocate, Free};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut replay = DeviceReplay::new(PoolKind::Direct, &costs, None)?;
    /// replay.apply(&[Allocate { slot: 0, bytes: 1 << 30 }, Free { slot: 0 }]);
    /// assert_eq!(replay.outcome().calls_of(DriverCall::MemAlloc), 1);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn calls_of(&self, call: DriverCall) -> u64 {
        self.ledger.calls_of(call)
    }
}

impl DeviceReplay {
    /// Creates a device before the first event, with the memory that `costs` names, or
    /// `limit_bytes` if that is less.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::simulation::{DeviceReplay, DriverCosts};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// assert!(DeviceReplay::new(PoolKind::Binned, &costs, Some(1 << 30)).is_ok());
    /// assert!(DeviceReplay::new(PoolKind::StreamOrdered, &costs, None).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for [`PoolKind::StreamOrdered`], the driver's
    /// own pool.
    #[track_caller]
    pub fn new(pool: PoolKind, costs: &DriverCosts, limit_bytes: Option<u64>) -> Result<Self> {
        Ok(Self {
            memory: SimulatedMemory::new(pool, costs, limit_bytes)?,
            events: 0,
            live_bytes: 0,
            peak_live_bytes: 0,
            failures: 0,
        })
    }

    /// Applies the next events. An allocation first frees the previous block of its slot.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::simulation::{DeviceReplay, DriverCosts};
    /// use cachescope::trace::TraceEvent::{Allocate, Free};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut replay = DeviceReplay::new(PoolKind::Direct, &costs, None)?;
    /// replay.apply(&[Allocate { slot: 0, bytes: 1 << 30 }]);
    /// replay.apply(&[Allocate { slot: 1, bytes: 1 << 20 }, Free { slot: 0 }]);
    /// assert_eq!(replay.outcome().peak_live_bytes, (1 << 30) + (1 << 20));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn apply(&mut self, batch: &[TraceEvent]) {
        for &event in batch {
            self.events += 1;
            match event {
                TraceEvent::Allocate { slot, bytes } => self.allocate(slot as usize, bytes),
                TraceEvent::Free { slot } => self.free(slot as usize),
            }
            self.memory.advance();
        }
    }

    fn allocate(&mut self, slot: usize, bytes: u64) {
        self.free(slot);
        if bytes == 0 {
            return;
        }
        if !self.memory.allocate(slot, bytes) {
            self.failures += 1;
            return;
        }
        self.live_bytes += bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
    }

    fn free(&mut self, slot: usize) {
        // A failed allocation has no block.
        self.live_bytes -= self.memory.free(slot);
    }

    /// Returns the results so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::PoolKind;
    /// use cachescope::simulation::{DeviceReplay, DriverCosts};
    /// use cachescope::trace::TraceEvent::Allocate;
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut replay = DeviceReplay::new(PoolKind::Direct, &costs, Some(1 << 20))?;
    /// replay.apply(&[Allocate { slot: 0, bytes: 1 << 19 }, Allocate { slot: 1, bytes: 1 << 30 }]);
    /// let outcome = replay.outcome();
    /// assert_eq!((outcome.events, outcome.failures, outcome.peak_live_bytes), (2, 1, 1 << 19));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn outcome(&self) -> DeviceOutcome {
        let ledger = self.memory.ledger();
        DeviceOutcome {
            events: self.events,
            peak_live_bytes: self.peak_live_bytes,
            peak_reserved_bytes: self.memory.peak_reserved_bytes(),
            failures: self.failures,
            calls: ledger.calls(),
            ledger,
        }
    }
}
