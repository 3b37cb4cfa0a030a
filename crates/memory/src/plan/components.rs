//! Decomposes the input into components that are packed separately.
//!
//! If no buffer is live at a moment, the moment splits the input in two. A buffer that is live
//! throughout a component can be placed at the component's bottom. Removing this buffer often
//! splits the component again, for example in a training step whose weights are removed.

use super::BufferInterval;
use super::sections::{Problem, occupying};

/// The maximum number of decompositions per buffer, on average. The decomposition of a set counts
/// for each buffer in the set. This maximum bounds the time for lifetimes that are nested a
/// thousand deep.
const VISITS: usize = 32;

/// A connected component of the input, and its base offset in the slab.
#[derive(Debug)]
pub struct Component {
    /// The packing problem of the component's items.
    pub problem: Problem,
    /// The bytes below the component in the slab.
    pub base: u64,
}

/// Returns the components of `buffers`, and the offsets of the buffers that are in no component.
pub fn decompose(buffers: &[BufferInterval]) -> (Vec<Component>, Vec<u64>) {
    let mut offsets = vec![0; buffers.len()];
    let mut components = Vec::new();
    let living = occupying(buffers);
    let mut visits = living.len() * VISITS;
    let mut open = vec![(living, 0)];
    open.retain(|(indices, _)| !indices.is_empty());
    while let Some((indices, base)) = open.pop() {
        visits = visits.saturating_sub(indices.len());
        for problem in connected_components(Problem::new(buffers, indices), buffers) {
            let sections = problem.load.len() as u32;
            let whole = |index: usize| problem.items[index].sections().len() as u32 == sections;
            let (spanning, rest): (Vec<usize>, Vec<usize>) =
                (0..problem.items.len()).partition(|&index| whole(index));
            if spanning.is_empty() || visits == 0 {
                components.push(Component { problem, base });
                continue;
            }
            let mut above = base;
            for index in spanning {
                offsets[problem.indices[index] as usize] = above;
                above += problem.items[index].size;
            }
            if !rest.is_empty() {
                let rest = rest.into_iter().map(|index| problem.indices[index]);
                open.push((rest.collect(), above));
            }
        }
    }
    (components, offsets)
}

/// Splits a problem between neighbouring sections across which no item is live.
fn connected_components(problem: Problem, buffers: &[BufferInterval]) -> Vec<Problem> {
    // The number of items that are live in both a section and the next section.
    let mut crossing = vec![0i32; problem.load.len() + 1];
    for item in &problem.items {
        crossing[item.first as usize] += 1;
        crossing[item.end as usize - 1] -= 1;
    }
    let mut component_of_section = Vec::with_capacity(problem.load.len());
    let (mut component, mut alive) = (0usize, 0);
    for change in &crossing[..problem.load.len()] {
        component_of_section.push(component);
        alive += change;
        component += usize::from(alive == 0);
    }
    if component <= 1 {
        return vec![problem];
    }
    let mut indices = vec![Vec::new(); component];
    for (item, &index) in problem.items.iter().zip(&problem.indices) {
        indices[component_of_section[item.first as usize]].push(index);
    }
    let components = indices.into_iter();
    components
        .map(|indices| Problem::new(buffers, indices))
        .collect()
}
