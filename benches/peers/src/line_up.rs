//! Compares allocators on one program: the placement of blocks, and the time.

use std::time::Duration;

use cachescope::PoolKind;

use crate::peers::{Glibc, Jemalloc, Mimalloc};
use crate::placers::{Malloc, Offsets, Placer, Pool, Ranges, SubSlices, Virtual};
use crate::program::{Blocks, Program};
use crate::race::{Figure, Race, thread_time};

#[derive(Clone, Debug)]
pub struct Placement {
    pub name: String,
    /// The CPU time per step in nanoseconds, as the median over the rounds.
    pub nanos: f64,
    /// The ratio to the first allocator's time, as the median over the rounds.
    pub ratio: f64,
    /// The ratio of the highest end of a block to the peak of the live bytes; `None` without a
    /// region.
    pub spread: Option<f64>,
}

pub struct LineUp<'a> {
    program: &'a Program,
    race: Race<'a>,
    spreads: Vec<Option<f64>>,
}

impl<'a> LineUp<'a> {
    pub fn new(program: &'a Program) -> Self {
        Self {
            program,
            race: Race::default(),
            spreads: Vec::new(),
        }
    }

    /// Adds an allocator. A first run of the program in an empty region determines the spread. The
    /// timed runs repeat the program in this region, like a training loop.
    pub fn add<P: Placer + 'a>(&mut self, name: &str, mut placer: P) {
        let program = self.program;
        let mut blocks = Blocks::default();
        self.add_spread(&mut placer, &mut blocks);
        self.race.add_timed(name, move |n| {
            let passes = (0..n).map(|_| time(program, &mut placer, &mut blocks));
            passes.sum()
        });
    }

    /// Adds an allocator that starts each run with an empty region.
    pub fn add_growing<P: Placer + 'a>(&mut self, name: &str, make: impl Fn() -> P + 'a) {
        let program = self.program;
        let mut blocks = Blocks::default();
        self.add_spread(&mut make(), &mut blocks);
        self.race.add_timed(name, move |n| {
            let passes = (0..n).map(|_| time(program, &mut make(), &mut blocks));
            passes.sum()
        });
    }

    fn add_spread<P: Placer>(&mut self, placer: &mut P, blocks: &mut Blocks<P>) {
        self.program.play(placer, blocks);
        let live = self.program.peak_live_bytes() as f64;
        let reserved = placer.peak_reserved_bytes();
        self.spreads.push(reserved.map(|bytes| bytes as f64 / live));
    }

    /// Adds this library's default pool, which is the baseline.
    pub fn add_best_fit(&mut self) {
        self.add("best_fit", Pool::new(PoolKind::BestFit));
    }

    /// Adds this library's pools.
    pub fn add_pools(&mut self) {
        self.add_best_fit();
        let best_fit = || Pool::new(PoolKind::BestFit);
        self.add_growing("best_fit, growing", best_fit);
        self.add("binned", Pool::new(PoolKind::Binned));
        self.add("direct", Pool::new(PoolKind::Direct));
    }

    /// Adds the region allocators with comparable times.
    pub fn add_regions(&mut self) {
        self.add("offset-allocator", Offsets::default());
        self.add("VMA", Virtual::default());
        self.add("range-alloc", Ranges::default());
    }

    pub fn add_sub_slices(&mut self) {
        self.add("cubecl", SubSlices::default());
    }

    /// Adds allocators that are about ten times slower, and allocators that reserve memory from the
    /// operating system.
    pub fn add_slow(&mut self) {
        self.add_sub_slices();
        self.add("glibc", Malloc::<Glibc>::default());
        self.add("jemalloc", Malloc::<Jemalloc>::default());
        self.add("mimalloc", Malloc::<Mimalloc>::default());
    }

    pub fn run(self, rounds: usize) -> Vec<Placement> {
        let steps = self.program.steps() as f64;
        let figures = self.race.run(rounds).into_iter();
        let placement = |(Figure { name, nanos, ratio }, spread)| Placement {
            name,
            nanos: nanos / steps,
            ratio,
            spread,
        };
        figures.zip(self.spreads).map(placement).collect()
    }
}

/// Runs `program` with this library's pools and with the peers. The fast allocators alternate. The
/// allocators that `add_slow` adds alternate in a separate race, with a sixth of the rounds. In a
/// common race, they would evict the fast allocators' data from the CPU caches.
pub fn run<'a>(
    program: &'a Program,
    rounds: usize,
    add_slow: impl FnOnce(&mut LineUp<'a>),
) -> Vec<Placement> {
    let mut fast = LineUp::new(program);
    fast.add_pools();
    fast.add_regions();
    let mut slow = LineUp::new(program);
    slow.add_best_fit();
    add_slow(&mut slow);
    let mut placements = fast.run(rounds);
    placements.extend(slow.run(rounds.div_ceil(6)).into_iter().skip(1));
    placements
}

/// Returns the CPU time of a run. The wall time of a long run would include interruptions.
fn time<P: Placer>(program: &Program, placer: &mut P, blocks: &mut Blocks<P>) -> Duration {
    let start = thread_time();
    program.play(placer, blocks);
    thread_time() - start
}

pub fn print_space_and_time(title: &str, placements: &[Placement]) {
    println!("\n{title}");
    println!("  {:<20} {:>10} {:>9} {:>8}", "", "ns/step", "x", "spread");
    for own in placements {
        let spread = own
            .spread
            .map_or("-".to_owned(), |spread| format!("{spread:.4}"));
        let Placement {
            name, nanos, ratio, ..
        } = own;
        println!("  {name:<20} {nanos:>10.1} {ratio:>9.2} {spread:>8}");
    }
}
