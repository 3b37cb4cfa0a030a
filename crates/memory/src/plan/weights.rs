//! Section weights, learned from failed runs.
//!
//! If sections made a run fail, their items move forward in the next order. This method is "squeaky
//! wheel" optimisation (Joslin and Clements 1999). Most inputs are hard in only a few sections, and
//! no property of the input predicts these sections.

use super::ordering::{Orderings, SortKey};

/// The largest weight that one run adds.
const WEIGHT: f64 = 1e6;

/// The maximum relative and the maximum absolute increase by which weights are perturbed.
const NOISE: f64 = 2.0;
const FLOOR: f64 = 2e3;

/// The weight of each section.
#[derive(Debug)]
pub struct LearnedWeights {
    weights: Vec<u64>,
    tries: u32,
}

impl LearnedWeights {
    /// Returns weights of 0.
    pub fn new(sections: usize) -> Self {
        Self {
            weights: vec![0; sections],
            tries: 0,
        }
    }

    /// Adds the failure counts of a run, in any unit. Earlier weights decay to a quarter.
    pub fn learn(&mut self, failures: &[u64]) {
        let most = failures.iter().copied().max().unwrap_or(0).max(1) as f64;
        for (weights, &failures) in self.weights.iter_mut().zip(failures) {
            *weights = *weights / 4 + (failures as f64 / most * WEIGHT) as u64;
        }
        self.tries += 1;
    }

    /// Returns the order of the next run: by falling weight, then by other keys. Successive runs
    /// use different keys. The weights are perturbed so that runs do not repeat each other.
    pub fn order(&self, orderings: &Orderings<'_>) -> Vec<u32> {
        let mut random = Random(u64::from(self.tries) << 32);
        let blurred = self.weights.iter().map(|&weights| {
            let factor = 1.0 + NOISE * random.fraction();
            (weights as f64 * factor + FLOOR * random.fraction()) as u64
        });
        let weights: Vec<u64> = match self.tries {
            0 => self.weights.clone(),
            _ => blurred.collect(),
        };
        match self.tries % 5 {
            0 => orderings.by_weight(
                &weights,
                [SortKey::MaxLoad, SortKey::Lifetime, SortKey::Area],
            ),
            1 => orderings.by_weight(&weights, [SortKey::Area]),
            2 => orderings.by_weight(&weights, [SortKey::Lifetime, SortKey::Area]),
            3 => orderings.by_weight(&weights, [SortKey::Size, SortKey::Lifetime]),
            _ => orderings.by_weight(&weights, [SortKey::MaxLoad, SortKey::Area]),
        }
    }
}

/// Deterministic pseudo-random numbers (SplitMix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// Returns a number that is uniform in 0..1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
