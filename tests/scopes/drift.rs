//! Sizes that vary between iterations, like batches of text.

use cachescope::{
    Buffer, CacheConfig, Device, DeviceConfig, Policy, PoolKind, Result, cache_scope,
};
use under_test::device_with;

/// A linear congruential generator, whose sequence is equal in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The arrays of an iteration, in order.
#[derive(Clone, Copy)]
struct Plan {
    /// The bytes of each array for a text of length 1.
    unit_bytes: &'static [u64],
    /// The maximum number of live arrays. If it is reached, the oldest array is dropped before the
    /// next allocation.
    alive: usize,
    lengths: (u64, u64),
}

struct Outcome {
    hit_rate: f64,
    /// The ratio of reserved bytes to the working set of the largest iteration.
    ratio: f64,
}

/// Runs iterations of random lengths. The hit rate excludes the first hundred iterations.
fn walk(plan: Plan, iterations: u64) -> Result<Outcome> {
    let device = device_with(DeviceConfig {
        pool: PoolKind::BestFit,
        ..Default::default()
    })?;
    device.configure_cache("text", CacheConfig::default());
    let scope = device.scope("text");
    let mut random = Random(7);
    let (mut working_set, mut early) = (0, None);
    for iteration in 0..iterations {
        if iteration == 100 {
            early = device.cache_stats("text");
        }
        let _guard = scope.enter();
        let length = plan.lengths.0 + random.below(plan.lengths.1 - plan.lengths.0 + 1);
        let mut alive = std::collections::VecDeque::new();
        let mut live_bytes = 0;
        for unit_bytes in plan.unit_bytes {
            if alive.len() == plan.alive
                && let Some(oldest) = alive.pop_front()
            {
                let oldest: Buffer = oldest;
                live_bytes -= oldest.size_bytes();
            }
            alive.push_back(Buffer::new(&device, (unit_bytes * length) as usize)?);
            live_bytes += (unit_bytes * length) as usize;
            working_set = working_set.max(live_bytes);
        }
    }
    let (early, late) = (early.unwrap(), device.cache_stats("text").unwrap());
    let (hits, misses) = (late.hits - early.hits, late.misses - early.misses);
    Ok(Outcome {
        hit_rate: hits as f64 / (hits + misses) as f64,
        ratio: device.memory_stats().peak_reserved_bytes as f64 / working_set as f64,
    })
}

/// The activations of a small transformer, in bytes per token.
const LAYERS: [u64; 30] = [
    4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096,
    12288, 4096, 4096, 16384, 16384, 4096, 4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096,
    128_000,
];

#[test]
fn random_lengths_hit_and_stay_near_the_largest_working_set() {
    let plans = [
        (
            "one array",
            Plan {
                unit_bytes: &[20_000],
                alive: 1,
                lengths: (1, 512),
            },
        ),
        (
            "all alive",
            Plan {
                unit_bytes: &LAYERS,
                alive: 30,
                lengths: (1, 512),
            },
        ),
        (
            "long texts",
            Plan {
                unit_bytes: &LAYERS,
                alive: 30,
                lengths: (128, 512),
            },
        ),
        (
            "three alive",
            Plan {
                unit_bytes: &LAYERS,
                alive: 3,
                lengths: (1, 512),
            },
        ),
        (
            "eight alive",
            Plan {
                unit_bytes: &LAYERS,
                alive: 8,
                lengths: (64, 512),
            },
        ),
        (
            "mixed",
            Plan {
                unit_bytes: &[20, 40, 600, 8000, 140, 1200],
                alive: 4,
                lengths: (1, 4096),
            },
        ),
    ];
    for (name, plan) in plans {
        let Outcome { hit_rate, ratio } = walk(plan, 10_000).unwrap();
        println!("{name}: hit rate {hit_rate:.4}, reserved {ratio:.3} of the working set");
        assert!(hit_rate > 0.95, "{name}: {hit_rate}");
        assert!(ratio < 1.3, "{name}: {ratio}");
    }
}

