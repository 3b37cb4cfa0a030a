//! Runs the random program of `benches/random.rs` repeatedly with one allocator, for a profiler
//! that counts instructions. `place best-fit 1 2` runs sizes up to 1 MiB, twice.
//!
//! The difference between a run of 12 repetitions and a run of 2 repetitions is the cost of 200,000
//! steps:
//!
//! ```text
//! cargo build --profile bench --manifest-path benches/peers/Cargo.toml --example place
//! valgrind --tool=callgrind benches/peers/target/release/examples/place best-fit 1 2
//! valgrind --tool=callgrind benches/peers/target/release/examples/place best-fit 1 12
//! ```

use cachescope::PoolKind;
use cachescope_peers::placers::{Offsets, Placer, Pool, Ranges, Virtual};
use cachescope_peers::program::{Blocks, Program};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [who, most_mib, times] = arguments.as_slice() else {
        panic!("usage: place best-fit|offset-allocator|vma|range-alloc MIB TIMES");
    };
    let most_mib: u64 = most_mib.parse().expect("a number of MiB");
    let times: u32 = times.parse().expect("a number of times");
    let program = Program::random(10_000, most_mib << 20, 1);
    match who.as_str() {
        "best-fit" => play(&program, times, Pool::new(PoolKind::BestFit)),
        "offset-allocator" => play(&program, times, Offsets::default()),
        "vma" => play(&program, times, Virtual::default()),
        "range-alloc" => play(&program, times, Ranges::default()),
        other => panic!("{other} is not among them"),
    }
}

fn play<P: Placer>(program: &Program, times: u32, mut placer: P) {
    let mut blocks = Blocks::default();
    for _ in 0..times {
        program.play(&mut placer, &mut blocks);
    }
}
