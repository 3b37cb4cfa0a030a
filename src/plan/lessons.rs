//! What failed tries teach the next ones.
//!
//! Where a try failed, buffers come earlier the next time, and that on top of what was learned before
//! ("squeaky wheel" optimisation, Joslin and Clements 1999). Most inputs are hard in a few sections
//! only, and no measure of the input says beforehand in which.

use super::order::{Key, Orders};

/// What one failure counts at most.
const WEIGHT: f64 = 1e6;

/// Trouble is blurred by up to this factor of itself, and by up to that much.
const NOISE: f64 = 2.0;
const FLOOR: f64 = 2e3;

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
    /// for a quarter from now on.
    pub(crate) fn learn(&mut self, failures: &[u64]) {
        let most = failures.iter().copied().max().unwrap_or(0).max(1) as f64;
        for (trouble, &failures) in self.trouble.iter_mut().zip(failures) {
            *trouble = *trouble / 4 + (failures as f64 / most * WEIGHT) as u64;
        }
        self.tries += 1;
    }

    /// The order for the next try: the most troubled first, and then by one of several measures in turn.
    /// The trouble is blurred a little, so that tries do not go in circles.
    pub(crate) fn order(&self, orders: &Orders<'_>) -> Vec<u32> {
        let mut random = Random(u64::from(self.tries) << 32);
        let blurred = self.trouble.iter().map(|&trouble| {
            let factor = 1.0 + NOISE * random.fraction();
            (trouble as f64 * factor + FLOOR * random.fraction()) as u64
        });
        let trouble: Vec<u64> = match self.tries {
            0 => self.trouble.clone(),
            _ => blurred.collect(),
        };
        match self.tries % 5 {
            0 => orders.by_trouble(&trouble, [Key::Pressure, Key::Length, Key::Area]),
            1 => orders.by_trouble(&trouble, [Key::Area]),
            2 => orders.by_trouble(&trouble, [Key::Length, Key::Area]),
            3 => orders.by_trouble(&trouble, [Key::Size, Key::Length]),
            _ => orders.by_trouble(&trouble, [Key::Pressure, Key::Area]),
        }
    }
}

/// Numbers that look random and are the same each time (SplitMix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
