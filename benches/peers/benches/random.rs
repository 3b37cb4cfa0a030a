//! Benchmark W1: random allocations, as in RMM's `random_allocations`. The benchmark measures the
//! speed and the packing of region allocators. No memory is touched.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench random [-- ROUNDS | --quick]`
//!
//! All allocators run the same recorded programs.

use cachescope_peers::line_up::{LineUp, Placement, print_space_and_time, run};
use cachescope_peers::program::Program;
use cachescope_peers::race::median;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const ALLOCATIONS: usize = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let rounds = given.unwrap_or(if quick { 3 } else { 31 });
    let seeds = if quick { &SEEDS[..1] } else { &SEEDS };
    println!("{ALLOCATIONS} allocations and as many frees; medians of {rounds} rounds each with");
    println!(
        "{} seeds (a sixth of the rounds from cubecl on)",
        seeds.len()
    );
    println!("x: against the first row, round by round; spread: reserved / live, at their peaks");
    for (most_bytes, name) in [(1 << 20, "1 MiB"), (64 << 20, "64 MiB"), (1 << 30, "1 GiB")] {
        let runs: Vec<_> = seeds
            .iter()
            .map(|&seed| {
                let program = Program::random(ALLOCATIONS, most_bytes, seed);
                run(&program, rounds, LineUp::add_slow)
            })
            .collect();
        print_space_and_time(&format!("sizes up to {name}"), &medians(&runs));
    }
}

/// Returns the medians over the runs, for each allocator.
fn medians(runs: &[Vec<Placement>]) -> Vec<Placement> {
    let first = runs.first().expect("there is a seed");
    let over = |index: usize, figure: fn(&Placement) -> f64| {
        median(runs.iter().map(|run| figure(&run[index])))
    };
    let placement = |(index, own): (usize, &Placement)| Placement {
        name: own.name.clone(),
        nanos: over(index, |own| own.nanos),
        ratio: over(index, |own| own.ratio),
        spread: own
            .spread
            .map(|_| over(index, |own| own.spread.unwrap_or(f64::NAN))),
    };
    first.iter().enumerate().map(placement).collect()
}