/// The entry makes requests of many sizes. An unbounded cache would keep a block of each size.
#[test]
fn a_cache_does_not_grow_with_every_size_it_sees() -> Result<()> {
    let device = device_with(DeviceConfig {
        pool: PoolKind::BestFit,
        ..Default::default()
    })?;
    let scope = device.scope("sizes");
    let _guard = scope.enter();
    let mut random = Random(1);
    for _ in 0..3000 {
        drop(Buffer::new(
            &device,
            (4 << 20) + random.below(60 << 20) as usize,
        )?);
    }
    let reserved = device.memory_stats().peak_reserved_bytes;
    assert!(reserved <= 2 * (64 << 20), "{reserved}");
    Ok(())
}

#[test]
fn blocks_that_many_entries_do_not_use_are_released() -> Result<()> {
    for (keep_entries, kept) in [(Some(8), false), (None, true)] {
        let device = device_with(DeviceConfig::default())?;
        let config = CacheConfig {
            keep_entries,
            ..Default::default()
        };
        device.configure_cache("loop", config);
        let scope = device.scope("loop");
        let workspace = || Buffer::new(&device, 3 << 20).map(drop);
        let iteration = || Buffer::new(&device, 1 << 20).map(drop);
        {
            let _guard = scope.enter();
            workspace()?;
            iteration()?;
        }
        for _ in 0..20 {
            let _guard = scope.enter();
            iteration()?;
        }
        let stats = device.cache_stats("loop").unwrap();
        assert_eq!(stats.cached_blocks, if kept { 2 } else { 1 });
        assert_eq!((stats.hits, stats.misses), (20, 2), "what is used stays");
    }
    Ok(())
}

/// The arena of a long first iteration shrinks to the size that later iterations need.
#[test]
fn a_first_entry_does_not_retain_its_arena() -> Result<()> {
    let idle = Some(std::time::Duration::from_millis(20));
    let bounds = [(Some(8), None, 5), (None, idle, 1), (None, None, 0)];
    for policy in [Policy::Bump, Policy::Plan] {
        for (keep_entries, idle, shortened) in bounds {
            for later_bytes in [1 << 20, 0] {
                let device = device_with(DeviceConfig::default())?;
                let config = CacheConfig {
                    policy,
                    keep_entries,
                    max_idle: idle,
                    ..Default::default()
                };
                device.configure_cache("loop", config);
                let scope = device.scope("loop");
                for _ in 0..2 {
                    let _guard = scope.enter();
                    let _both = (
                        Buffer::new(&device, 3 << 20)?,
                        Buffer::new(&device, 1 << 20)?,
                    );
                }
                let cached = || device.cache_stats("loop").unwrap().cached_bytes;
                assert_eq!(cached(), 4 << 20);
                for _ in 0..40 {
                    if idle.is_some() {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    let _guard = scope.enter();
                    Buffer::new(&device, later_bytes)?;
                }
                let kept = if shortened > 0 {
                    later_bytes as u64
                } else {
                    4 << 20
                };
                assert_eq!(cached(), kept, "{policy}, {keep_entries:?}, {idle:?}");
                let misses = device.cache_stats("loop").unwrap().misses;
                assert!(misses <= 6 + shortened, "{policy}: {misses} misses");
            }
        }
    }
    Ok(())
}

#[test]
fn blocks_that_were_idle_for_long_are_released() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let idle = Some(std::time::Duration::from_millis(20));
    device.configure_cache(
        "loop",
        CacheConfig {
            max_idle: idle,
            ..Default::default()
        },
    );
    let scope = device.scope("loop");
    let iteration = || {
        let _guard = scope.enter();
        Buffer::new(&device, 1 << 20).map(drop)
    };
    {
        let _guard = scope.enter();
        let _both = (
            Buffer::new(&device, 3 << 20)?,
            Buffer::new(&device, 1 << 20)?,
        );
    }
    assert_eq!(device.cache_stats("loop").unwrap().cached_blocks, 2);
    for _ in 0..40 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        iteration()?;
    }
    assert_eq!(device.cache_stats("loop").unwrap().cached_blocks, 1);
    Ok(())
}

