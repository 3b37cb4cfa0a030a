//! The account of a simulated driver.

use super::costs::{DriverCall, DriverCosts};

/// So many notes are kept: where they get more, every other one goes.
const MOST_NOTES: usize = 4096;

/// What was called, how often, and what that took.
#[derive(Clone, Debug)]
pub struct DriverLedger {
    costs: DriverCosts,
    calls: Vec<(DriverCall, u64)>,
    nanos: f64,
    events: u64,
    /// After every `noted_events` events: the calls and nanoseconds so far.
    notes: Vec<(u64, f64)>,
    noted_events: u64,
}

impl DriverLedger {
    /// An account without entries.
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

    /// Charges a call over so many bytes.
    pub fn charge(&mut self, call: DriverCall, bytes: u64) {
        self.charge_each(call, [bytes]);
    }

    /// Charges one call over several mappings, each of which costs by its bytes.
    pub fn charge_each(&mut self, call: DriverCall, mappings: impl IntoIterator<Item = u64>) {
        let mut mine = self.calls.iter_mut().filter(|(of, _)| *of == call);
        mine.next().expect("every call has an entry").1 += 1;
        for bytes in mappings {
            self.nanos += self.costs.nanos(call, bytes);
        }
    }

    /// Notes that the program went on by an event.
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

    /// All calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(|(_, count)| count).sum()
    }

    /// The calls of one kind so far.
    pub fn calls_of(&self, call: DriverCall) -> u64 {
        let mine = self.calls.iter().find(|&&(of, _)| of == call);
        mine.map_or(0, |&(_, count)| count)
    }

    /// The host's time in the driver so far, in microseconds.
    pub fn microseconds(&self) -> f64 {
        self.nanos / 1e3
    }

    /// Calls and microseconds in the second half of the events, to one event in two thousand.
    pub fn second_half(&self) -> (u64, f64) {
        let half = self.events / 2 / self.noted_events;
        let before = half.checked_sub(1).map(|index| self.notes[index as usize]);
        let (calls, nanos) = before.unwrap_or_default();
        (self.calls() - calls, (self.nanos - nanos) / 1e3)
    }
}
