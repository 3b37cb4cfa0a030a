//! Benchmark W4, the cache hit: a buffer is allocated and dropped in a scope whose cache has it
//! idle. The time is compared with the times of widely used allocators.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench hit [-- ROUNDS]`
//!
//! The first row of each table is malloc and free of 256 bytes with mimalloc. The other rows are
//! compared with this row.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use cachescope::{CacheConfig, Device, Policy, cache_scope};
use cachescope_peers::peers::{Buffers, Glibc, Jemalloc, LockedMap, Mimalloc, Offsets, Pair};
use cachescope_peers::race::{Race, pin_thread, print_table, thread_time};

/// The block size of the baseline in bytes.
const UNIT_BYTES: usize = 256;
const UNIT: &str = "mimalloc 256 B (the measure)";

/// The number of live blocks in the tests with a random order.
const LIVE: usize = 64;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let rounds = numbers.next().unwrap_or(31);
    println!("medians of {rounds} rounds; x: against the first row, round by round");
    for (bytes, name) in [
        (256, "256 B"),
        (4 << 10, "4 KiB"),
        (64 << 10, "64 KiB"),
        (1 << 20, "1 MiB"),
        (64 << 20, "64 MiB"),
    ] {
        one_buffer(bytes, name, rounds);
    }
    policies(rounds);
    random_order("of 4 KiB", [4 << 10; LIVE], rounds);
    random_order("of 256 B to 64 KiB", mixed_sizes(), rounds);
    scopes(rounds);
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        empty_scopes(policy, rounds);
    }
    two_threads(rounds);
}

/// Returns a function that allocates and frees `n` times.
#[inline]
fn pairs<P: Pair>(mut peer: P, bytes: usize) -> impl FnMut(u64) {
    move |n| {
        for _ in 0..n {
            let block = black_box(peer.allocate(black_box(bytes)));
            peer.free(block);
        }
    }
}

fn race<'a>() -> Race<'a> {
    let mut race = Race::default();
    race.add(UNIT, pairs(Mimalloc, UNIT_BYTES));
    race
}

fn in_scope(mut run: impl FnMut(u64)) -> impl FnMut(u64) {
    move |n| cache_scope!("hit", { run(n) })
}

fn one_buffer(bytes: usize, name: &str, rounds: usize) {
    let map = LockedMap::default();
    let buffers = || Buffers(Device::host());
    let mut race = race();
    race.add("cachescope, hit", in_scope(pairs(buffers(), bytes)));
    race.add("cachescope, no scope (the pool)", pairs(buffers(), bytes));
    race.add("mimalloc", pairs(Mimalloc, bytes));
    race.add("jemalloc", pairs(Jemalloc, bytes));
    race.add("glibc", pairs(Glibc, bytes));
    race.add("offset-allocator", pairs(Offsets::default(), bytes));
    race.add("locked map", pairs(&map, bytes));
    let title = format!("one buffer of {name}, allocated and freed");
    print_table(&title, &race.run(rounds));
}

/// Times entries under each policy. An entry makes `LIVE` requests. The printed time includes the
/// entry itself.
fn policies(rounds: usize) {
    let device = &Device::host();
    let entries = |enter: fn(&mut dyn FnMut())| {
        let mut requests = pairs(Buffers(device.clone()), 4 << 10);
        move |n: u64| {
            for _ in 0..n / LIVE as u64 {
                enter(&mut || requests(LIVE as u64));
            }
        }
    };
    let mut race = race();
    race.add("jemalloc 256 B", pairs(Jemalloc, UNIT_BYTES));
    race.add(
        "cachescope, Recycle",
        entries(|run| cache_scope!("recycle", { run() })),
    );
    race.add(
        "cachescope, Bump",
        entries(|run| cache_scope!("bump", policy = Policy::Bump, { run() })),
    );
    race.add(
        "cachescope, Plan",
        entries(|run| cache_scope!("plan", policy = Policy::Plan, { run() })),
    );
    let title = format!("4 KiB, allocated and freed, {LIVE} to an entry, which counts too");
    print_table(&title, &race.run(rounds));
}

/// Returns a function that replaces `n` random live blocks by blocks of equal size.
fn churn<P: Pair>(mut peer: P, sizes: [usize; LIVE]) -> impl FnMut(u64) {
    let order = random_order_of_slots();
    let mut live: Vec<Option<P::Block>> = Vec::new();
    move |n| {
        // The blocks are allocated in the scope of the batch. So each batch begins its entry
        // without escaped blocks.
        live.extend(sizes.iter().map(|&bytes| Some(peer.allocate(bytes))));
        for &slot in order.iter().cycle().take(n as usize) {
            let block = live[slot].take();
            peer.free(block.expect("every slot is live"));
            live[slot] = Some(black_box(peer.allocate(black_box(sizes[slot]))));
        }
        for block in live.drain(..) {
            peer.free(block.expect("every slot is live"));
        }
    }
}

