//! Tests under a memory limit. Before a request fails, idle memory of every kind is reclaimed for
//! it.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::*;
use crate::memory::Census;
use crate::size::ByteSize;
use crate::sync::AtomicBool;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 16 * MIB;

/// Returns caches with a memory limit. Their requests wait up to `reclaim_wait`.
fn limited(reclaim_wait: Duration) -> CachesRef {
    let config = MemoryConfig {
        limit_bytes: Some(LIMIT),
        reclaim_wait,
        ..MemoryConfig::default()
    };
    let memory = DeviceMemory::new(Arc::new(HostBackend::new()), &config).unwrap();
    Caches::over(memory, CachesConfig::default())
}

/// A bound on waits, which no test reaches.
const LONG: Duration = Duration::from_secs(60);

fn request(caches: &CachesRef, bytes: u64) -> Result<BlockHandle> {
    caches.allocate_on(bytes, StreamId::default())
}

fn sum(census: &Census) -> u64 {
    let idle_bytes = census.free_bytes + census.pending_bytes + census.cached_bytes;
    let live_bytes = census.live_bytes + census.rounding_bytes;
    idle_bytes + live_bytes + census.kept_bytes + census.moving_bytes
}

/// Asserts that the census accounts for every reserved byte. No thread may be inside a scope.
fn assert_known(caches: &CachesRef) {
    caches.drain_all();
    let census = caches.census();
    assert_eq!(sum(&census), census.reserved_bytes, "{census:?}");
    assert_eq!((census.moving_bytes, census.entered_bytes), (0, 0));
}

/// Requests 12 MiB while another thread is inside a scope with 12 MiB idle. While this request
/// waits, the other thread calls `inside` repeatedly, each time with a live block. `inside` must
/// not leave the scope.
fn while_inside(inside: impl Fn(&CachesRef, Option<BlockHandle>) + Sync) {
    let caches = limited(LONG);
    let barrier = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _scope = enter(&caches, "r", None);
            let mut live: Vec<_> = (0..1000).map(|_| request(&caches, 1000).unwrap()).collect();
            drop(request(&caches, 12 * MIB).unwrap());
            barrier.wait();
            await_waiter(&caches);
            while has_waiter(&caches) {
                inside(&caches, live.pop());
            }
            assert!(!live.is_empty(), "too many calls were needed");
            barrier.wait();
        });
        barrier.wait();
        let block = request(&caches, 12 * MIB);
        barrier.wait();
        assert_eq!(block.unwrap().requested_bytes, 12 * MIB);
    });
    assert_known(&caches);
    caches.check();
}

/// Waits until another thread waits for the idle blocks of this thread.
fn await_waiter(caches: &CachesRef) {
    while !has_waiter(caches) {
        std::thread::yield_now();
    }
}

fn has_waiter(caches: &CachesRef) -> bool {
    std::thread::sleep(Duration::from_micros(100)); // Lets the other thread send its two signals.
    let mut shards = caches.all().into_iter().flat_map(|cache| cache.shards());
    shards.any(|shard| shard.is_signalled())
}

#[test]
fn a_thread_inside_releases_at_its_next_request() {
    // In the first case, each request is a hit. In the second case, it has another size.
    while_inside(|caches, live| {
        drop(live);
        drop(request(caches, 1000).unwrap());
    });
    while_inside(|caches, live| {
        drop(live);
        drop(request(caches, 3000).unwrap());
    });
}

#[test]
fn a_thread_inside_releases_at_its_next_drop() {
    while_inside(|_, live| drop(live));
}

#[test]
fn a_thread_inside_releases_at_its_next_nested_entry_with_a_request() {
    while_inside(|caches, _live| {
        let _inner = enter(caches, "inner", None);
        drop(request(caches, 3000).unwrap());
    });
}

