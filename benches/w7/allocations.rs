//! Allocations and drops of buffers: the hit, the pool, and random allocations (W1 and W4).

use std::hint::black_box;
use std::time::{Duration, Instant};

use cachescope::{Buffer, Device, PoolKind, Result, cache_scope};
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::{Outcome, Work};

/// The number of live blocks in the test with a random order.
const LIVE: usize = 64;
/// The percentage of allocations among the steps of the random program.
const ALLOCATING_PERCENT: u64 = 73;
const ALLOCATIONS: usize = 10_000;

/// The allocation and the drop of one buffer.
pub(crate) struct Hit {
    device: Device,
    bytes: usize,
    in_scope: bool,
}

impl Hit {
    pub(crate) fn new(device: &Device, bytes: usize, in_scope: bool) -> Self {
        Self {
            device: device.clone(),
            bytes,
            in_scope,
        }
    }

    #[inline]
    fn pairs(&self, times: u64) -> Result<()> {
        for _ in 0..times {
            drop(black_box(Buffer::new(&self.device, black_box(self.bytes))?));
        }
        Ok(())
    }
}

impl Work for Hit {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        if self.in_scope {
            cache_scope!("w7-hit", { self.pairs(times) })?;
        } else {
            self.pairs(times)?;
        }
        Ok(start.elapsed())
    }
}

/// The replacement of live buffers in random order. One of `LIVE` buffers is freed, and a buffer of
/// equal size is allocated.
pub(crate) struct Churn {
    device: Device,
    bytes: usize,
    order: Vec<usize>,
}

impl Churn {
    pub(crate) fn new(device: &Device, bytes: usize) -> Self {
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        let order = (0..4096).map(|_| random.below(LIVE as u64) as usize);
        Self {
            device: device.clone(),
            bytes,
            order: order.collect(),
        }
    }
}

impl Work for Churn {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        cache_scope!("w7-churn", {
            let buffers = (0..LIVE).map(|_| Buffer::new(&self.device, self.bytes));
            let mut live: Vec<Option<Buffer>> = buffers
                .map(|buffer| buffer.map(Some))
                .collect::<Result<_>>()?;
            let start = Instant::now();
            for &slot in self.order.iter().cycle().take(times as usize) {
                live[slot] = None;
                live[slot] = Some(black_box(Buffer::new(&self.device, black_box(self.bytes))?));
            }
            Ok(start.elapsed())
        })
    }

    fn check(&mut self) -> Outcome<Value> {
        Ok(json!({ "live": LIVE, "order": self.order }))
    }
}

/// The entry and the exit of an empty scope.
pub(crate) struct Entry;

impl Work for Entry {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            cache_scope!("w7-empty", { black_box(()) });
        }
        Ok(start.elapsed())
    }
}

/// The program of RMM's `random_allocations`. Sizes are uniform from 1 to the maximum. Each
/// allocation is matched by a free of a random live block.
pub(crate) struct Program {
    /// The slot and the bytes of each step. A step of 0 bytes frees the slot's block.
    pub(crate) steps: Vec<(usize, usize)>,
    pub(crate) slots: usize,
    pub(crate) peak_live_bytes: u64,
}

impl Program {
    pub(crate) fn new(most_live_bytes: u64, most_bytes: u64) -> Self {
        let mut random = Random(1);
        let mut program = Self {
            steps: Vec::with_capacity(2 * ALLOCATIONS),
            slots: 0,
            peak_live_bytes: 0,
        };
        let (mut live, mut vacant) = (Vec::new(), Vec::new());
        let (mut live_bytes, mut allocated) = (0, 0);
        while program.steps.len() < 2 * ALLOCATIONS {
            let bytes = 1 + random.below(most_bytes);
            let wants = live.is_empty() || random.below(100) < ALLOCATING_PERCENT;
            if wants && allocated < ALLOCATIONS && live_bytes + bytes < most_live_bytes {
                let slot = vacant.pop().unwrap_or_else(|| {
                    program.slots += 1;
                    program.slots - 1
                });
                live.push((slot, bytes));
                program.steps.push((slot, bytes as usize));
                live_bytes += bytes;
                allocated += 1;
                program.peak_live_bytes = program.peak_live_bytes.max(live_bytes);
            } else {
                let index = random.below(live.len() as u64) as usize;
                let (slot, bytes) = live.swap_remove(index);
                program.steps.push((slot, 0));
                vacant.push(slot);
                live_bytes -= bytes;
            }
        }
        program
    }

    pub(crate) fn to_json(&self) -> Value {
        let (slots, sizes): (Vec<_>, Vec<_>) = self.steps.iter().copied().unzip();
        json!({
            "slots": slots,
            "sizes": sizes,
            "slot_count": self.slots,
            "peak_live_bytes": self.peak_live_bytes,
        })
    }
}

/// The random program, on the pool of a separate device, outside of all scopes.
pub(crate) struct RandomBuffers {
    device: Device,
    program: Program,
    live: Vec<Option<Buffer>>,
}

impl RandomBuffers {
    pub(crate) fn new(settings: &Settings, most_bytes: u64) -> Outcome<Self> {
        let program = Program::new(settings.live_bytes, most_bytes);
        Ok(Self {
            device: settings.fresh_device(PoolKind::BestFit, None)?,
            live: (0..program.slots).map(|_| None).collect(),
            program,
        })
    }
}

impl Work for RandomBuffers {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            for &(slot, bytes) in &self.program.steps {
                self.live[slot] = match bytes {
                    0 => None,
                    bytes => Some(Buffer::new(&self.device, black_box(bytes))?),
                };
            }
        }
        Ok(start.elapsed())
    }

    fn pieces(&self) -> u64 {
        self.program.steps.len() as u64
    }

    fn check(&mut self) -> Outcome<Value> {
        Ok(self.program.to_json())
    }

    fn extra(&self) -> Value {
        json!({
            "peak_reserved_bytes": self.device.memory_stats().peak_reserved_bytes,
            "peak_live_bytes": self.program.peak_live_bytes,
        })
    }
}

/// A linear congruential generator, of which the high bits are used.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32).wrapping_mul(bound) >> 32
    }
}