/// Runs the allocations of six layers. The wide buffers are temporary, and every second square
/// buffer stays live for the backward pass. Returns the peak of the live bytes.
fn layers(device: &Device, length: usize) -> Result<usize> {
    let mut saved = Vec::new();
    let (mut saved_bytes, mut most) = (0, 0);
    let mut input = Buffer::new(device, length << 15)?;
    for layer in 0..6 {
        let wide = Buffer::new(device, length << 17)?;
        let square = Buffer::new(device, (length * length) << 5)?;
        let output = Buffer::new(device, length << 15)?;
        let bytes = [&input, &wide, &square, &output].map(Buffer::size_bytes);
        most = most.max(saved_bytes + bytes.iter().sum::<usize>());
        drop(wide);
        if layer % 2 == 0 {
            saved_bytes += square.size_bytes();
            saved.push(square);
        }
        input = output;
    }
    Ok(most)
}

/// The lengths of the entries drift. Under Plan, one slab for each repeated length would need
/// several times the required memory.
#[test]
fn plans_of_lengths_that_drift_leave_no_slab_each() -> Result<()> {
    let mut random = Random(3);
    let mut lengths = |of: fn(usize, usize) -> usize| -> Vec<usize> {
        let draws = (0..10_000).map(|iteration| of(iteration, random.below(512) as usize));
        draws.collect()
    };
    let programs = [
        ("random", lengths(|_, draw| 1 + draw)),
        ("growing", lengths(|iteration, _| 1 + iteration / 20)),
        ("shrinking", lengths(|iteration, _| 512 - iteration / 20)),
        (
            "seldom long",
            lengths(|_, draw| if draw < 10 { 512 } else { 64 + draw % 64 }),
        ),
    ];
    for (name, lengths) in programs {
        for policy in [Policy::Plan, Policy::Recycle] {
            let device = device_with(DeviceConfig::default())?;
            let (mut most, mut early) = (0, None);
            for (iteration, &length) in lengths.iter().enumerate() {
                if iteration == 100 {
                    early = device.cache_stats("text");
                }
                most = cache_scope!("text", policy = policy, device = &device, {
                    most.max(layers(&device, length)?)
                });
            }
            let (early, late) = (early.unwrap(), device.cache_stats("text").unwrap());
            let (hits, misses) = (late.hits - early.hits, late.misses - early.misses);
            let hit_rate = hits as f64 / (hits + misses) as f64;
            let ratio = device.memory_stats().peak_reserved_bytes as f64 / most as f64;
            println!("{name}, {policy}: hit rate {hit_rate:.4}, reserved {ratio:.3}");
            assert!(hit_rate > 0.95, "{name}, {policy}: {hit_rate}");
            assert!(ratio < 1.3, "{name}, {policy}: {ratio}");
        }
    }
    Ok(())
}

#[test]
fn a_plan_shrinks_though_other_entries_come_between() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let config = CacheConfig {
        policy: Policy::Plan,
        keep_entries: Some(8),
        ..Default::default()
    };
    device.configure_cache("loop", config);
    let scope = device.scope("loop");
    let entry = |lengths: &[usize]| -> Result<()> {
        let _guard = scope.enter();
        let mut buffers = Vec::new();
        for &bytes in lengths {
            buffers.push(Buffer::new(&device, bytes)?);
        }
        Ok(())
    };
    let cached = || device.cache_stats("loop").unwrap().cached_bytes;
    for _ in 0..4 {
        entry(&[1 << 20])?;
        entry(&[2 << 20, 64 << 20])?;
    }
    assert!(cached() >= 66 << 20);
    for _ in 0..40 {
        entry(&[2 << 20, 8 << 20])?;
        entry(&[1 << 20])?;
    }
    assert!(cached() <= 11 << 20, "{}", cached());
    Ok(())
}
