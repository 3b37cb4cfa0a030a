//! The replay of a trace through a device's memory, with a simulated driver.

use cachescope_memory::internal::simulation::{SimulatedMemory, SimulatedMemoryBlock};

use super::{DriverCall, DriverCosts, DriverLedger};
use crate::PoolKind;
use crate::error::Result;
use crate::trace::TraceEvent;
use crate::trace::engine::{ReplayEngine, TraceAllocator};

/// A device's memory to which a trace is applied in batches. The simulation is complete: it has a
/// source, a pool, growth and the reclaim ladder.
#[derive(Debug)]
pub struct DeviceReplay(ReplayEngine<SimulatedMemory>);

/// The results of a replay. The driver's times are simulated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceOutcome {
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The peak of the requested live bytes, without failed allocations.
    pub peak_live_bytes: u64,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that failed.
    pub failures: u64,
    /// The number of driver calls.
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
    /// Creates a simulated device before the first event. Its memory is the minimum of
    /// `limit_bytes` and the memory size in `costs`.
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
        let memory = SimulatedMemory::new(pool, costs, limit_bytes)?;
        Ok(Self(ReplayEngine::new(memory)))
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
        self.0.apply(batch);
    }

    /// Returns the results up to the last applied event.
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
        let Self(engine) = self;
        let ledger = engine.allocator.ledger();
        DeviceOutcome {
            events: engine.events,
            peak_live_bytes: engine.peak_live_bytes,
            peak_reserved_bytes: engine.allocator.peak_reserved_bytes(),
            failures: engine.failures,
            calls: ledger.calls(),
            ledger,
        }
    }
}

impl TraceAllocator for SimulatedMemory {
    type Block = SimulatedMemoryBlock;

    fn allocate(&mut self, bytes: u64) -> Option<(SimulatedMemoryBlock, u64)> {
        Self::allocate(self, bytes)
    }

    fn free(&mut self, block: SimulatedMemoryBlock) {
        Self::free(self, block);
    }

    fn end_event(&mut self) {
        self.advance();
    }
}
