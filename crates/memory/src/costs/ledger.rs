//! The ledger of a simulated driver.

use super::table::{DriverCall, DriverCosts};

/// The maximum length of `notes`. If the maximum is reached, every second note is removed.
const MOST_NOTES: usize = 4096;

/// The number of driver calls of each kind, and their total time.
#[derive(Clone, Debug)]
pub struct DriverLedger {
    costs: DriverCosts,
    calls: Vec<(DriverCall, u64)>,
    nanos: f64,
    events: u64,
    /// The cumulative calls and nanoseconds after every `noted_events` events.
    notes: Vec<(u64, f64)>,
    noted_events: u64,
}

impl DriverLedger {
    /// Creates a ledger without entries.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCosts, DriverLedger};
    ///
    /// let ledger = DriverLedger::new(&DriverCosts::named("h100")?);
    /// assert_eq!((ledger.calls(), ledger.microseconds()), (0, 0.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn new(costs: &DriverCosts) -> Self {
        Self {
            costs: costs.clone(),
            calls: DriverCall::iter().map(|call| (call, 0)).collect(),
            nanos: 0.0,
            events: 0,
            notes: Vec::new(),
            noted_events: 1,
        }
    }

    /// Charges a call for `bytes` bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// ledger.charge(DriverCall::MemAlloc, 1 << 20);
    /// assert_eq!(ledger.microseconds(), costs.nanos(DriverCall::MemAlloc, 1 << 20) / 1e3);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn charge(&mut self, call: DriverCall, bytes: u64) {
        self.charge_each(call, [bytes]);
    }

    /// Charges one call for several mappings. The cost of each mapping depends on its bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// ledger.charge_each(DriverCall::MemSetAccess, [2 << 20, 2 << 20]);
    /// assert_eq!(ledger.calls(), 1);
    /// assert_eq!(ledger.microseconds(), 2.0 * costs.nanos(DriverCall::MemSetAccess, 2 << 20) / 1e3);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn charge_each(&mut self, call: DriverCall, mappings: impl IntoIterator<Item = u64>) {
        let mut mine = self.calls.iter_mut().filter(|(of, _)| *of == call);
        mine.next().expect("every driver call has an entry").1 += 1;
        for bytes in mappings {
            self.nanos += self.costs.nanos(call, bytes);
        }
    }

    /// Counts an event of the program.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// for bytes in [1 << 20, 2 << 20] {
    ///     ledger.charge(DriverCall::MemAlloc, bytes);
    ///     ledger.advance();
    /// }
    /// assert_eq!(ledger.second_half().0, 1); // The second of two events.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn advance(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(self.noted_events) {
            self.notes.push((self.calls(), self.nanos));
        }
        if self.notes.len() == MOST_NOTES {
            let mut is_second = true;
            self.notes.retain(|_| {
                is_second = !is_second;
                is_second
            });
            self.noted_events *= 2;
        }
    }

    /// Returns the number of calls so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// ledger.charge(DriverCall::MemAlloc, 1 << 20);
    /// ledger.charge(DriverCall::MemFree, 1 << 20);
    /// assert_eq!(ledger.calls(), 2);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of calls of one kind so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// ledger.charge(DriverCall::MemAlloc, 1 << 20);
    /// assert_eq!(ledger.calls_of(DriverCall::MemAlloc), 1);
    /// assert_eq!(ledger.calls_of(DriverCall::MemFree), 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn calls_of(&self, call: DriverCall) -> u64 {
        let mine = self.calls.iter().find(|&&(of, _)| of == call);
        mine.map_or(0, |&(_, count)| count)
    }

    /// Returns the total time of the driver calls on the host, in microseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// ledger.charge(DriverCall::MemAlloc, 0);
    /// assert_eq!(ledger.microseconds(), 10.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn microseconds(&self) -> f64 {
        self.nanos / 1e3
    }

    /// Returns the calls and microseconds in the second half of the events. The beginning of this
    /// half is exact to 1/2000 of the events.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::simulation::{DriverCall, DriverCosts, DriverLedger};
    ///
    /// let costs = DriverCosts::named("h100")?;
    /// let mut ledger = DriverLedger::new(&costs);
    /// for call in [DriverCall::MemAlloc, DriverCall::MemAlloc, DriverCall::MemFree, DriverCall::MemMap] {
    ///     ledger.charge(call, 0);
    ///     ledger.advance();
    /// }
    /// let (calls, microseconds) = ledger.second_half();
    /// assert_eq!(calls, 2);
    /// assert!(microseconds < ledger.microseconds());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn second_half(&self) -> (u64, f64) {
        let half = self.events / 2 / self.noted_events;
        let before = half.checked_sub(1).map(|index| self.notes[index as usize]);
        let (calls, nanos) = before.unwrap_or_default();
        (self.calls() - calls, (self.nanos - nanos) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_ledger_splits_its_events_in_halves() {
        let costs = DriverCosts::named("h100").unwrap();
        let mut ledger = DriverLedger::new(&costs);
        for event in 0..4000 {
            if event < 2000 || event % 1000 == 0 {
                ledger.charge(DriverCall::MemMap, MIB);
            }
            ledger.advance();
        }
        assert_eq!(ledger.calls(), 2002);
        assert_eq!(ledger.calls_of(DriverCall::MemMap), 2002);
        assert_eq!(ledger.calls_of(DriverCall::MemUnmap), 0);
        let (calls, microseconds) = ledger.second_half();
        assert_eq!(calls, 2);
        // For few events, the second half is exact. For many events, its beginning is exact to
        // 1/2000 of the events.
        for (count, tolerance) in [(1, 0), (2, 0), (7, 0), (1999, 0), (100_000, 50)] {
            let mut ledger = DriverLedger::new(&costs);
            for _ in 0..count {
                ledger.charge(DriverCall::MemMap, MIB);
                ledger.advance();
            }
            let (calls, _) = ledger.second_half();
            assert!(
                calls.abs_diff(count - count / 2) <= tolerance,
                "{count}: {calls}"
            );
        }
        assert!((microseconds - 2.0 * 1.45).abs() < 1e-6);
        assert!((ledger.microseconds() - 2002.0 * 1.45).abs() < 1e-6);
    }
}
