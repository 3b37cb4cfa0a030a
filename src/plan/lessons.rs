//! What failed tries teach the next ones.
//!
//! Where a try failed, buffers come earlier the next time, and that on top of what was learned before
//! ("squeaky wheel" optimisation, Joslin and Clements 1999). Most inputs are hard in a few sections
//! only, and no measure of the input says beforehand in which.

use super::order::{Key, Orders};

/// What one failure counts at most.
const WEIGHT: f64 = 1e6;

/// How much trouble each section was.
#[derive(Debug)]
pub(crate) struct Lessons {
    trouble: Vec<u64>,
    tries: u32,
}

impl Lessons {
    pub(crate) fn new(sections: usize) -> Self {
        Self {
            trouble: vec![0; sections],
            tries: 0,
        }
    }

    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Learns from a try how much each section failed it, in any unit. What was learned before counts
    /// half from now on.
    pub(crate) fn learn(&mut self, failures: &[u64]) {
        let most = failures.iter().copied().max().unwrap_or(0).max(1) as f64;
        for (trouble, &failures) in self.trouble.iter_mut().zip(failures) {
            *trouble = *trouble / 2 + (failures as f64 / most * WEIGHT) as u64;
        }
        self.tries += 1;
    }

    /// The order for the next try: the most troubled first, and then by one of three measures in turn.
    pub(crate) fn order(&self, orders: &Orders<'_>) -> Vec<u32> {
        match self.tries % 3 {
            0 => orders.by_trouble(&self.trouble, [Key::Pressure, Key::Length, Key::Area]),
            1 => orders.by_trouble(&self.trouble, [Key::Area]),
            _ => orders.by_trouble(&self.trouble, [Key::Length, Key::Area]),
        }
    }
}
