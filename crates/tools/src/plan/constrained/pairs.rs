//! The pairs of conflicting buffers.

use super::{ConstrainedBuffer, LivePiece};
use cachescope_memory::internal::plan::Deadline;

/// The maximum number of pairs. Above it, only heuristics plan.
const MAX_PAIRS: usize = 1 << 18;

/// Two buffers that are live at the same step.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) first: u32,
    pub(super) second: u32,
    /// The forbidden differences (second offset minus first offset), at which the buffers overlap:
    /// open intervals, disjoint and in ascending order.
    pub(super) forbidden: Vec<(i64, i64)>,
}

impl Pair {
    /// Returns whether the buffers overlap at a given difference of their offsets.
    pub(super) fn overlaps(&self, difference: i64) -> bool {
        let mut forbidden = self.forbidden.iter();
        forbidden.any(|&(low, high)| low < difference && difference < high)
    }
}

/// All pairs of buffers that conflict at some difference of their offsets.
#[derive(Debug)]
pub(super) struct Conflicts {
    pub(super) pairs: Vec<Pair>,
    /// The live pieces at each step at which a piece starts. The live bytes have their maximum at
    /// one of these steps.
    pub(super) moments: Vec<Vec<LivePiece>>,
}

impl Conflicts {
    /// Returns all conflicts, or `None` if there are too many pairs or the deadline has passed.
    pub(super) fn new(
        buffers: &[ConstrainedBuffer],
        pieces: &[LivePiece],
        deadline: &Deadline,
    ) -> Option<Self> {
        let mut sorted = pieces.to_vec();
        sorted.sort_by_key(|piece| piece.interval.lower);
        let mut found: Vec<((u32, u32), (i64, i64))> = Vec::new();
        let mut moments: Vec<Vec<LivePiece>> = Vec::new();
        let mut live: Vec<LivePiece> = Vec::new();
        for piece in sorted {
            let begin = piece.interval.lower;
            let is_same = live.last().is_some_and(|last| last.interval.lower == begin);
            live.retain(|other| other.interval.upper > begin);
            for other in live.iter().filter(|other| other.buffer != piece.buffer) {
                let (a, b) = match other.buffer < piece.buffer {
                    true => (other, &piece),
                    false => (&piece, other),
                };
                let ends = |own: &LivePiece| {
                    (
                        own.start as i64,
                        (own.start + own.interval.size_bytes) as i64,
                    )
                };
                let ((a_low, a_high), (b_low, b_high)) = (ends(a), ends(b));
                found.push(((a.buffer, b.buffer), (a_low - b_high, a_high - b_low)));
            }
            live.push(piece);
            match moments.last_mut() {
                Some(last) if is_same => last.clone_from(&live),
                _ => moments.push(live.clone()),
            }
            if found.len() > MAX_PAIRS || deadline.has_passed() {
                return None;
            }
        }
        found.sort_unstable();
        let mut pairs: Vec<Pair> = Vec::new();
        for ((first, second), (low, high)) in found {
            match pairs.last_mut() {
                Some(last) if (last.first, last.second) == (first, second) => {
                    // If two intervals only touch, the difference between them is allowed.
                    match last.forbidden.last_mut() {
                        Some(before) if low < before.1 => before.1 = before.1.max(high),
                        _ => last.forbidden.push((low, high)),
                    }
                }
                _ => pairs.push(Pair {
                    first,
                    second,
                    forbidden: vec![(low, high)],
                }),
            }
        }
        let size = |index: u32| buffers[index as usize].interval.size_bytes;
        // The search resolves conflicts of large buffers first.
        pairs.sort_by_key(|pair| std::cmp::Reverse(size(pair.first).min(size(pair.second))));
        Some(Self { pairs, moments })
    }
}
