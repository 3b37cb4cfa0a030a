//! One thing again and again, for a profiler to count: `repeat hit 11000`, `repeat scope 11000`,
//! `repeat miss 11000` (a scope whose exit releases the block), `repeat outside 11000` (of every
//! scope), and under a policy, 64 times to an entry, `repeat bump 11008`, `repeat plan 11008`.
//!
//! Two runs, 10,000 repetitions apart, differ by what those take:
//!
//! ```text
//! cargo build --release --manifest-path benches/peers/Cargo.toml --example repeat
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 1000
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 11000
//! ```

use std::hint::black_box;

use cachescope::{Buffer, CacheConfig, Device, Policy, Result, cache_scope};

/// The number of requests in one entry under a policy.
const REQUESTS: u64 = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, times] = arguments.as_slice() else {
        panic!("usage: repeat hit|miss|outside|scope|recycle|bump|plan TIMES");
    };
    let times: u64 = times.parse().expect("a number of times");
    let device = Device::host();
    match what.as_str() {
        "hit" => cache_scope!("hit", {
            for _ in 0..times {
                drop(black_box(Buffer::new(&device, black_box(4096))?));
            }
        }),
        "miss" => {
            for _ in 0..times {
                cache_scope!("miss", policy = Policy::Release, {
                    drop(black_box(Buffer::new(&device, black_box(4096))?));
                });
            }
        }
        "outside" => {
            for _ in 0..times {
                drop(black_box(Buffer::new(&device, black_box(4096))?));
            }
        }
        "scope" => {
            for _ in 0..times {
                cache_scope!("empty", { black_box(()) });
            }
        }
        policy => entries(&device, policy.parse()?, times / REQUESTS)?,
    }
    Ok(())
}

fn entries(device: &Device, policy: Policy, entries: u64) -> Result<()> {
    let config = CacheConfig {
        policy,
        ..Default::default()
    };
    device.configure_cache("entries", config);
    for _ in 0..entries {
        cache_scope!("entries", {
            for _ in 0..REQUESTS {
                drop(black_box(Buffer::new(device, black_box(4096))?));
            }
        });
    }
    Ok(())
}
