//! The orders in which the heuristics and the search try items.

use std::cmp::Reverse;

use super::sections::Problem;

/// A sort key, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// The load of the item's heaviest section.
    MaxLoad,
    /// The length of the lifetime.
    Lifetime,
    /// The size.
    Size,
    /// Size times lifetime.
    Area,
}

/// Precomputed keys of a problem's items.
#[derive(Debug)]
pub struct Orderings<'a> {
    problem: &'a Problem,
    max_load: Vec<u64>,
}

impl<'a> Orderings<'a> {
    /// Computes the keys of all items.
    pub fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            max_load: max_over_sections(problem, &problem.load),
        }
    }

    /// Returns the items by falling `key`. Ties stay in input order.
    pub fn by(&self, key: SortKey) -> Vec<u32> {
        self.sorted(|index| self.value(key, index))
    }

    /// Returns the items by the largest weight of their sections, then by `keys`. Ties stay in
    /// input order.
    pub fn by_weight<const N: usize>(&self, weights: &[u64], keys: [SortKey; N]) -> Vec<u32> {
        let weights = max_over_sections(self.problem, weights);
        self.sorted(|index| (weights[index], keys.map(|key| self.value(key, index))))
    }

    fn sorted<K: Ord>(&self, key: impl Fn(usize) -> K) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.problem.items.len() as u32).collect();
        order.sort_by_cached_key(|&index| Reverse(key(index as usize)));
        order
    }

    fn value(&self, key: SortKey, index: usize) -> u128 {
        let item = &self.problem.items[index];
        match key {
            SortKey::MaxLoad => u128::from(self.max_load[index]),
            SortKey::Lifetime => u128::from(item.lifetime),
            SortKey::Size => u128::from(item.size),
            SortKey::Area => item.area(),
        }
    }
}

/// Returns the maximum of `values` over each item's sections, by a sparse table.
fn max_over_sections(problem: &Problem, values: &[u64]) -> Vec<u64> {
    // levels[k][s] is the maximum of the 2^k sections from s on.
    let mut levels = vec![values.to_vec()];
    let mut step = 1;
    while step * 2 <= values.len() {
        let last = &levels[levels.len() - 1];
        let pairs = last.iter().zip(&last[step..]);
        let next = pairs.map(|(a, b)| *a.max(b)).collect();
        levels.push(next);
        step *= 2;
    }
    let items = problem.items.iter();
    items
        .map(|item| {
            let sections = item.sections();
            let level = sections.len().ilog2();
            let row = &levels[level as usize];
            row[sections.start].max(row[sections.end - (1 << level)])
        })
        .collect()
}