fn random_order(name: &str, sizes: [usize; LIVE], rounds: usize) {
    let map = LockedMap::default();
    let buffers = || Buffers(Device::host());
    let mut race = race();
    race.add("cachescope, hit", in_scope(churn(buffers(), sizes)));
    race.add("cachescope, no scope (the pool)", churn(buffers(), sizes));
    race.add("mimalloc", churn(Mimalloc, sizes));
    race.add("jemalloc", churn(Jemalloc, sizes));
    race.add("glibc", churn(Glibc, sizes));
    race.add("offset-allocator", churn(Offsets::default(), sizes));
    race.add("locked map", churn(&map, sizes));
    let title = format!("{LIVE} live {name}, in random order: one freed, one allocated");
    print_table(&title, &race.run(rounds));
}

/// Returns sizes in which all powers of two are about equally frequent.
fn mixed_sizes() -> [usize; LIVE] {
    std::array::from_fn(|slot| 256 << (slot % 9))
}

/// Returns a fixed pseudo-random sequence of slots.
fn random_order_of_slots() -> Vec<usize> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let slots = std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) as usize % LIVE
    });
    slots.take(4096).collect()
}

fn scopes(rounds: usize) {
    let device = Device::host();
    let handle = device.scope("handle");
    let mut race = race();
    race.add("empty, literal name", |n| {
        for _ in 0..n {
            cache_scope!("empty", { black_box(()) });
        }
    });
    race.add("empty, nested in another", |n| {
        cache_scope!("outer", {
            for _ in 0..n {
                cache_scope!("inner", { black_box(()) });
            }
        });
    });
    race.add("empty, computed name", |n| {
        for _ in 0..n {
            cache_scope!(black_box("computed"), { black_box(()) });
        }
    });
    race.add("empty, by a handle", |n| {
        for _ in 0..n {
            let _guard = black_box(&handle).enter();
        }
    });
    race.add("with one hit of 4 KiB", |n| {
        for _ in 0..n {
            cache_scope!("one-hit", { black_box(buffer(&device)) });
        }
    });
    race.add("with one miss of 4 KiB (Release)", |n| {
        for _ in 0..n {
            cache_scope!("one-miss", policy = Policy::Release, {
                black_box(buffer(&device))
            });
        }
    });
    print_table("a scope entered and left", &race.run(rounds));
}

/// Times empty scopes whose cache has the given policy.
fn empty_scopes(policy: Policy, rounds: usize) {
    let device = Device::host();
    let name = format!("empty-{policy}");
    let config = CacheConfig {
        policy,
        ..CacheConfig::default()
    };
    device.configure_cache("by-policy", config);
    device.configure_cache(&name, config);
    let handle = device.scope(&name);
    let mut race = race();
    race.add("a literal", |n| {
        for _ in 0..n {
            cache_scope!("by-policy", { black_box(()) });
        }
    });
    race.add("a computed name", |n| {
        for _ in 0..n {
            cache_scope!(black_box(&name), { black_box(()) });
        }
    });
    race.add("a handle", |n| {
        for _ in 0..n {
            let _guard = black_box(&handle).enter();
        }
    });
    race.add("a literal, with one hit of 4 KiB", |n| {
        for _ in 0..n {
            cache_scope!("by-policy", { black_box(buffer(&device)) });
        }
    });
    print_table(&format!("an empty scope under {policy}"), &race.run(rounds));
}

fn buffer(device: &Device) -> u64 {
    let buffer = cachescope::Buffer::new(device, 4096).expect("the host has room");
    buffer.address()
}

/// Wraps `work` in a function that returns the CPU time of the calling thread.
fn alone(work: impl Fn(u64)) -> impl FnMut(u64) -> Duration {
    move |n| {
        let start = thread_time();
        work(n);
        thread_time() - start
    }
}

/// Returns a function that runs `work` on two threads concurrently, each pinned to a separate
/// processor. The returned function returns the CPU time of the slower thread.
fn together(work: impl Fn(u64) + Sync) -> impl FnMut(u64) -> Duration {
    move |n| {
        let barrier = Barrier::new(2);
        let timed = &|processor| {
            pin_thread(processor);
            work(64); // Warms up the thread.
            barrier.wait();
            alone(&work)(n)
        };
        std::thread::scope(|scope| {
            let threads = [0, 1].map(|processor| scope.spawn(move || timed(processor)));
            let times = threads.map(|thread| thread.join().expect("the thread ends"));
            times[0].max(times[1])
        })
    }
}

fn two_threads(rounds: usize) {
    let device = Device::host();
    let map = LockedMap::default();
    // Long batches ensure that the two threads overlap.
    let mut race = Race::default().batch(Duration::from_millis(5));
    race.add_timed(UNIT, alone(|n| pairs(Mimalloc, UNIT_BYTES)(n)));
    add_both(&mut race, "cachescope, one name", |n| {
        in_scope(pairs(Buffers(device.clone()), 4096))(n);
    });
    add_both(&mut race, "mimalloc", |n| pairs(Mimalloc, 4096)(n));
    add_both(&mut race, "jemalloc", |n| pairs(Jemalloc, 4096)(n));
    add_both(&mut race, "glibc", |n| pairs(Glibc, 4096)(n));
    add_both(&mut race, "locked map", |n| pairs(&map, 4096)(n));
    let title = "4 KiB, a thread alone and two at once; processor time of the slower one";
    print_table(title, &race.run(rounds));
}

fn add_both<'a>(race: &mut Race<'a>, name: &str, work: impl Fn(u64) + Sync + Copy + 'a) {
    race.add_timed(format!("{name}, alone"), alone(work));
    race.add_timed(format!("{name}, two"), together(work));
}
