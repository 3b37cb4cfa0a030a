//! The order in which the operands of an `einsum` are contracted, two at a time.

use smallvec::SmallVec;

use super::subscripts::{LabelSet, Subscripts};
use crate::array::MAX_RANK;

/// A set of operands, as a bit mask of their indices.
pub(super) type Operands = u8;

/// The order of contraction. For each set of operands, `halves` has the half that is contracted
/// first.
#[derive(Debug)]
pub(super) struct Path {
    halves: SmallVec<[Operands; 8]>,
    /// The labels of each set's contraction.
    labels: SmallVec<[LabelSet; 8]>,
}

impl Path {
    /// Returns the order with the fewest multiplications. Among orders with equally many
    /// multiplications, returns the order with the least memory. Tries each division of each set
    /// into two sets. The costs of these two sets are already known. For eight operands, there are
    /// 3025 divisions.
    pub(super) fn new(subscripts: &Subscripts, leaves: &[LabelSet], output: LabelSet) -> Self {
        let sets = 1usize << leaves.len();
        let union = |set: usize| {
            let members = leaves.iter().enumerate();
            members
                .filter(|(number, _)| set >> number & 1 == 1)
                .fold(0, |all, (_, labels)| all | labels)
        };
        let labels: SmallVec<[LabelSet; 8]> = (0..sets)
            .map(|set| union(set) & (output | union(!set & (sets - 1))))
            .collect();
        let mut halves = SmallVec::from_elem(0, sets);
        let mut costs: SmallVec<[(f64, f64); 8]> = SmallVec::from_elem((0.0, 0.0), sets);
        for set in 1..sets {
            if set.is_power_of_two() {
                continue;
            }
            let mut least = (f64::INFINITY, f64::INFINITY);
            let mut best = set & set.wrapping_neg();
            // The operand with the highest index is always in the second half, so that no division
            // is tried twice.
            let highest = 1 << set.ilog2();
            let mut half = set & !highest;
            let rest = half;
            while half > 0 {
                let (one, other) = (costs[half], costs[set & !half]);
                let multiplied = subscripts.count(labels[half] | labels[set & !half]);
                let cost = (one.0 + other.0 + multiplied, one.1 + other.1);
                if cost < least {
                    (least, best) = (cost, half);
                }
                half = (half - 1) & rest;
            }
            // An array of more than `MAX_RANK` axes is not supported.
            if labels[set].count_ones() as usize > MAX_RANK {
                least.0 = f64::INFINITY;
            }
            least.1 += subscripts.count(labels[set]);
            (costs[set], halves[set]) = (least, best as Operands);
        }
        Self { halves, labels }
    }

    pub(super) fn halves(&self, set: Operands) -> (Operands, Operands) {
        let half = self.halves[usize::from(set)];
        (half, set & !half)
    }

    pub(super) fn labels(&self, set: Operands) -> LabelSet {
        self.labels[usize::from(set)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscripts::set_of;
    use super::*;
    use crate::array::Shape;

    fn path(text: &str, shapes: &[Shape]) -> Path {
        let shapes: Vec<&Shape> = shapes.iter().collect();
        let subscripts = Subscripts::new(text, &shapes).unwrap();
        let leaves: Vec<_> = subscripts.operands.iter().map(|l| set_of(l)).collect();
        Path::new(&subscripts, &leaves, set_of(&subscripts.output))
    }

    #[test]
    fn a_chain_ends_with_the_dearest_product() {
        let shapes = [[2, 100].into(), [100, 100].into(), [100, 100].into()];
        let (first, second) = path("ij,jk,kl->il", &shapes).halves(0b111);
        assert_eq!((first, second), (0b011, 0b100));
        let shapes = [[100, 100].into(), [100, 100].into(), [100, 2].into()];
        let (first, second) = path("ij,jk,kl->il", &shapes).halves(0b111);
        assert_eq!((first, second), (0b001, 0b110));
    }

    #[test]
    fn eight_operands_are_a_chain_too() {
        let shapes = [[3, 3]; 8].map(Shape::from);
        let path = path("ab,bc,cd,de,ef,fg,gh,hi->ai", &shapes);
        let mut sets = vec![0xff];
        let mut leaves = 0;
        while let Some(set) = sets.pop() {
            assert!(
                path.labels(set).count_ones() <= 2,
                "{set:b} is not a part of the chain"
            );
            if set.count_ones() == 1 {
                leaves += 1;
                continue;
            }
            let (first, second) = path.halves(set);
            sets.extend([first, second]);
        }
        assert_eq!(leaves, 8);
    }
}
