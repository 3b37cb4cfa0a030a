//! The ledger of a simulated driver.

use super::costs::{DriverCall, DriverCosts};

/// The maximum number of notes. If it is reached, every other note is removed.
const MOST_NOTES: usize = 4096;

/// The number of calls of each kind, and their total time.
#[derive(Clone, Debug)]
pub struct DriverLedger {
    costs: DriverCosts,
    calls: Vec<(DriverCall, u64)>,
    nanos: f64,
    events: u64,
    /// The calls and nanoseconds so far, after every `noted_events` events.
    notes: Vec<(u64, f64)>,
    noted_events: u64,
}

impl DriverLedger {
    /// Creates a ledger without entries.
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

    /// Charges a call over `bytes` bytes.
    pub fn charge(&mut self, call: DriverCall, bytes: u64) {
        self.charge_each(call, [bytes]);
    }

    /// Charges one call over several mappings. Each mapping costs by its bytes.
    pub fn charge_each(&mut self, call: DriverCall, mappings: impl IntoIterator<Item = u64>) {
        let mut mine = self.calls.iter_mut().filter(|(of, _)| *of == call);
        mine.next().expect("every call has an entry").1 += 1;
        for bytes in mappings {
            self.nanos += self.costs.nanos(call, bytes);
        }
    }

    /// Counts an event of the program.
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
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of calls of one kind so far.
    pub fn calls_of(&self, call: DriverCall) -> u64 {
        let mine = self.calls.iter().find(|&&(of, _)| of == call);
        mine.map_or(0, |&(_, count)| count)
    }

    /// Returns the host's time in the driver so far, in microseconds.
    pub fn microseconds(&self) -> f64 {
        self.nanos / 1e3
    }

    /// Returns the calls and microseconds in the second half of the events, precise to one in two
    /// thousand events.
    pub fn second_half(&self) -> (u64, f64) {
        let half = self.events / 2 / self.noted_events;
        let before = half.checked_sub(1).map(|index| self.notes[index as usize]);
        let (calls, nanos) = before.unwrap_or_default();
        (self.calls() - calls, (self.nanos - nanos) / 1e3)
    }
}
