//! First-fit placement of buffers with alignments and gaps, in several orders.

use std::cmp::Reverse;

use super::{ConstrainedBuffer, LivePiece, aligned, slab};
use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::Occupancy;
use cachescope_memory::internal::plan::Problem;

const ORDERS: u64 = 64;

/// Places the buffers in several orders, and returns the best plan. At least one order is placed,
/// even if the deadline has passed.
pub(super) fn best_of(
    buffers: &[ConstrainedBuffer],
    (pieces, problem): (&[LivePiece], &Problem),
    goal: u64,
    deadline: &Deadline,
) -> Vec<u64> {
    let mut first = vec![0_u32; buffers.len() + 1];
    for piece in pieces {
        first[piece.buffer as usize + 1] += 1;
    }
    for index in 0..buffers.len() {
        first[index + 1] += first[index];
    }
    let mut random = 0_u64;
    let mut best: Option<(u64, Vec<u64>)> = None;
    for round in 0..ORDERS {
        let mut order: Vec<u32> = (0..buffers.len() as u32).collect();
        order.sort_by_cached_key(|&index| {
            let own = &buffers[index as usize];
            let (size, life) = (
                own.interval.size_bytes,
                own.interval.upper - own.interval.lower,
            );
            // A multiplicative hash varies the later orders (Knuth 1973).
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let noise = 1 + (random >> 32) * round / ORDERS;
            let key = match round % 3 {
                0 => u128::from(size),
                1 => u128::from(size) * u128::from(life),
                _ => u128::from(own.alignment) << 64 | u128::from(size),
            };
            Reverse(match round {
                0..=2 => (key, life),
                _ => ((key >> 32).saturating_mul(noise.into()), size),
            })
        });
        let offsets = placed(buffers, &order, (pieces, problem, &first));
        let bytes = slab(buffers, &offsets);
        if best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            best = Some((bytes, offsets));
        }
        if deadline.has_passed() || best.as_ref().is_some_and(|(least, _)| *least <= goal) {
            break;
        }
    }
    best.map(|(_, offsets)| offsets).unwrap_or_default()
}

/// Places the buffers in `order`. Each buffer is at the lowest aligned offset at which all of its
/// pieces are free. The pieces of buffer `b` are `first[b]..first[b + 1]`.
fn placed(
    buffers: &[ConstrainedBuffer],
    order: &[u32],
    (pieces, problem, first): (&[LivePiece], &Problem, &[u32]),
) -> Vec<u64> {
    let mut occupancy = Occupancy::new(problem.load.len());
    let mut offsets = vec![0; buffers.len()];
    for &index in order {
        let own = first[index as usize] as usize..first[index as usize + 1] as usize;
        let mut offset = 0;
        // Repeats until one offset is free for all pieces.
        loop {
            let before = offset;
            for piece in own.clone() {
                let start = pieces[piece].start;
                let fits = occupancy.fit_from(&problem.items[piece], offset + start) - start;
                offset = aligned(fits, buffers[index as usize].alignment);
            }
            if offset == before {
                break;
            }
        }
        for piece in own {
            occupancy.place(&problem.items[piece], offset + pieces[piece].start);
        }
        offsets[index as usize] = offset;
    }
    offsets
}
