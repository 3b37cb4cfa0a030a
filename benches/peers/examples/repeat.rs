//! One thing again and again, for a profiler to count: `repeat hit 11000`, `repeat scope 11000`.
//!
//! Two runs, 10,000 repetitions apart, differ by what those take:
//!
//! ```text
//! cargo build --release --manifest-path benches/peers/Cargo.toml --example repeat
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 1000
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 11000
//! ```

use std::hint::black_box;

use cachescope::{Buffer, Device, Result, cache_scope};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, times] = arguments.as_slice() else {
        panic!("usage: repeat hit|scope TIMES");
    };
    let times: u64 = times.parse().expect("a number of times");
    let device = Device::host();
    match what.as_str() {
        "hit" => cache_scope!("hit", {
            for _ in 0..times {
                drop(black_box(Buffer::new(&device, black_box(4096))?));
            }
        }),
        "scope" => {
            for _ in 0..times {
                cache_scope!("empty", { black_box(()) });
            }
        }
        other => panic!("{other} is neither hit nor scope"),
    }
    Ok(())
}
