//! Allocators side by side on one program: where they put things, and how long it takes them.

use std::time::Duration;

use cachescope::PoolKind;

use crate::peers::{Glibc, Jemalloc, Mimalloc};
use crate::placers::{Malloc, Offsets, Placer, Pool, Ranges, SubSlices, Virtual};
use crate::program::{Blocks, Program};
use crate::race::{Figure, Race, thread_time};

/// The figures of one allocator.
#[derive(Clone, Debug)]
pub struct Placement {
    pub name: String,
    /// Nanoseconds of processor time a step, the median over the rounds.
    pub nanos: f64,
    /// The time against the first allocator's, round by round.
    pub ratio: f64,
    /// The highest end of a block over the most that was live; `None` where there is no region.
    pub spread: Option<f64>,
}

/// Those who are compared.
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

    /// Adds an allocator. It plays the program once in its empty region, which gives its spread;
    /// what is timed is the same program again and again in the same region, as a training loop
    /// has it.
    pub fn add<P: Placer + 'a>(&mut self, name: &str, mut placer: P) {
        let program = self.program;
        let mut blocks = Blocks::default();
        self.add_spread(&mut placer, &mut blocks);
        self.race.add_timed(name, move |n| {
            let passes = (0..n).map(|_| time(program, &mut placer, &mut blocks));
            passes.sum()
        });
    }

    /// Adds a contestant whose every pass begins with an empty region.
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

    /// This library's default pool, which the others are held to.
    pub fn add_best_fit(&mut self) {
        self.add("best_fit", Pool::new(PoolKind::BestFit));
    }

    /// This library's pools.
    pub fn add_pools(&mut self) {
        self.add_best_fit();
        let best_fit = || Pool::new(PoolKind::BestFit);
        self.add_growing("best_fit, growing", best_fit);
        self.add("binned", Pool::new(PoolKind::Binned));
        self.add("direct", Pool::new(PoolKind::Direct));
    }

    /// The allocators that cut a region and take about as long as each other.
    pub fn add_regions(&mut self) {
        self.add("offset-allocator", Offsets::default());
        self.add("VMA", Virtual::default());
        self.add("range-alloc", Ranges::default());
    }

    pub fn add_sub_slices(&mut self) {
        self.add("cubecl", SubSlices::default());
    }

    /// The allocators that take ten times as long, and those that ask the operating system.
    pub fn add_slow(&mut self) {
        self.add_sub_slices();
        self.add("glibc", Malloc::<Glibc>::default());
        self.add("jemalloc", Malloc::<Jemalloc>::default());
        self.add("mimalloc", Malloc::<Mimalloc>::default());
    }

    /// Runs the rounds.
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

/// Has this library's pools and their peers play `program`. The fast ones take turns; those that
/// `add_slow` adds take turns among themselves, a sixth of the rounds, so that they do not empty
/// the caches of the others.
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

/// One pass, in processor time: it lasts long enough to be interrupted.
fn time<P: Placer>(program: &Program, placer: &mut P, blocks: &mut Blocks<P>) -> Duration {
    let start = thread_time();
    program.play(placer, blocks);
    thread_time() - start
}

/// Prints a table of times and spreads.
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