/// Requests 12 MiB while another thread is inside a scope with 12 MiB idle. While this request
/// waits, the other thread calls `leave`.
fn as_it_leaves(leave: fn(Entered)) {
    let caches = limited(LONG);
    let barrier = Barrier::new(2);
    std::thread::scope(|threads| {
        let inside = threads.spawn(|| {
            let scope = enter(&caches, "r", None);
            drop(request(&caches, 12 * MIB).unwrap());
            barrier.wait();
            await_waiter(&caches);
            leave(scope);
        });
        barrier.wait();
        request(&caches, 12 * MIB).unwrap();
        let _ = inside.join(); // The thread may have panicked.
    });
    assert_known(&caches);
}

#[test]
fn a_thread_inside_releases_as_it_leaves() {
    as_it_leaves(drop);
}

#[test]
fn a_thread_that_panics_inside_releases() {
    as_it_leaves(|_scope| std::panic::resume_unwind(Box::new(())));
}

#[test]
fn a_thread_that_ends_inside_releases() {
    as_it_leaves(std::mem::forget); // The end of the thread leaves the scope.
}

#[test]
fn threads_that_wait_for_the_scopes_of_each_other_are_served() {
    let caches = limited(LONG);
    let barrier = Barrier::new(2);
    let work = || {
        let _scope = enter(&caches, "r", None);
        drop(request(&caches, 7 * MIB).unwrap());
        barrier.wait();
        // Each request needs the idle memory of the two threads. So one thread waits until the
        // other thread drops its block.
        drop(request(&caches, 8 * MIB).unwrap());
    };
    std::thread::scope(|threads| {
        threads.spawn(work);
        threads.spawn(work);
    });
    assert_known(&caches);
}

#[test]
fn a_thread_that_does_not_come_is_named() {
    let bound = Duration::from_millis(20);
    let caches = limited(bound);
    let (ready, is_ready) = channel();
    let (ended, has_ended): (Sender<()>, Receiver<()>) = channel();
    std::thread::scope(|threads| {
        let sleeper = std::thread::Builder::new().name("sleeper".into());
        let caches = &caches;
        sleeper
            .spawn_scoped(threads, move || {
                let _scope = enter(caches, "r", None);
                drop(request(caches, 12 * MIB).unwrap());
                ready.send(()).unwrap();
                let _ = has_ended.recv();
            })
            .unwrap();
        is_ready.recv().unwrap();
        let begun = Instant::now();
        let error = request(caches, 12 * MIB).unwrap_err();
        assert!(begun.elapsed() >= bound);
        let report = error.out_of_memory_report().unwrap();
        assert_eq!(report.cached_bytes(), 12 * MIB);
        assert_eq!(report.caches[0].entered_by, ["sleeper"]);
        let remedy = report.remedy();
        assert!(remedy.contains("\"r\""), "{remedy}");
        assert!(
            remedy.contains("(sleeper), which released too little within 20ms"),
            "{remedy}"
        );
        // A request above the limit does not wait, because the idle memory of the thread inside
        // does not suffice.
        let begun = Instant::now();
        let error = request(caches, LIMIT + 1).unwrap_err();
        assert!(begun.elapsed() < LONG && error.is_out_of_memory());
        drop(ended);
    });
}

#[test]
fn a_bound_of_zero_fails_at_once() {
    let caches = limited(Duration::ZERO);
    let barrier = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _scope = enter(&caches, "r", None);
            drop(request(&caches, 12 * MIB).unwrap());
            barrier.wait();
            barrier.wait();
        });
        barrier.wait();
        let error = request(&caches, 12 * MIB).unwrap_err();
        let remedy = error.out_of_memory_report().unwrap().remedy();
        assert!(remedy.contains("`DeviceConfig::reclaim_wait`"), "{remedy}");
        barrier.wait();
    });
    request(&caches, 12 * MIB).unwrap();
}

/// A function that makes memory idle. It returns a value that keeps the memory in this idle state.
type MakeIdle = fn(&CachesRef) -> Box<dyn Send>;

fn nothing() -> Box<dyn Send> {
    Box::new(())
}

