//! Repeats an operation, for a profiler that counts instructions: `repeat hit 11000`. `repeat miss
//! 11000` enters a scope whose exit releases the block. `repeat outside 11000` runs outside of all
//! scopes. `repeat bump 11008` and `repeat plan 11008` make 64 requests per entry under a policy.
//! `repeat one-hit 11000` makes one request per entry.
//!
//! `repeat scope 11000` enters an empty scope by a literal name. `repeat computed 11000` enters it
//! by a computed name, and `repeat handle 11000` by a handle. A third argument selects the policy
//! of the empty scope.
//!
//! The difference between two runs that are 10,000 repetitions apart is the cost of 10,000
//! repetitions:
//!
//! ```text
//! cargo build --release --manifest-path benches/peers/Cargo.toml --example repeat
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 1000
//! valgrind --tool=callgrind benches/peers/target/release/examples/repeat hit 11000
//! ```

use std::hint::black_box;

use cachescope::{Buffer, CacheConfig, Device, Policy, Result, cache_scope};

/// The number of requests per entry under a policy.
const REQUESTS: u64 = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, times, rest @ ..] = arguments.as_slice() else {
        panic!(
            "usage: repeat hit|miss|outside|scope|computed|handle|one-hit|recycle|bump|plan TIMES [POLICY]"
        );
    };
    let times: u64 = times.parse().expect("a number of times");
    let device = Device::host();
    if let [policy, ..] = rest {
        configure(&device, "empty", policy.parse()?);
    }
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
        "computed" => {
            for _ in 0..times {
                cache_scope!(black_box("empty"), { black_box(()) });
            }
        }
        "handle" => {
            let handle = device.scope("empty");
            for _ in 0..times {
                let _guard = black_box(&handle).enter();
            }
        }
        "one-hit" => {
            for _ in 0..times {
                cache_scope!("empty", {
                    drop(black_box(Buffer::new(&device, black_box(4096))?));
                });
            }
        }
        policy => entries(&device, policy.parse()?, times / REQUESTS)?,
    }
    Ok(())
}

fn configure(device: &Device, name: &str, policy: Policy) {
    let config = CacheConfig {
        policy,
        ..Default::default()
    };
    device.configure_cache(name, config);
}

fn entries(device: &Device, policy: Policy, entries: u64) -> Result<()> {
    configure(device, "entries", policy);
    for _ in 0..entries {
        cache_scope!("entries", {
            for _ in 0..REQUESTS {
                drop(black_box(Buffer::new(device, black_box(4096))?));
            }
        });
    }
    Ok(())
}
