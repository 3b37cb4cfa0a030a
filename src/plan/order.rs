//! In which order buffers are tried.

use std::cmp::Reverse;

use super::sections::Problem;

/// What the first of two buffers has more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The load of its heaviest section.
    Pressure,
    /// How long it lives.
    Length,
    /// Its bytes.
    Size,
    /// Bytes times time.
    Area,
}

/// What orders are made from.
#[derive(Debug)]
pub(crate) struct Orders<'a> {
    problem: &'a Problem,
    pressure: Vec<u64>,
}

impl<'a> Orders<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            pressure: most_of_each(problem, &problem.load),
        }
    }

    /// The items, those with most of `key` first; the last resort is their place in the input.
    pub(crate) fn by(&self, key: Key) -> Vec<u32> {
        self.sorted(|index| self.value(key, index))
    }

    /// The items, those with the most trouble in one of their sections first, then by the first key that
    /// tells them apart.
    pub(crate) fn by_trouble<const N: usize>(&self, trouble: &[u64], keys: [Key; N]) -> Vec<u32> {
        let trouble = most_of_each(self.problem, trouble);
        self.sorted(|index| (trouble[index], keys.map(|key| self.value(key, index))))
    }

    fn sorted<K: Ord>(&self, key: impl Fn(usize) -> K) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.problem.items.len() as u32).collect();
        order.sort_by_cached_key(|&index| Reverse(key(index as usize)));
        order
    }

    fn value(&self, key: Key, index: usize) -> u128 {
        let item = &self.problem.items[index];
        match key {
            Key::Pressure => u128::from(self.pressure[index]),
            Key::Length => u128::from(item.length),
            Key::Size => u128::from(item.size),
            Key::Area => item.area(),
        }
    }
}

/// Of each item, the most that one of its sections has of `values`.
fn most_of_each(problem: &Problem, values: &[u64]) -> Vec<u64> {
    // levels[k][s] is the most among the 2^k sections from s on.
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
