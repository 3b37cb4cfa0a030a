//! What can be packed apart.
//!
//! A moment at which nothing lives separates two plans. And a buffer that lives through all of a part
//! may lie below everything else in it: whatever was below it moves up by its size. What is left then
//! often falls apart in its turn, as a training step does once its weights are out of the way.

use super::Buffer;
use super::sections::Problem;

/// How often each buffer may be looked at: lifetimes nested into each other a thousand deep would
/// otherwise be peeled one by one.
const LOOKS: usize = 32;

/// A part of the input, and where it begins in the slab.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) problem: Problem,
    pub(crate) base: u64,
}

/// The parts of `buffers`, and the offsets of what is in none of them.
pub(crate) fn split(buffers: &[Buffer]) -> (Vec<Part>, Vec<u64>) {
    let mut offsets = vec![0; buffers.len()];
    let mut parts = Vec::new();
    let living: Vec<u32> = (0u32..)
        .zip(buffers)
        .filter(|(_, buffer)| buffer.occupies())
        .map(|(source, _)| source)
        .collect();
    let mut looks = living.len() * LOOKS;
    let mut open = vec![(living, 0)];
    open.retain(|(sources, _)| !sources.is_empty());
    while let Some((sources, base)) = open.pop() {
        looks = looks.saturating_sub(sources.len());
        for problem in apart(Problem::new(buffers, sources), buffers) {
            let sections = problem.load.len() as u32;
            let whole = |index: usize| problem.items[index].sections().len() as u32 == sections;
            let (through, rest): (Vec<usize>, Vec<usize>) =
                (0..problem.items.len()).partition(|&index| whole(index));
            if through.is_empty() || looks == 0 {
                parts.push(Part { problem, base });
                continue;
            }
            let mut above = base;
            for index in through {
                offsets[problem.sources[index] as usize] = above;
                above += problem.items[index].size;
            }
            if !rest.is_empty() {
                let rest = rest.into_iter().map(|index| problem.sources[index]);
                open.push((rest.collect(), above));
            }
        }
    }
    (parts, offsets)
}

/// Separates what never meets.
fn apart(problem: Problem, buffers: &[Buffer]) -> Vec<Problem> {
    // How many items live on from each section into the next.
    let mut crossing = vec![0i32; problem.load.len() + 1];
    for item in &problem.items {
        crossing[item.first as usize] += 1;
        crossing[item.end as usize - 1] -= 1;
    }
    let mut part_of_section = Vec::with_capacity(problem.load.len());
    let (mut part, mut alive) = (0usize, 0);
    for change in &crossing[..problem.load.len()] {
        part_of_section.push(part);
        alive += change;
        part += usize::from(alive == 0);
    }
    if part <= 1 {
        return vec![problem];
    }
    let mut sources = vec![Vec::new(); part];
    for (item, &source) in problem.items.iter().zip(&problem.sources) {
        sources[part_of_section[item.first as usize]].push(source);
    }
    let parts = sources.into_iter();
    parts
        .map(|sources| Problem::new(buffers, sources))
        .collect()
}
