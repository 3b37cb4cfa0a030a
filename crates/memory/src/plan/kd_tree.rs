//! A search for the item of the lowest rank whose lifetime lies within a range of sections. The
//! rank of an item is its index in an order.

use super::sections::Item;

const LEAF: usize = 8;

/// A k-d tree (Bentley 1975) over the points (first section, end section) of the items.
///
/// Invariants:
/// - `ranks` stores the ranks of the items in the order, leaf after leaf. The entry of a removed
///   item is [`REMOVED`];
/// - the bounds and the lowest rank of a node cover exactly the remaining items below the node.
#[derive(Debug)]
pub struct KdTree {
    ranks: Vec<u32>,
    spans: Vec<(u32, u32)>,
    /// The index in `ranks` of each rank.
    positions: Vec<u32>,
    nodes: Vec<KdNode>,
    /// The index of the first leaf in `nodes`.
    leaves: usize,
}

#[derive(Clone, Copy, Debug)]
struct KdNode {
    first: (u32, u32),
    end: (u32, u32),
    /// The lowest rank below the node; [`REMOVED`] if no item remains.
    rank: u32,
}

/// The rank of no item.
pub const REMOVED: u32 = u32::MAX;

impl KdNode {
    const EMPTY: Self = Self {
        first: (u32::MAX, 0),
        end: (u32::MAX, 0),
        rank: REMOVED,
    };

    fn join(&self, other: &Self) -> Self {
        Self {
            first: (
                self.first.0.min(other.first.0),
                self.first.1.max(other.first.1),
            ),
            end: (self.end.0.min(other.end.0), self.end.1.max(other.end.1)),
            rank: self.rank.min(other.rank),
        }
    }
}

impl KdTree {
    /// Builds the tree of all items. `order[rank]` is the index of the item with this rank.
    pub fn new(items: &[Item], order: &[u32]) -> Self {
        let leaves = order.len().div_ceil(LEAF).next_power_of_two();
        let width = order.len().div_ceil(leaves).max(1);
        let spans: Vec<(u32, u32)> = order
            .iter()
            .map(|&index| (items[index as usize].first, items[index as usize].end))
            .collect();
        let mut ranks: Vec<u32> = (0..order.len() as u32).collect();
        ranks.resize(leaves * width, REMOVED);
        partition(&mut ranks, &spans, width, true);
        let mut positions = vec![0; order.len()];
        for (position, &rank) in ranks.iter().enumerate() {
            if rank != REMOVED {
                positions[rank as usize] = position as u32;
            }
        }
        let mut tree = Self {
            ranks,
            spans,
            positions,
            nodes: vec![KdNode::EMPTY; leaves * 2],
            leaves,
        };
        for leaf in leaves..leaves * 2 {
            tree.nodes[leaf] = tree.leaf(leaf);
        }
        for node in (1..leaves).rev() {
            tree.nodes[node] = tree.nodes[node * 2].join(&tree.nodes[node * 2 + 1]);
        }
        tree
    }

    fn width(&self) -> usize {
        self.ranks.len() / self.leaves
    }

    fn ranks_of(&self, leaf: usize) -> &[u32] {
        let from = (leaf - self.leaves) * self.width();
        &self.ranks[from..from + self.width()]
    }

    fn leaf(&self, leaf: usize) -> KdNode {
        let ranks = self.ranks_of(leaf).iter().filter(|&&rank| rank != REMOVED);
        ranks.fold(KdNode::EMPTY, |node, &rank| {
            let (first, end) = self.spans[rank as usize];
            node.join(&KdNode {
                first: (first, first),
                end: (end, end),
                rank,
            })
        })
    }

    /// Returns the lowest rank of an item that lives only within the sections `first..end`;
    /// [`REMOVED`] if there is none.
    pub fn lowest_rank(&self, first: u32, end: u32) -> u32 {
        let mut best = REMOVED;
        let mut open = [0u32; 64];
        open[0] = 1;
        let mut count = 1;
        while count > 0 {
            count -= 1;
            let index = open[count] as usize;
            let node = &self.nodes[index];
            if node.rank >= best || node.first.1 < first || node.end.0 > end {
                continue;
            }
            if node.first.0 >= first && node.end.1 <= end {
                best = node.rank;
                continue;
            }
            if index >= self.leaves {
                for &rank in self.ranks_of(index) {
                    if rank < best {
                        let span = self.spans[rank as usize];
                        if span.0 >= first && span.1 <= end {
                            best = rank;
                        }
                    }
                }
                continue;
            }
            // The half with the lower rank is visited first.
            let (left, right) = (index * 2, index * 2 + 1);
            let flip = self.nodes[left].rank < self.nodes[right].rank;
            open[count] = if flip { right } else { left } as u32;
            open[count + 1] = if flip { left } else { right } as u32;
            count += 2;
        }
        best
    }

    /// Removes the item of this rank.
    pub fn remove(&mut self, rank: u32) {
        let position = self.positions[rank as usize] as usize;
        self.ranks[position] = REMOVED;
        let mut node = self.leaves + position / self.width();
        self.nodes[node] = self.leaf(node);
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[node * 2].join(&self.nodes[node * 2 + 1]);
        }
    }
}

/// Partitions alternately by first section and by end section, down to the leaves.
fn partition(ranks: &mut [u32], spans: &[(u32, u32)], width: usize, by_first: bool) {
    if ranks.len() <= width {
        return;
    }
    let middle = ranks.len() / 2;
    ranks.select_nth_unstable_by_key(middle, |&rank| match spans.get(rank as usize) {
        Some(span) if by_first => span.0,
        Some(span) => span.1,
        None => REMOVED,
    });
    let (low, high) = ranks.split_at_mut(middle);
    partition(low, spans, width, !by_first);
    partition(high, spans, width, !by_first);
}