/// Makes 12 MiB idle in a cache with `policy`, in the shard of an ended thread.
fn in_cache(caches: &CachesRef, policy: Policy) -> Box<dyn Send> {
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..3 {
                let _scope = enter(caches, "r", Some(policy));
                drop(request(caches, 12 * MIB).unwrap());
            }
        });
    });
    nothing()
}

/// The kinds of idle memory in the list of docs/internals/architecture.md.
const KINDS: [(&str, MakeIdle); 11] = [
    ("free blocks of other sizes", |caches| {
        let blocks: Vec<_> = (0..12).map(|_| request(caches, MIB).unwrap()).collect();
        drop(blocks);
        nothing()
    }),
    ("blocks dropped outside of every scope", |caches| {
        drop(request(caches, 12 * MIB).unwrap());
        nothing()
    }),
    ("free lists", |caches| in_cache(caches, Policy::Recycle)),
    ("blocks that the exit releases", |caches| {
        in_cache(caches, Policy::Release)
    }),
    ("arenas", |caches| in_cache(caches, Policy::Bump)),
    ("slabs", |caches| in_cache(caches, Policy::Plan)),
    ("blocks dropped by other threads", |caches| {
        let block = {
            let _scope = enter(caches, "r", None);
            request(caches, 12 * MIB).unwrap()
        };
        std::thread::scope(|threads| {
            threads.spawn(|| drop(block));
        });
        nothing()
    }),
    ("an outer scope of the thread itself", |caches| {
        let _scope = enter(caches, "r", None);
        drop(request(caches, 12 * MIB).unwrap());
        let _inner = enter(caches, "inner", None);
        drop(request(caches, 12 * MIB).unwrap());
        nothing()
    }),
    ("a shared handle", |caches| {
        let cache = SharedCache::open(caches, "r");
        assert!(cache.enter());
        let (block, _) = cache
            .allocate(12 * MIB, StreamId::default(), Location::caller())
            .unwrap();
        drop(block);
        Box::new(cache)
    }),
    ("a removed cache with a live block", |caches| {
        let blocks = {
            let _scope = enter(caches, "r", None);
            drop(request(caches, 11 * MIB).unwrap());
            request(caches, 1000).unwrap()
        };
        caches.remove("r");
        Box::new(blocks)
    }),
    ("an arena whose blocks have all returned", |caches| {
        let block = {
            let _scope = enter(caches, "r", Some(Policy::Bump));
            request(caches, 12 * MIB).unwrap()
        };
        drop(block);
        nothing()
    }),
];

#[test]
fn every_kind_of_idle_memory_is_found() {
    for (kind, make_idle) in KINDS {
        let caches = limited(LONG);
        let kept = make_idle(&caches);
        caches.drain_all();
        let census = caches.census();
        assert!(census.reserved_bytes <= LIMIT, "{kind}");
        assert_eq!(sum(&census), census.reserved_bytes, "{kind}: {census:?}");
        assert_eq!(census.moving_bytes, 0, "{kind}: {census:?}");
        let block = request(&caches, 12 * MIB);
        assert!(block.is_ok(), "{kind}: {}", block.unwrap_err());
        drop((block, kept));
        caches.check();
    }
}

#[test]
fn every_policy_releases_while_a_thread_is_inside() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let caches = limited(LONG);
        let is_served = AtomicBool::new(false);
        let barrier = Barrier::new(2);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..4 {
                    let _scope = enter(&caches, "r", Some(policy));
                    drop(request(&caches, 12 * MIB).unwrap());
                }
                let _scope = enter(&caches, "r", Some(policy));
                barrier.wait();
                // The arena or slab is idle, because this entry has made no request yet.
                let _inner = enter(&caches, "inner", Some(Policy::Recycle));
                while !is_served.load(Ordering::Relaxed) {
                    drop(request(&caches, 1000).unwrap());
                }
            });
            barrier.wait();
            let block = request(&caches, 12 * MIB);
            is_served.store(true, Ordering::Relaxed);
            assert!(block.is_ok(), "{policy}: {}", block.unwrap_err());
        });
        caches.check();
    }
}

