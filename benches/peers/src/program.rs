//! Recorded sequences of allocations and frees, so that all allocators run the same sequence.

use std::hint::black_box;

use cachescope_tools::trace::{Lifetime, TraceEvent};
use fastrand::Rng;

use crate::placers::Placer;

/// The percentage of allocations among the steps of the random program.
const ALLOCATING_PERCENT: u8 = 73;
/// The maximum of the live bytes of the random program.
const MOST_LIVE_BYTES: u64 = 16_000 << 20;

/// A sequence of steps. It frees all its allocations.
#[derive(Clone, Debug, Default)]
pub struct Program {
    steps: Vec<TraceEvent>,
    /// The number of slots that the steps use.
    slots: u32,
    vacant: Vec<u32>,
    live_bytes: u64,
    peak_live_bytes: u64,
}

impl Program {
    /// Returns the program of RMM's `random_allocations`. It makes `allocations` allocations, and
    /// an equal number of frees of random live blocks. Sizes are uniform from 1 to `most_bytes`.
    pub fn random(allocations: usize, most_bytes: u64, seed: u64) -> Self {
        let mut program = Self::default();
        let mut random = Rng::with_seed(seed);
        let (mut live, mut allocated) = (Vec::new(), 0);
        for _ in 0..2 * allocations {
            let bytes = random.u64(1..=most_bytes);
            let wants = live.is_empty() || random.u8(0..100) < ALLOCATING_PERCENT;
            let may = allocated < allocations && program.live_bytes + bytes < MOST_LIVE_BYTES;
            if wants && may {
                live.push((program.allocate(bytes), bytes));
                allocated += 1;
            } else {
                let index = random.usize(0..live.len());
                let (slot, bytes) = live.swap_remove(index);
                program.free(slot, bytes);
            }
        }
        program
    }

    /// Returns the steps of `lifetimes` in time order. At equal times, frees precede allocations.
    /// Frees and allocations each keep the order of `lifetimes`.
    pub fn of_lifetimes(lifetimes: &[Lifetime]) -> Self {
        let mut events = Vec::new();
        for (index, lifetime) in lifetimes.iter().enumerate() {
            if lifetime.occupies() {
                events.push((lifetime.lower, true, index));
                events.push((lifetime.upper, false, index));
            }
        }
        events.sort_unstable();
        let mut program = Self::default();
        let mut slots = vec![0; lifetimes.len()];
        for (_, allocates, index) in events {
            let bytes = lifetimes[index].size_bytes;
            if allocates {
                slots[index] = program.allocate(bytes);
            } else {
                program.free(slots[index], bytes);
            }
        }
        program
    }

    fn allocate(&mut self, bytes: u64) -> u32 {
        let slot = self.vacant.pop().unwrap_or(self.slots);
        self.slots = self.slots.max(slot + 1);
        self.live_bytes += bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.steps.push(TraceEvent::Allocate { slot, bytes });
        slot
    }

    fn free(&mut self, slot: u32, bytes: u64) {
        self.live_bytes -= bytes;
        self.vacant.push(slot);
        self.steps.push(TraceEvent::Free { slot });
    }

    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Returns the peak of the live bytes.
    pub fn peak_live_bytes(&self) -> u64 {
        self.peak_live_bytes
    }

    pub fn play<P: Placer>(&self, placer: &mut P, blocks: &mut Blocks<P>) {
        blocks.0.resize_with(self.slots as usize, || None);
        for &step in &self.steps {
            match step {
                TraceEvent::Allocate { slot, bytes } => {
                    let block = placer.allocate(black_box(bytes));
                    blocks.0[slot as usize] = Some(black_box(block));
                }
                TraceEvent::Free { slot } => {
                    let block = blocks.0[slot as usize].take();
                    placer.free(block.expect("the program allocated it"));
                }
                other => unreachable!("{other:?} in a program of allocations and frees"),
            }
        }
    }
}

/// Storage for the live blocks of a run. Later runs reuse it.
#[derive(Debug)]
pub struct Blocks<P: Placer>(Vec<Option<P::Block>>);

impl<P: Placer> Default for Blocks<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