#[test]
fn a_cache_that_nobody_enters_is_evicted_by_time() {
    let caches = limited(LONG);
    let idle = Duration::from_millis(40);
    let config = CacheConfig {
        max_idle: Some(idle),
        ..CacheConfig::default()
    };
    caches.configure("r", config);
    {
        let _scope = enter(&caches, "r", None);
        drop(request(&caches, MIB).unwrap());
    }
    let cached_bytes = || {
        let cache = caches.find("r").unwrap();
        cache.shards()[0].counters.cached_bytes()
    };
    let begun = Instant::now();
    while cached_bytes() > 0 {
        assert!(begun.elapsed() < LONG, "nothing was evicted");
        std::thread::sleep(idle / 8);
        drop(request(&caches, 1000).unwrap());
    }
    assert!(begun.elapsed() >= idle / 2, "it was evicted too early");
}

/// Runs a server. Its threads enter one scope repeatedly, and make three requests of random sizes
/// per entry. Returns the number of failed requests. Also returns the maximum unused bytes at a
/// failure: the limit minus live bytes and requested bytes.
fn serve(limit_bytes: u64, threads: u64) -> (usize, u64) {
    let config = MemoryConfig {
        limit_bytes: Some(limit_bytes),
        reclaim_wait: LONG,
        ..MemoryConfig::default()
    };
    let memory = DeviceMemory::new(Arc::new(HostBackend::new()), &config).unwrap();
    let caches = Caches::over(memory, CachesConfig::default());
    let work = |seed: u64| {
        let (mut refused, mut most_left_bytes) = (0, 0);
        let mut random = seed * 7919 + 1;
        let mut bytes = || {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            1 + (random >> 33) % (4 * MIB)
        };
        for _ in 0..100 {
            let _scope = enter(&caches, "r", None);
            let mut live = Vec::new();
            for _ in 0..3 {
                match request(&caches, bytes()) {
                    Ok(block) => {
                        shard::fill(caches.memory.backend(), &block, 1).unwrap();
                        live.push(block);
                    }
                    Err(error) => {
                        let report = error.out_of_memory_report().unwrap();
                        let taken_bytes = report.live_bytes + report.rounding_bytes;
                        let needed_bytes = taken_bytes + report.requested_bytes;
                        refused += 1;
                        most_left_bytes =
                            most_left_bytes.max(limit_bytes.saturating_sub(needed_bytes));
                        let known_bytes = report.cached_bytes() + report.free_bytes;
                        let known_bytes = known_bytes + taken_bytes + report.pending_bytes;
                        let known_bytes = known_bytes + report.moving_bytes + report.kept_bytes;
                        assert_eq!(known_bytes, report.reserved_bytes, "{report}");
                        assert!(!report.to_string().contains("outside"), "{report}");
                    }
                }
                if live.len() > 1 {
                    live.remove(0);
                }
            }
        }
        (refused, most_left_bytes)
    };
    let counts = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || work(seed)))
            .collect();
        let counts = spawned.into_iter().map(|thread| thread.join().unwrap());
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1.max(one.1)))
    });
    assert_known(&caches);
    caches.check();
    counts
}

#[test]
fn a_server_under_a_limit_is_refused_nothing_that_fits() {
    for limit_bytes in [24 * MIB, 32 * MIB, 48 * MIB, 64 * MIB] {
        let (refused, most_left_bytes) = serve(limit_bytes, 16);
        let left = ByteSize(most_left_bytes);
        let limit = ByteSize(limit_bytes);
        println!(
            "{limit}: {refused} of 4,800 refused, with at most {left} left beside live blocks"
        );
        // Free memory lies in gaps between live blocks of up to 4 MiB. Six live blocks can fill 24
        // MiB, so the sum of the gaps is random under this limit.
        let is_bounded = limit_bytes > 24 * MIB;
        assert!(
            !is_bounded || most_left_bytes <= limit_bytes / 2,
            "{left} of {limit} left"
        );
    }
}
